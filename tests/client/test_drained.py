"""Which execution each block of a drained ETDump is of, where the file itself does not say."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.etdump_writer import EmptyEvent, ProfileEvent, RunData, write_etdump

from otel_bridge.client.drained import DrainedDump, Execution
from otel_bridge.client.stream import EventStream
from otel_bridge.errors import MalformedETDump
from otel_bridge.etdump.count import count_events
from otel_bridge.etdump.read import read
from otel_bridge.model.stream import Anchor, ModelRef, Stream

STREAM = Stream(stream_id=bytes(range(16)))
RAN, STOPPED, REFUSED = "ran", "stopped half-way", "refused before it had a block"


def a_block(number: int, *, is_whole: bool) -> RunData:
    """An inference that ended at tick 100 * number + 50, or one that did not end."""
    at = 100 * number
    call = ProfileEvent(name="OPERATOR_CALL", chain=0, instruction=0, start=at + 10, end=at + 20)
    whole = ProfileEvent(name="Method::execute", chain=-1, instruction=0, start=at, end=at + 50)
    return RunData("Execute", [call, whole] if is_whole else [call])


def an_execution(number: int, fate: str) -> Execution:
    """The execution of that number, whose call returned 1000 + number ns after its end, on a clock that began at 10^6."""
    returned_ns = 10**6 + 100 * number + 50 + 1000 + number
    error = None if fate == RAN else 0x12
    return Execution(f"m{number}", number, None, (), fate != RAN, error, returned_ns)


def drained(*fates: str, load: bool = False, around: int = 0) -> DrainedDump:
    """A dump of executions with these fates; `around` more were made by somebody else."""
    blocks = [RunData("Default", [ProfileEvent(name="Program::load_method", chain=-1, instruction=0, start=0, end=1)])] * load
    blocks += [a_block(number, is_whole=fate == RAN) for number, fate in enumerate(fates) if fate != REFUSED]
    blocks += [a_block(len(fates) + number, is_whole=True) for number in range(around)]
    executions = [an_execution(number, fate) for number, fate in enumerate(fates)]
    etdump = write_etdump(blocks)
    now_ns = (2 * 10**6, 1_800_000_000 * 10**9)
    return DrainedDump(EventStream(model=ModelRef("net")), etdump, count_events(etdump), executions, now_ns)


def told(dump: DrainedDump) -> list[tuple[str | None, int | None, int | None]]:
    """Method, run index and error of each inference."""
    blocks = dump.read_batch().blocks
    return [(block.method, block.run_index, block.error) for block in blocks if block.name == "Execute"]


NOTHING = (None, None, None)


@pytest.mark.parametrize(
    ("fates", "expected"),
    [
        ([RAN, RAN], [("m0", 0, None), ("m1", 1, None)]),
        ([STOPPED, RAN, STOPPED], [("m0", 0, 0x12), ("m1", 1, None), ("m2", 2, 0x12)]),
        ([REFUSED, RAN], [("m1", 1, None)]),
        ([REFUSED, STOPPED, RAN], [NOTHING, ("m2", 2, None)]),
        ([RAN, STOPPED, RAN, REFUSED], [("m0", 0, None), ("m1", 1, 0x12), ("m2", 2, None)]),
    ],
    ids=lambda value: ", ".join(value) if isinstance(value[0], str) else "",
)
def test_pairing(fates: list[str], expected: list[tuple[object, ...]]) -> None:
    """Blocks are paired with executions where that is certain, and with none where it is not."""
    assert told(drained(*fates, load=True)) == expected


def test_executions_that_nobody_told_of() -> None:
    """Where the program was also executed around us, no block is taken for one of ours."""
    dump = drained(RAN, RAN, around=1)
    assert told(dump) == [NOTHING] * 3
    assert dump.anchor == Anchor(250, 1_800_000_000 * 10**9)


def test_the_anchor() -> None:
    """No inference ends after its call had returned: the tightest of them tells when the runtime's clock began."""
    dump = drained(RAN, RAN, RAN)
    dump.read_batch()
    began_ns = 10**6 + 1000  # by execution 0, which returned soonest after its end
    assert dump.anchor == Anchor(250, 1_800_000_000 * 10**9 - 2 * 10**6 + began_ns + 250)


def test_positions_go_on_from_drain_to_drain() -> None:
    """Each drain numbers its blocks anew, the stream does not."""
    stream = EventStream(model=ModelRef("net"))
    positions = []
    for _ in range(2):
        dump = drained(RAN, RAN, load=True)
        dump.stream = stream
        positions += [block.position for block in dump.read_batch().blocks]
    assert positions == list(range(6))


@given(st.lists(st.sampled_from([RAN, STOPPED, REFUSED]), max_size=12))
def test_what_is_told_is_true(fates: list[str]) -> None:
    """Whatever is said of a block is so: an inference that ran says nothing of one that did not."""
    numbers = [number for number, fate in enumerate(fates) if fate != REFUSED]
    for (method, run_index, error), number in zip(told(drained(*fates)), numbers, strict=True):
        if method is None:
            assert fates[number] == STOPPED
        else:
            assert (method, run_index, error is None) == (f"m{number}", number, fates[number] == RAN)


@pytest.mark.parametrize(
    "name", sorted(path.name for path in (Path(__file__).parents[1] / "fixtures").iterdir() if path.is_dir())
)
def test_events_are_counted_as_they_are_read(fixtures: Path, name: str) -> None:
    """`count_events` says how many events a real dump holds, those included that are none of ours."""
    for path in (fixtures / name).glob("*.etdp"):
        data = path.read_bytes()
        dump = read(data, STREAM)
        assert count_events(data) == len(dump.batch) + sum(dump.rejected.values())


@given(data=st.data())
def test_a_count_of_anything(data: st.DataObject) -> None:
    """A damaged dump is counted or refused, and nothing else is raised."""
    etdump = bytearray(
        write_etdump([a_block(0, is_whole=True), RunData("Execute", [EmptyEvent()]), a_block(1, is_whole=False)])
    )
    for _ in range(data.draw(st.integers(1, 4))):
        etdump[data.draw(st.integers(0, len(etdump) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(MalformedETDump):
        assert count_events(bytes(etdump)) >= 0
