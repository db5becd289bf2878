"""Templates: kept within a bound, and the same whenever they are made."""

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_bridge.backends.backend import TimeQuality, Timing
from otel_bridge.model.resolution import Resolution
from otel_bridge.spans.attributes import DELEGATE_NAME, TIME_QUALITY, Cut
from otel_bridge.spans.compile import Template, Templates, _size_of_key
from otel_bridge.spans.describe import Face, requalify
from otel_bridge.spans.encode import span_face


def template_of(kept: Templates, number: int, made: list[int]) -> Template:
    """The template of that number; `made` gets the number where it is made anew."""

    def describe() -> Face:
        made.append(number)
        return Face(f"{number:05}", (), Resolution())

    return kept.get((number,), partial(describe))


def test_the_least_used_go_first() -> None:
    """Over the bound the template goes that was not used for longest; made again it is equal."""
    made: list[int] = []
    kept = Templates(100_000)
    first = template_of(kept, 0, made)
    for number in range(1, 1000):
        template_of(kept, number, made)
        assert template_of(kept, 0, made) is first  # in use, so it stays
    assert made == list(range(1000))
    again = template_of(kept, 1, made)
    assert made[-1] == 1
    assert again == template_of(Templates(100_000), 1, made)


def test_memory_is_bounded() -> None:
    """However many there are, of a hostile device's making, so many bytes are kept at most."""
    made: list[int] = []
    kept = Templates(100_000)
    for number in range(1000):
        template_of(kept, number, made)
    still = [number for number in range(1000) if (number,) in kept._known]
    assert 10 < len(still) < 100
    counted = sum(_size_of_key(key) + kept._size(template) for key, template in kept._known.items())
    assert counted == kept._bytes <= 100_000
    none = Templates(0)
    for number in range(100):
        template_of(none, number, made)
    assert not none._known


def test_more_than_fit_take_turns_and_most_of_those_kept_are_found() -> None:
    """If each new one pushed out the least used, none would be there when its turn comes."""
    made: list[int] = []
    kept = Templates(100_000)
    for number in range(1000):
        template_of(kept, number, made)
    room = len(kept._known)
    for _ in range(20):
        for number in range(2 * room):
            template_of(kept, number, made)
    made.clear()
    for number in range(2 * room):
        template_of(kept, number, made)
    assert len(made) < 2 * room * 0.8


def test_new_ones_come_in() -> None:
    """Templates of a new build push out those of an old one, if they fit, after a few turns."""
    made: list[int] = []
    kept = Templates(100_000)
    for number in range(1000):
        template_of(kept, number, made)
    room = len(kept._known)
    new = range(1000, 1000 + room)
    for _ in range(100):
        for number in new:
            template_of(kept, number, made)
    made.clear()
    for number in new:
        template_of(kept, number, made)
    assert not made


def said_by(build: str, number: int, kept: Templates) -> Template:
    """The template of that number in a build; builds say the same under it."""
    face = Face("aten.add.Tensor", ((DELEGATE_NAME, f"backend {number}"),), Resolution(delegate=f"backend {number}"))
    return kept.get((build, number), lambda: face)


def counted(kept: Templates) -> int:
    """What all that is kept takes: each key, and each template once."""
    templates = {id(each): each for each in kept._known.values()}
    return sum(map(_size_of_key, kept._known)) + sum(map(kept._size, templates.values()))


@pytest.mark.parametrize("whole_faces", [True, False])
def test_builds_share_templates_that_are_equal(*, whole_faces: bool) -> None:
    """A second build takes the room of its keys; what it says is the very object of the first."""
    kept = Templates(1 << 20, whole_faces=whole_faces)
    first = [said_by("a", number, kept) for number in range(100)]
    alone = kept._bytes
    second = [said_by("b", number, kept) for number in range(100)]
    assert all(one is other for one, other in zip(first, second, strict=True))
    assert kept._bytes - alone == sum(_size_of_key(("b", number)) for number in range(100)) < alone / 2


def test_templates_that_only_look_equal_are_not_shared() -> None:
    """`1` and `"1"` are written alike, and their times may be worth something else."""
    kept = Templates(1 << 20, whole_faces=False)
    faces = [Face("id 1", (), Resolution(), Timing(quality)) for quality in (TimeQuality.MEASURED, TimeQuality.UNKNOWN)]
    one, other = (kept.get((number,), lambda face=face: face) for number, face in enumerate(faces))
    assert one.encoded == other.encoded
    assert [one.face.quality, other.face.quality] == [TimeQuality.MEASURED, TimeQuality.UNKNOWN]


@pytest.mark.parametrize("whole_faces", [True, False])
def test_a_text_that_was_cut_is_counted_beside_one_that_only_looks_so(*, whole_faces: bool) -> None:
    """A text as long as may be is written like a longer one, which is cut to it: of the two, one cut is counted."""
    kept = Templates(1 << 20, whole_faces=whole_faces)
    faces = [Face("conv", ((DELEGATE_NAME, text),), Resolution()) for text in (Cut("B"), "B")]
    cut, whole, again = (kept.get((number,), lambda face=faces[number % 2]: face) for number in range(3))
    assert cut.encoded == whole.encoded
    assert (cut.cuts, whole.cuts) == (1, 0)
    assert again is cut


QUALITIES = (TimeQuality.MEASURED, TimeQuality.UNKNOWN)


@given(st.lists(st.tuples(st.integers(0, 9), st.sampled_from(QUALITIES)), max_size=200), st.integers(0, 4_000))
def test_those_that_look_equal_go_in_any_order(asked: list[tuple[int, TimeQuality]], room: int) -> None:
    """Whichever of two that are written alike is pushed out first, each is found as it is, and the books balance."""
    kept = Templates(room, whole_faces=False)
    for number, quality in asked:
        face = Face(f"id {number}", (), Resolution(), Timing(quality))
        assert kept.get((number, quality), lambda face=face: face).face.quality is quality
        assert kept._bytes == counted(kept) <= room
    assert {id(each) for each in kept._equal.values()} <= {id(each) for each in kept._known.values()}


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 40)), max_size=200), st.integers(0, 12_000))
def test_the_books_of_shared_templates_balance(asked: list[tuple[str, int]], room: int) -> None:
    """In whatever order builds ask for them, what is counted is what is kept, and no more than there is room for."""
    kept = Templates(room, whole_faces=False)
    for build, number in asked:
        assert said_by(build, number, kept).face.resolution.delegate == f"backend {number}"
        assert kept._bytes == counted(kept) <= room
    assert {id(each) for each in kept._equal.values()} == {id(each) for each in kept._known.values()}


@pytest.mark.parametrize("whole_faces", [True, False])
@pytest.mark.parametrize("before", TimeQuality)
@pytest.mark.parametrize("after", [TimeQuality.UNKNOWN, TimeQuality.FOREIGN_CLOCK])
def test_another_quality_is_written_as_if_it_had_been_described(
    before: TimeQuality, after: TimeQuality, *, whole_faces: bool
) -> None:
    """Its bytes are changed, since an outline has no attributes: the same come out, and cuts are still counted."""
    said = ((DELEGATE_NAME, Cut("B")),) + (((TIME_QUALITY, before.value),) if before is not TimeQuality.MEASURED else ())
    face = Face("conv", said, Resolution(delegate="B"), Timing(before))
    kept = Templates(1 << 20, whole_faces=whole_faces)
    found = kept.requalify(kept.get(("conv",), lambda: face), after)
    expected = requalify(face, after)
    assert found.encoded == span_face(expected.name, expected.attributes)
    assert (found.face.quality, found.cuts) == (after, 1)
    assert kept.requalify(kept.get(("conv",), lambda: face), after) is found
