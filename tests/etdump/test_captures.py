"""Real captures, against what ExecuTorch's own deserializer says of them (the .json beside each .etdp)."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from otel_bridge.etdump.result import ETDump
from otel_bridge.model.events import NO_INSTRUCTION, BlockKind, EventKind

CAPTURES = sorted((Path(__file__).parents[1] / "fixtures").glob("*/*.etdp"))
CALLS = {"OPERATOR_CALL", "DELEGATE_CALL"}
"""The instructions that occur in the captures."""


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_capture_reads_as_executorch_reads_it(capture: Path, read_etdump: Callable[[bytes], ETDump]) -> None:
    """Names, kinds, chains, instructions, identifiers, metadata and times of every event are those that ExecuTorch reads."""
    runs = json.loads(capture.with_suffix(".json").read_text())["run_data"]
    dump = read_etdump(capture.read_bytes())
    batch = dump.batch

    assert [(block.name, block.position) for block in batch.blocks] == [(run["name"], n) for n, run in enumerate(runs)]
    assert {block.kind for block in batch.blocks} <= {BlockKind.LOAD, BlockKind.EXECUTE}
    profile = [[event["profile_event"] for event in run["events"] if event["profile_event"]] for run in runs]
    assert batch.bounds.tolist() == [sum(map(len, profile[:n])) for n in range(len(runs) + 1)]

    expected = [_expect(event) for run in profile for event in run]
    ends = (batch.start + batch.duration).tolist()
    rows = zip(batch.kind, batch.chain, batch.instruction, batch.name, batch.metadata, batch.start, ends, strict=True)
    assert [
        (kind, int(chain), int(instruction), batch.names[name], batch.payloads[metadata], int(start), end)
        for kind, chain, instruction, name, metadata, start, end in rows
    ] == expected

    debug = sum(event["debug_event"] is not None for run in runs for event in run["events"])
    assert dump.rejected == ({"debug_event": debug} if debug else {})


def test_captures_cover_what_the_laws_speak_of() -> None:
    """The captures hold int and str identifiers, binary metadata, debug events, and several methods."""
    texts = [capture.with_suffix(".json").read_text() for capture in CAPTURES]
    assert len(CAPTURES) >= 19
    assert any('"delegate_debug_id_int": 999' in text for text in texts)
    assert any('"delegate_debug_id_str": "toy::unmapped#1"' in text for text in texts)
    assert any('"debug_event": {' in text for text in texts)


def _expect(event: dict[str, Any]) -> tuple[EventKind, int, int, int | str, bytes, int, int]:
    inside = event["chain_index"] != -1
    identifier = event["delegate_debug_id_int"] if event["delegate_debug_id_int"] != -1 else event["delegate_debug_id_str"]
    if identifier is not None:
        kind = EventKind.DELEGATE
    elif not inside:
        kind = EventKind.RUNTIME
    else:
        kind = EventKind.CALL if event["name"] in CALLS else EventKind.SCOPE
    return (
        kind,
        event["chain_index"] if inside else 0,
        event["instruction_id"] if inside else NO_INSTRUCTION,
        event["name"] if identifier is None else identifier,
        bytes(event["delegate_debug_metadata"] or []),
        event["start_time"],
        event["end_time"],
    )
