"""RingTracer and Encoder, call by call: what the bridge reads is what the runtime said, or is counted."""

import subprocess
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.cpp import SOURCES, build
from support.cpp_scripts import Expected, Heard, Line, Received, received, script_of, undelimited

from otel_bridge.model.events import BlockKind

pytestmark = pytest.mark.timeout(300)  # compilers take their time on machines that have other work

ROOMY = (65536, 4096, 512, 1 << 16, 1 << 16, 1024, 512)
"""Bytes of a request; records, identifiers, bytes of text, of metadata and of context, instructions."""

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """tests/cpp/src/play.cpp, under AddressSanitizer and UBSan."""
    return build(tmp_path_factory.mktemp("play"), [SOURCES / "play.cpp"], sanitize=("address", "undefined"))


def play(program: Path, lines: list[Line], sizes: tuple[int, ...] = ROOMY) -> tuple[Received, Counter[str]]:
    """What a script leads to: what the bridge hears, and the drops that the program counts."""
    done = subprocess.run([program, *map(str, sizes)], input=script_of(lines), capture_output=True, timeout=50, check=False)
    assert done.returncode == 0, done.stderr.decode(errors="backslashreplace")[-3000:]
    counted = Counter({reason: int(events) for reason, events in map(str.split, done.stderr.decode().splitlines())})
    return received(undelimited(done.stdout)), counted


def heard_of(received: Received) -> dict[int, Heard]:
    """The blocks but for their trace contexts, which `Expected` does not know."""
    for block in received.blocks.values():
        block.context = None
    return received.blocks


NAMES = st.sampled_from(["Method::execute", "DELEGATE_CALL", "OPERATOR_CALL", "native_call_add.out", "é", "x" * 4096])
IDENTIFIERS = st.one_of(
    st.tuples(st.none(), st.sampled_from([0, 1, 7, -2, -(2**31), 2**31 - 1])),
    st.tuples(st.sampled_from(["conv #1", "conv #2", "1", "-"]), st.just(-1)),
)
BAD_IDENTIFIERS = st.sampled_from([(None, -1), ("both", 3), ("", -1)])
TICKS = st.integers(0, 2**64 - 1) | st.integers(0, 1000)
METADATA = st.none() | st.binary(max_size=40) | st.sampled_from([b"", b"same", b"same again"])
KEYS = st.integers(0, 3)
SCOPES = st.tuples(st.sampled_from([-1, 0, 0, 0, 1, 255, 256, -2]), st.sampled_from([0, 1, 5, 2**31 - 1, 2**31, 2**32 - 1]))

CALLS = st.one_of(
    st.tuples(st.just("B"), st.sampled_from(["Execute", "Execute", "Default", "Warm-up", "n" * 70, "", None])),
    st.builds(lambda key, name, scope: ("S", key, name, *scope), KEYS, NAMES | st.sampled_from(["", None]), SCOPES),
    st.tuples(st.just("E"), KEYS),
    st.builds(lambda key, identifier: ("D", key, *identifier), KEYS, IDENTIFIERS | BAD_IDENTIFIERS),
    st.tuples(st.just("F"), KEYS, METADATA),
    st.builds(lambda identifier, *times: ("L", *identifier, *times), IDENTIFIERS | BAD_IDENTIFIERS, TICKS, TICKS, METADATA),
    st.builds(lambda scope: ("H", *scope), SCOPES),
    st.tuples(st.just("M"), st.sampled_from(["forward", "decode", "m" * 129, None])),
    st.tuples(st.just("A"), st.sampled_from(["device.thermal", "threads"]), st.sampled_from(["1", "2"])),
    st.tuples(st.just("X"), st.sampled_from([0, 0, 0x12])),
    st.tuples(st.just("C"), TICKS),
    st.just(("P",)),
    st.just(("O",)),
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(lines=st.lists(CALLS, max_size=60), request_bytes=st.sampled_from([0, 2400, 65536]))
def test_any_sequence_of_calls_arrives(program: Path, lines: list[Line], request_bytes: int) -> None:
    """
    Whatever is called, in whatever order, drained whenever and into requests of whatever size: nothing aborts, and the blocks
    that the bridge reads are those of the calls, event by event; each event that is not among them is counted, and told.

    With small requests an identifier may fit into none: that one alone is dropped.
    """
    expected = Expected(lines)
    heard, counted = play(program, lines, (request_bytes, *ROOMY[1:]))
    small = {"buffer_too_small", "metadata_too_large"} if request_bytes < 65536 else set()
    lost = sum(counted[reason] for reason in small)
    for reason in small:
        counted.pop(reason, None)
        heard.drops.pop(reason, None)
    assert counted == heard.drops == expected.drops
    blocks = heard_of(heard)
    if not lost:
        assert blocks == expected.blocks
    assert sum(len(block.rows) for block in blocks.values()) + lost == sum(
        len(block.rows) for block in expected.blocks.values()
    )


TIGHT = st.tuples(
    st.sampled_from([0, 1200, 3000]),
    st.sampled_from([16, 32]),
    st.sampled_from([2, 8]),
    st.sampled_from([16, 5000]),
    st.sampled_from([128, 256]),
    st.sampled_from([0, 60]),
    st.sampled_from([0, 2, 4]),
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(lines=st.lists(CALLS, max_size=80), sizes=TIGHT)
def test_no_event_is_lost_unseen(program: Path, lines: list[Line], sizes: tuple[int, ...]) -> None:
    """
    With memory for a few events, identifiers and bytes: what arrives stands in the order of the calls, in its own block, and
    with what is counted it is all that the runtime ended. What is counted is told to the bridge.
    """
    expected = Expected(lines)
    heard, counted = play(program, lines, sizes)
    told = Counter({reason: events for reason, events in heard.drops.items() if events})
    assert told == counted
    ended = sum(len(block.rows) for block in expected.blocks.values()) + expected.drops.total()
    assert len(heard.rows) + counted.total() == ended
    for position, block in heard.blocks.items():
        left = iter(expected.blocks[position].rows)
        assert all(row in left for row in block.rows)  # a subsequence
        assert (block.kind, block.name) == (expected.blocks[position].kind, expected.blocks[position].name)


def test_an_inference_says_what_the_app_said(program: Path) -> None:
    """Method, trace context, attributes and error stand in the block; the context ends with its inference, the method stays."""
    heard, _ = play(
        program,
        [
            ("M", "decode"),
            ("T", TRACEPARENT, "vendor=1"),
            ("A", "device.thermal", "hot"),
            ("B", "Default"),
            ("B", "Execute"),
            ("X", 0x20),
            ("B", "Execute"),
        ],
    )
    load, first, second = (heard.blocks[position] for position in range(3))
    context = f"{TRACEPARENT[3:35]} {TRACEPARENT[36:52]} vendor=1"
    assert (load.kind, load.method, load.context) == (BlockKind.LOAD, None, context)
    assert (first.method, first.context, first.error, first.run_index) == ("decode", context, 0x20, 0)
    assert first.attributes == (("device.thermal", "hot"),)
    assert (second.method, second.context, second.error, second.attributes) == ("decode", None, None, ())


def test_a_table_of_identifiers_fills_once(program: Path) -> None:
    """Identifiers beyond the table's size are dropped and counted; those that are in it are found for ever."""
    lines: list[Line] = [("B", "Execute")]
    for number in range(2000):
        lines += [("L", f"op {number}", -1, 1, 2, None), ("L", "op 0", -1, 1, 2, None)]
        lines += [("O",)] if number % 500 == 0 else []
    heard, counted = play(program, lines)
    assert counted == {"identifiers_full": 2000 - 512}
    assert len(heard.rows) == 2000 + 512
    assert {row[1] for row in heard.rows} == {f"op {number}" for number in range(512)}


def test_an_inference_without_room_is_lost_whole(program: Path) -> None:
    """Where a block finds no room for its beginning, its events are counted as `ring_full`, and land in no other block."""
    lines: list[Line] = []
    for number in range(20):
        lines += [("B", "Execute"), *[("L", None, number, 1, 2, None)] * 2]
    heard, counted = play(program, lines, (65536, 16, *ROOMY[2:]))
    assert counted == {"ring_full": 40 - len(heard.rows)}
    assert 0 < len(heard.rows) < 20
    assert all(row[1] == position for position, block in heard.blocks.items() for row in block.rows)


def test_a_full_ring_is_never_overrun(program: Path) -> None:
    """Blocks that begin and end while the ring is as full as it gets write over nothing: what is in it arrives."""
    runtime: list[Line] = [("S", 0, "Method::execute", -1, 0), ("E", 0)]
    lines: list[Line] = [("B", "Execute"), *runtime * 20, *[("B", "Execute"), *runtime, ("X", 0)] * 5]
    heard, counted = play(program, lines, (65536, 16, *ROOMY[2:]))
    assert [len(block.rows) for block in heard.blocks.values()] == [14]
    assert heard_of(heard)[0].rows == Expected(lines).blocks[0].rows[:14]
    assert counted == {"ring_full": 25 - 14}


def test_a_full_ring_loses_details_first(program: Path) -> None:
    """While the ring is full, `Method::execute` still finds room, for as many inferences as the reserve can hold."""
    lines: list[Line] = []
    for _ in range(20):
        lines += [("B", "Execute"), ("S", 0, "Method::execute", -1, 0), *[("L", None, 1, 1, 2, None)] * 40, ("E", 0), ("X", 0)]
    heard, _ = play(program, lines, (65536, 512, *ROOMY[2:]))
    kept = [len(block.rows) for block in heard.blocks.values()]
    assert kept[0] == 41
    assert kept[-5:] == [1] * 5
    assert all(block.rows[-1][1] == "Method::execute" for block in heard.blocks.values())


def test_metadata_waits_whole_for_its_drain(program: Path) -> None:
    """What does not fit into the arena is dropped and counted; what is in it is not overwritten, also where the arena wraps."""
    lines: list[Line] = [("B", "Execute")]
    for number in range(200):
        lines += [("L", None, number, 1, 2, bytes([number]) * (1 + number % 50)), *([("O",)] if number % 20 == 19 else [])]
    heard, counted = play(program, lines, (65536, 512, 256, 64, 256, 0, 64))
    assert counted == {"metadata_full": 200 - len(heard.rows)}
    assert 20 < len(heard.rows) < 180
    assert [row[6] for row in heard.rows] == [
        bytes([row[1]]) * (1 + row[1] % 50) for row in heard.rows if isinstance(row[1], int)
    ]


@pytest.mark.parametrize("context_bytes", [0, 60])
def test_a_part_remembers_its_block_and_nothing_else(program: Path, context_bytes: int) -> None:
    """Each part of an inference has the name and context of its block, however little room a context has; texts stay whole."""
    trace: list[Line] = [("T", TRACEPARENT, None)]
    lines: list[Line] = [*trace, ("B", "n" * 70), ("L", "conv", -1, 1, 2, None), ("O",), ("L", "conv", -1, 3, 4, None), ("O",)]
    heard, counted = play(program, lines, (0, 16, 2, 16, 256, context_bytes, 4))
    assert counted == {}
    (block,) = heard.blocks.values()
    assert (block.name, [row[1] for row in block.rows]) == ("n" * 64, ["conv", "conv"])
    assert (block.context is not None) == (context_bytes == 60)
    assert len(heard.bodies) == 3


def test_parts_that_wait_count_once(program: Path) -> None:
    """Polls between the events of an inference that already goes in parts change no occurrence, whatever its size in bytes."""
    lines: list[Line] = [("B", "Execute"), ("H", 0, 3), ("S", 0, "DELEGATE_CALL", 0, 3), ("E", 0), ("O",)]
    for _ in range(150):
        lines += [("S", 0, "DELEGATE_CALL", 0, 3), ("E", 0), ("P",)]
    heard, counted = play(program, lines)
    assert counted == {}
    assert len(heard.rows) == 151


def test_equal_metadata_is_sent_once(program: Path) -> None:
    """A request holds each byte string of metadata once, wherever the arena wraps."""
    lines: list[Line] = [("B", "Execute")]
    for number in range(300):
        lines += [("L", None, number % 3, 1, 2, b"m" * 50 + bytes([number % 3])), *([("O",)] if number % 40 == 39 else [])]
    heard, counted = play(program, lines, (65536, 4096, 512, 1 << 16, 4096, 1024, 512))
    assert counted == {}
    assert all(body.count(b"m" * 50) <= 3 for body in heard.bodies)
    assert len({row[6] for row in heard.rows}) == 3


def test_a_long_inference_goes_in_parts(program: Path) -> None:
    """An inference larger than a request is cut into parts whose requests are full; the inferences around it stay whole."""
    logged: list[Line] = [("L", None, k, 5, 9, b"m" * 9 + bytes([k])) for k in range(60)]
    call: list[Line] = [("S", 0, "DELEGATE_CALL", 0, 3), *logged, ("E", 0)]
    lines: list[Line] = []
    for calls in (1, 40, 1):
        lines += [("B", "Execute"), ("H", 0, 3), *call * calls, ("X", 0)]
    heard, counted = play(program, lines, (3600, *ROOMY[1:]))
    assert counted == {}
    assert heard_of(heard) == Expected(lines).blocks
    sizes = [len(body) for body in heard.bodies]
    assert len(sizes) > 10
    assert max(sizes) <= 3600
    assert min(sizes[1:-2]) > 2000  # of the inference in parts, but for its last
