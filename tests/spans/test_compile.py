"""Templates: kept within a bound, and the same whenever they are made."""

from functools import partial

from otel_bridge.model.resolution import Resolution
from otel_bridge.spans.compile import Template, Templates, _size_of_key
from otel_bridge.spans.describe import Face


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
