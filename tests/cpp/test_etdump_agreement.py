"""RingTracer against ExecuTorch's ETDumpGen: the same calls, the same clock, the same columns."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.cpp import SOURCES, build, run
from support.cpp_scripts import Line, Row, received, rows_of, script_of, undelimited

from otel_bridge.etdump.read import read
from otel_bridge.model.events import EventKind
from otel_bridge.model.stream import Stream

pytestmark = pytest.mark.timeout(300)  # compilers take their time on machines that have other work

MODELS = {"xnnpack": "forward", "mixed_ops": "forward", "portable_only": "forward", "multi_method": "decode"}


@pytest.fixture(scope="module")
def compare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """tests/cpp/src/compare.cpp."""
    return build(tmp_path_factory.mktemp("compare"), [SOURCES / "compare.cpp"], wheel=True)


def blocks_of_both(folder: Path) -> tuple[list[tuple[str, list[Row]]], list[tuple[str, list[Row]]], int, int]:
    """Name and events of each block, as ETDumpGen wrote it and as the bridge hears it from RingTracer; the bytes of both."""
    dump = (folder / "dump").read_bytes()
    theirs = read(dump, Stream(stream_id=b"\x01" * 16))
    assert not theirs.rejected
    requests = (folder / "requests").read_bytes()
    ours = received(undelimited(requests))
    assert not ours.drops
    return (
        [(block.name, rows_of(theirs.batch, index)) for index, block in enumerate(theirs.batch.blocks)],
        [(block.name, block.rows) for _, block in sorted(ours.blocks.items())],
        len(dump),
        len(requests),
    )


TEXTS = st.sampled_from(["Method::execute", "OPERATOR_CALL", "JF_CALL", "native_call_add.out", "conv #1", "conv #2", "é"])
IDENTIFIERS = st.one_of(st.tuples(st.none(), st.sampled_from([0, 7, -2, 2**31 - 1])), st.tuples(TEXTS, st.just(-1)))
TICKS = st.integers(0, 2**64 - 1)
METADATA = st.none() | st.binary(max_size=20)
CHAINS = st.sampled_from([-1, 0, 0, 1, 255])
HANDLES = st.sampled_from([0, 1, 2**31 - 1])
NAMED = st.builds(lambda key, name, chain, handle: ("S", key, name, chain, handle), st.integers(0, 2), TEXTS, CHAINS, HANDLES)
LOGGED = st.builds(
    lambda identifier, start, end, metadata: ("L", *identifier, start, end, metadata), IDENTIFIERS, TICKS, TICKS, METADATA
)
SOUND = st.one_of(
    st.tuples(st.just("B"), st.sampled_from(["Execute", "Default", "Warm-up"])),
    NAMED,
    st.tuples(st.just("E"), st.integers(0, 2)),
    st.builds(lambda key, identifier: ("D", key, *identifier), st.integers(3, 5), IDENTIFIERS),
    st.tuples(st.just("F"), st.integers(3, 5), METADATA),
    LOGGED,
    st.tuples(st.just("H"), CHAINS, HANDLES),
)


def started(lines: list[Line]) -> list[Line]:
    """The calls that ETDumpGen survives: each end after its start, and all after a block."""
    known: set[object] = set()
    kept: list[Line] = [("B", "Execute")]
    for line in lines:
        if line[0] in {"S", "D"}:
            known.add(line[1])
        if line[0] not in {"E", "F"} or line[1] in known:
            kept.append(line)
    return kept


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(lines=st.lists(SOUND, max_size=50).map(started))
def test_any_calls_are_recorded_as_etdump_records_them(
    compare: Path, lines: list[Line], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Block by block and event by event, columns are those of ETDumpGen's file, times and metadata included."""
    folder = tmp_path_factory.mktemp("calls")
    run(compare, "script", folder / "dump", folder / "requests", stdin=script_of(lines))
    theirs, ours, _, _ = blocks_of_both(folder)
    assert ours == theirs


@pytest.mark.parametrize("model", MODELS)
def test_a_model_is_recorded_as_etdump_records_it(model: str, compare: Path, fixtures: Path, tmp_path: Path) -> None:
    """What the real runtime and XNNPACK say while a model runs is the same in both; loading is a block of its own."""
    run(compare, "model", tmp_path / "dump", tmp_path / "requests", fixtures / model / "model.pte", MODELS[model], 3)
    theirs, ours, _, _ = blocks_of_both(tmp_path)
    assert ours == theirs
    assert [name for name, _ in ours] == ["Default", "Execute", "Execute", "Execute"]
    assert all(rows for _, rows in ours)


def test_an_event_of_xnnpack_costs_at_most_16_bytes(compare: Path, fixtures: Path, tmp_path: Path) -> None:
    """A hundred inferences of the XNNPACK model take at most 16 bytes an event on the wire, all told; an ETDump takes more."""
    run(compare, "model", tmp_path / "dump", tmp_path / "requests", fixtures / "xnnpack" / "model.pte", "forward", 100)
    _, ours, dump_bytes, request_bytes = blocks_of_both(tmp_path)
    events = sum(len(rows) for _, rows in ours)
    assert events > 900
    assert sum(row[0] is EventKind.DELEGATE for _, rows in ours for row in rows) > 700
    assert request_bytes <= 16 * events < dump_bytes
