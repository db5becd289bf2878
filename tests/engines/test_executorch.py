"""The reader of ETDumps against ExecuTorch itself: fresh dumps of the real runtime, read by both."""

import json
import subprocess
from pathlib import Path

import pytest
from support.engines import SOURCES, require

from otel_bridge.etdump.read import read
from otel_bridge.model.events import CALL_NAMES, NO_INSTRUCTION, BlockKind, EventKind, Identifier
from otel_bridge.model.stream import Stream

EXECUTIONS = 3
MODELS = {"xnnpack": 1, "mixed_ops": 1, "multi_method": 2}
"""Models that the wheel's runtime can run, and the number of their methods."""

Said = tuple[int | str, EventKind, int, int, int, int, bytes]


def as_the_model_has_it(event: list[object]) -> Said:
    """An event of ExecuTorch's deserializer in the words of `EventBatch`: no sentinels, a kind, a duration."""
    name, id_number, id_text, chain, instruction, start, end, metadata = event
    identifier: Identifier
    if name is not None:
        identifier = str(name)
        kind = EventKind.RUNTIME if chain == -1 else EventKind.CALL if name in CALL_NAMES else EventKind.SCOPE
    else:
        identifier, kind = (str(id_text) if id_number == -1 else int(id_number)), EventKind.DELEGATE
    inside = chain != -1
    return (
        identifier,
        kind,
        int(instruction) if inside else NO_INSTRUCTION,
        int(chain) if inside else 0,
        int(start),
        int(end) - int(start),
        bytes(metadata),
    )


@pytest.fixture(scope="module")
def dumps(fixtures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a fresh dump of each model, and what ExecuTorch says of it."""
    folder = tmp_path_factory.mktemp("executorch")
    program = SOURCES / "executorch" / "run_models.py"
    models = [fixtures / model / "model.pte" for model in MODELS]
    command = [require("executorch"), program, str(EXECUTIONS), folder, *models]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.timeout(300)  # importing torch takes many seconds on a cold disk
@pytest.mark.parametrize("model", MODELS)
def test_a_fresh_dump_reads_as_executorch_reads_it(model: str, dumps: Path) -> None:
    """Block by block and event by event, `read` says what ExecuTorch's own deserializer says of a dump just made."""
    theirs = json.loads((dumps / f"{model}.json").read_text())
    ours = read((dumps / f"{model}.etdp").read_bytes(), Stream(stream_id=b"\x01" * 16))
    batch = ours.batch
    assert ours.rejected == {}
    assert [(block.name, block.position) for block in batch.blocks] == [(name, n) for n, (name, _) in enumerate(theirs)]
    assert sum(block.kind is BlockKind.EXECUTE for block in batch.blocks) == EXECUTIONS * MODELS[model]
    assert any(kind == EventKind.DELEGATE for kind in batch.kind)
    for number, (_, events) in enumerate(theirs):
        rows = range(batch.bounds[number], batch.bounds[number + 1])
        columns = (batch.kind, batch.instruction, batch.chain, batch.start, batch.duration)
        read_rows = [
            (batch.names[batch.name[row]], *(int(column[row]) for column in columns), batch.payloads[batch.metadata[row]])
            for row in rows
        ]
        assert read_rows == [as_the_model_has_it(event) for event in events]
