"""
Ask ExecuTorch's Inspector about ETDumps.

Usage: inspect_dumps.py JOBS.json ANSWERS.json
A job is {"dump", "record" or null, "target": "ns" or "ms"}; its answer is {"error": text} or {"blocks": [...]}.
What is said of an event is what the Inspector's own objects hold; nothing is computed here.

A program of its own: importing torch takes seconds, and what it warns of is no business of the tests.
"""

import json
import logging
import sys
import warnings
from pathlib import Path
from typing import Any

from executorch.devtools import Inspector
from executorch.devtools.inspector import Event, TimeScale

SCALES = {"ns": TimeScale.NS, "ms": TimeScale.MS}


def describe(event: Event) -> dict[str, Any]:
    """One event, in the Inspector's words."""
    return {
        "name": event.name,
        "identifier": event.delegate_debug_identifier,
        "instruction": event._instruction_id,
        "delegated": event.is_delegated_op,
        "raw": event.perf_data.raw if event.perf_data is not None else None,
        "p50": event.perf_data.p50 if event.perf_data is not None else None,
        "start_time": event.start_time,
        "handles": event.debug_handles,
        "operators": event.op_types,
        "backend": event.delegate_backend_name,
        "traces": event.stack_traces,
        "modules": {node: [[*each] for each in (stack or {}).values()] for node, stack in event.module_hierarchy.items()},
        "metadata": [each if isinstance(each, str) else bytes(each).hex() for each in event.raw_delegate_debug_metadatas or ()],
        "values": len(event.debug_data),
        "shown_operators": event.asdict()["op_types"],
    }


def answer(job: dict[str, Any]) -> dict[str, Any]:
    """What the Inspector makes of one dump, or the error that it raises."""
    try:
        inspector = Inspector(etdump_path=job["dump"], etrecord=job["record"], target_time_scale=SCALES[job["target"]])
    except Exception as error:  # noqa: BLE001 - whatever it raises is the answer
        return {"error": f"{type(error).__name__}: {error}"}
    blocks = [{"name": block.name, "events": [describe(event) for event in block.events]} for block in inspector.event_blocks]
    return {"blocks": blocks}


def main(jobs: str, answers: str) -> None:
    """Answer every job, in order."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    Path(answers).write_text(json.dumps([answer(job) for job in json.loads(Path(jobs).read_text())]))


if __name__ == "__main__":
    main(*sys.argv[1:])
