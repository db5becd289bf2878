"""The tables of reasons, why an event or a request was not taken or was given up, are those of the code."""

import ast
from pathlib import Path

from support.engines import ROOT
from support.pages import table

from otel_bridge import errors
from otel_bridge.etdump.result import Rejection
from otel_bridge.export.isolate import BOUNDS
from otel_bridge.export.protocol import PARTIAL_SUCCESS
from otel_bridge.spool.protocol import CORRUPT, REMOVED, TOO_OLD

PROTOCOL, OPERATIONS = "docs/protocol.md", "docs/operations.md"


def test_reasons_of_rejected_events() -> None:
    """The table has each reason for which an event of columns, or of a file, is not taken, and says of which it is."""
    rows = {row["reason"]: row["of"] for row in table(PROTOCOL, "reason", "of", "means")}
    of_columns, of_files = reasons_of_columns(), {rejection.value for rejection in Rejection}
    assert of_columns
    expected = {
        reason: "both" if reason in of_columns & of_files else "columns" if reason in of_columns else "files"
        for reason in of_columns | of_files
    }
    assert rows == expected


def test_reasons_of_refused_requests() -> None:
    """The table has the reason of each error that a peer may see."""
    told = [row["reason"] for row in table(PROTOCOL, "reason", "means")]
    own = {each.reason for each in vars(errors).values() if isinstance(each, type) and issubclass(each, errors.BridgeError)}
    # Those of classes that only others derive from, of the settings, of the way to the back end, and of clients are not told
    # to a peer.
    own -= {"rejected", "unavailable", "config", "export_rejected", "back_end_unavailable"}
    own -= {errors.BridgeRefused.reason, errors.BridgeUnavailable.reason}
    given = {
        keyword.value.value
        for room in ("auth", "wire", "etdump", "mapping", "spool")
        for call in calls_in(ROOT / "otel_bridge" / room)
        for keyword in call.keywords
        if keyword.arg == "reason" and isinstance(keyword.value, ast.Constant)
    }
    assert set(told) == own | given


def test_reasons_of_dropped_events() -> None:
    """The table has each reason for which an accepted event may be given up."""
    told = {row["reason"] for row in table(OPERATIONS, "reason", "when")}
    given = {
        call.args[1].value
        for room in ("pipeline", "app", "spool")
        for call in calls_in(ROOT / "otel_bridge" / room)
        if isinstance(call.func, ast.Attribute) and call.func.attr == "dropped" and isinstance(call.args[1], ast.Constant)
    }
    given |= {
        CORRUPT,
        REMOVED,
        TOO_OLD,
        errors.ExportRejected.reason,
        errors.BackEndUnavailable.reason,
        *BOUNDS,
        PARTIAL_SUCCESS,
    }
    assert told == given


def reasons_of_columns() -> set[str]:
    """The reasons that wire/columns.py gives to `reject`, and wire/names.py as second entry of what `_name` returns."""
    path, names = (ROOT / "otel_bridge" / "wire" / name for name in ("columns.py", "names.py"))
    rejected = {
        str(call.args[1].value)
        for call in calls_in(path)
        if isinstance(call.func, ast.Attribute) and call.func.attr == "reject" and isinstance(call.args[1], ast.Constant)
    }
    (name,) = [node for node in ast.parse(names.read_text()).body if isinstance(node, ast.FunctionDef) and node.name == "_name"]
    returned = {
        str(leaf.value)
        for node in ast.walk(name)
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple)
        for leaf in ast.walk(node.value.elts[1])
        if isinstance(leaf, ast.Constant) and leaf.value
    }
    return rejected | returned


def calls_in(place: Path) -> list[ast.Call]:
    """The calls in a file, or in all files of a folder."""
    files = sorted(place.rglob("*.py")) if place.is_dir() else [place]
    return [node for file in files for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call)]
