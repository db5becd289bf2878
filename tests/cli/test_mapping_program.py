"""`--pte` on the command line: nodes of XNNPACK join the mapping and resolve its events."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.captures import CAPTURES, node_handles
from support.mappings import FIXTURES

from otel_bridge.mapping.pte import read_program
from otel_bridge.mapping.source import read_source

RULE = "xnnpack.node_order"


@pytest.mark.parametrize("model", ["xnn_mobile", "xnn_transformer"])
def test_commands(model: str, cli: Callable[..., Any], tmp_path: Path) -> None:
    """`mapping build --pte`, then `replay` and `inspect`: handles, rule and operators arrive; the build id is the program's."""
    folder = FIXTURES / model
    mapping = tmp_path / "model.mapping"
    said = cli("mapping", "build", folder / "model.etrecord", "--pte", folder / "model.pte", "-o", mapping).out
    assert read_program((folder / "model.pte").read_bytes()).build_id in said
    assert " nodes" in said
    cli("replay", folder / "run.etdp", "--mapping", mapping, "--output", tmp_path / "spans.jsonl")
    statuses: dict[str, int] = {}
    for line in (tmp_path / "spans.jsonl").read_text().splitlines():
        for resource in json.loads(line)["resourceSpans"]:
            for span in resource["scopeSpans"][0]["spans"]:
                said_by = {attribute["key"]: attribute["value"] for attribute in span.get("attributes", [])}
                status = said_by.get("executorch.resolution.status", {}).get("stringValue")
                if status:
                    statuses[status] = statuses.get(status, 0) + 1
                if status == "derived":
                    assert said_by["executorch.resolution.rule"] == {"stringValue": RULE}
    capture = CAPTURES[f"{model}/run"]
    handles = node_handles(capture, read_source(mapping.read_bytes()).mapping)
    without = sum(not handle for handle in handles.values())
    assert statuses == {"derived": len(handles) - without} | ({"delegate": without} if without else {})
    rows = json.loads(cli("inspect", folder / "run.etdp", "--mapping", mapping, "--format", "json").out)
    assert {tuple(row["handles"]) for row in rows if row["status"] == "derived"} == {(h,) for h in handles.values() if h}


def test_program_alone_on_the_command_line(cli: Callable[..., Any], tmp_path: Path) -> None:
    """`mapping build MODEL.pte` needs nothing else; `--build-id` names the build where the devices have a name of their own."""
    program = FIXTURES / "multi_method" / "model.pte"
    said = cli("mapping", "build", program, "-o", tmp_path / "a.json", "--model", "net").out
    assert "2 methods, 3 delegate calls, 0 identifiers, 3 nodes" in said
    cli("mapping", "build", program, "-o", tmp_path / "b.json", "--build-id", "mine", "--pte", program)
    a, b = (read_source((tmp_path / name).read_bytes()) for name in ("a.json", "b.json"))
    assert (a.mapping, a.build_id, b.build_id) == (b.mapping, read_program(program.read_bytes()).build_id, "mine")


def test_foreign_program_on_the_command_line(cli: Callable[..., Any], tmp_path: Path) -> None:
    """A program of another model than the ETRecord is refused, and nothing is written."""
    etrecord, program = FIXTURES / "xnn_mobile" / "model.etrecord", FIXTURES / "xnn_transformer" / "model.pte"
    error = cli("mapping", "build", etrecord, "--pte", program, "-o", tmp_path / "x").error
    assert "methods[forward].instructions[0]" in error
    assert not (tmp_path / "x").exists()
