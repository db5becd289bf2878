"""docs/bad-input.md: each outcome is shown by a test that exists; what no other test shows is shown here."""

import ast
import json
import re

import pytest
from support.delegate_runs import logged, run_delegate
from support.engines import ROOT
from support.etdump_writer import ProfileEvent, RunData, write_etdump
from support.spans import resolve_dump

from otel_bridge.cli.cells import cell
from otel_bridge.mapping.source import read_source
from otel_bridge.metadata.decoder import MAX_RAW_BYTES

PAGE = "docs/bad-input.md"
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)` `(test_\w+)`", (ROOT / PAGE).read_text())))

LONG = "conv_" * 60
CONTROL = "\x1b[31mred\x00\r\n\x7f"


@pytest.mark.parametrize(("file", "test"), NAMED)
def test_what_the_page_names_is_a_test(file: str, test: str) -> None:
    """Each test that stands behind an outcome is there."""
    tree = ast.parse((ROOT / file).read_text())
    assert test in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_row_names_a_test() -> None:
    """No outcome of the page stands there without one; the rows of times are cases of one test, which the page names."""
    tables = [part for part in (ROOT / PAGE).read_text().split("\n\n") if "| shown by |" in part]
    assert tables
    for row in (row for each in tables for row in each.splitlines()[2:]):
        assert re.search(r"`tests/[\w/]+\.py` `test_\w+` \|$", row), row
    assert ("tests/clock/test_bad_times.py", "test_the_outcome_is_as_the_page_says") in NAMED


def test_ten_megabytes_of_metadata_cost_an_attribute() -> None:
    """The beginning stays in hex, with the true size; handles and times stay."""
    run = run_delegate("Toy", [logged(1, 200, 300, b'{"a":"' + b"x" * 10_000_000 + b'"}')], entries={1: [2]})
    said = run.said(1, "delegate.metadata", "debug_handles", "resolution")
    assert str(said.pop("delegate.metadata_error")).startswith("10000008 bytes, over the limit of 1048576")
    assert said.pop("delegate.metadata_raw") == (b'{"a":"' + b"x" * (MAX_RAW_BYTES - 6)).hex()
    assert said == {"debug_handles": (2,), "resolution.status": "exact"}
    assert run.times(1) == (200, 300)


@pytest.mark.parametrize(("identifier", "name"), [("-1", "-1"), ("2147483648", "2147483648"), (LONG, None), (CONTROL, CONTROL)])
def test_identifiers_at_the_edge_are_taken_as_they_are(identifier: str, name: str | None) -> None:
    """They resolve as whole texts, and are escaped where somebody reads them in a terminal."""
    mapped = run_delegate("Toy", [logged(identifier, 200, 300)], entries={identifier: [2]})
    assert mapped.said(identifier, "resolution", "debug_handles") == {"debug_handles": (2,), "resolution.status": "exact"}
    unmapped = run_delegate("Toy", [logged(identifier, 200, 300)], entries={"other": [2]})
    span = unmapped.events[identifier]
    assert span.name == (LONG[:254] + "…" if name is None else name)
    assert cell(identifier).plain.isprintable()


def maps(entries: dict[str, object]) -> bytes:
    """Maps JSON with one delegate call that has handles 1 to 3."""
    call = {"name": "Toy", "delegate_map": entries}
    return json.dumps({"debug_handle_map": {"forward": {"0": [1, 2, 3]}}, "delegate_map": {"forward": {"0": call}}}).encode()


def said_of(entries: dict[str, object], identifier: str) -> tuple[str, dict[str, object]]:
    """Name, and what the span says of handles, operators and status, of an event with maps JSON alone."""
    events = [
        ProfileEvent(chain=0, instruction=0, id_str=identifier, start=200, end=300),
        ProfileEvent(name="DELEGATE_CALL", chain=0, instruction=0, start=100, end=900),
        ProfileEvent(name="Method::execute", chain=-1, instruction=0, start=0, end=1000),
    ]
    resolved = resolve_dump(write_etdump([RunData("Execute", events)]), read_source(maps(entries)))
    (span,) = [span for span in resolved.spans if "executorch.delegate.debug_id" in span.attributes]
    keys = ("executorch.debug_handles", "executorch.operator.names", "executorch.resolution.status")
    return span.name, {key.removeprefix("executorch."): span.attributes[key] for key in keys if key in span.attributes}


@pytest.mark.parametrize(
    ("value", "handles"), [([], ()), ([None, 0], ()), ([3, 1, 2], (1, 2, 3)), ([2, 2, None, 0, 1, 2], (1, 2))]
)
def test_values_of_a_map(value: list[object], handles: tuple[int, ...]) -> None:
    """Empty, unset, not in order, repeated: the entry is found all the same."""
    _, said = said_of({"a": value}, "a")
    assert said == {"resolution.status": "exact"} | ({"debug_handles": handles} if handles else {})


def test_handles_without_an_operator_stay() -> None:
    """Maps JSON has no operators: the handles are known, and the name is the identifier's."""
    assert said_of({"conv #1": [2]}, "conv #1") == ("conv", {"debug_handles": (2,), "resolution.status": "exact"})
