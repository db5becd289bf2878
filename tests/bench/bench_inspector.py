"""
Reading and resolving an ETDump: the bridge against ExecuTorch's Inspector with its ETRecord, in one process, on the same file.

The bridge reads the file, resolves it and makes OTLP bytes of it; the Inspector is constructed, which reads and resolves.
"""

import contextlib
import logging
import warnings
from pathlib import Path

from loads import prepare
from rounds import USUAL, Effort, Figure, ratio, spread, take_turns
from support.engines import EngineMissing, executorch

from otel_bridge.etdump.read import read
from otel_bridge.model.stream import ModelRef, Stream
from otel_bridge.spans.assemble import assemble

FOLDER = Path(__file__).parents[1] / "fixtures" / "xnnpack"
GOAL = 30


def main(effort: Effort = USUAL) -> list[Figure]:
    """Nanoseconds of CPU an event, of a capture of 1,002 events."""
    try:
        executorch()
    except EngineMissing as missing:
        print(f"  skipped: {missing}")
        return []
    logging.disable(logging.WARNING)  # the Inspector warns of each event that it does not find
    with warnings.catch_warnings(), contextlib.redirect_stdout(None):
        warnings.simplefilter("ignore")
        from executorch.devtools import Inspector  # noqa: PLC0415 - not every machine has it

        batch, stages = prepare("xnnpack", "run100.etdp")
        dump, record = FOLDER / "run100.etdp", FOLDER / "model.etrecord"
        build = batch.streams[0].build

        def ours() -> None:
            stream = Stream(stream_id=bytes(range(16)), model=ModelRef("xnnpack", "1"), build=build, ended_ns=10**18)
            list(assemble(stages.run(read(dump.read_bytes(), stream).batch), 1 << 20))

        subjects = {"bridge": ours, "Inspector": lambda: Inspector(etdump_path=str(dump), etrecord=str(record))}
        took = take_turns(subjects, len(batch), effort.rounds(5))
    logging.disable(logging.NOTSET)
    faster = ratio(took["Inspector"], took["bridge"])
    print(
        f"  ns per event, median (min..max), {len(batch)} events   bridge {spread(took['bridge'])}   "
        f"Inspector {spread(took['Inspector'])}   {faster:.0f} times   goal {GOAL}: {'met' if faster >= GOAL else 'NOT met'}"
    )
    return [Figure(name, "ns/event", values) for name, values in took.items()]
