"""Templates: kept within a bound, and the same whenever they are made."""

from functools import partial

from otel_bridge.model.resolution import Resolution
from otel_bridge.spans.compile import Template, Templates
from otel_bridge.spans.describe import Face


def template_of(kept: Templates, number: int, made: list[int]) -> Template:
    """The template of that number; `made` gets the number where it is made anew."""

    def describe() -> Face:
        made.append(number)
        return Face(f"{number:05}", (), Resolution())

    return kept.get(number, partial(describe))


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
    """However many there are, of a hostile device's making, so many bytes are kept at most, but for one."""
    made: list[int] = []
    kept = Templates(100_000)
    for number in range(1000):
        template_of(kept, number, made)
    still = [number for number in range(1000) if number in kept._known]
    assert 10 < len(still) < 100
    assert still == list(range(still[0], 1000))
    alone = Templates(0)
    template_of(alone, 1, made)
    template_of(alone, 2, made)
    assert list(alone._known) == [2]
