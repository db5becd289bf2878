"""The tables of docs/security.md are those of the code."""

import ast
import re

import pytest
from support.engines import ROOT
from support.pages import table

from otel_bridge.auth.rates import BYTES, EVENTS
from otel_bridge.auth.token import State
from otel_bridge.auth.web_token import _REASONS
from otel_bridge.config.bridge import SETTINGS
from otel_bridge.wire.access import ACCESS

PAGE = "docs/security.md"


def test_what_needs_what() -> None:
    """The table has each RPC and route with the scope that it needs, in the order of the code."""
    told = [(row["RPC or route"], row["needs"]) for row in table(PAGE, "RPC or route", "needs")]
    assert told == [(what, scope or "nothing") for what, scope in ACCESS.items()]


def test_reasons_of_refusals() -> None:
    """The table has each reason that the gate may give, and no other."""
    gate = ast.parse((ROOT / "otel_bridge" / "auth" / "gate.py").read_text())
    given = {State.EXPIRED.value, State.REVOKED.value}
    for call in (node for node in ast.walk(gate) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
        position = {"Refusal": 1, "_invalid": 0}.get(call.func.id) if isinstance(call.func, ast.Name) else None
        reason = call.args[position] if position is not None else None
        if isinstance(reason, ast.Constant):
            given.add(str(reason.value))
    tokens = ast.parse((ROOT / "otel_bridge" / "auth" / "web_token.py").read_text())
    for call in (node for node in ast.walk(tokens) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
        if isinstance(call.func, ast.Name) and call.func.id == "Unfit" and isinstance(call.args[0], ast.Constant):
            given.add(str(call.args[0].value))
    given |= {reason for _, reason in _REASONS} | {f"{what}_quota" for what in (EVENTS, BYTES)}
    assert len(given) > 5
    assert {row["refused for"] for row in table(PAGE, "refused for", "means")} == given


BOUNDS = table(PAGE, "what", "is bounded by", "shown by")
SHOWN = re.compile(r"(tests/[\w/]+\.py)` `(test_\w+)")


def test_bounds_are_settings() -> None:
    """What the page says to be bounded is bounded by settings that exist."""
    named = {name for row in BOUNDS for name in re.findall(r"\w+\.\w+", row["is bounded by"])}
    assert len(named) > 20
    assert named <= SETTINGS


@pytest.mark.parametrize("row", BOUNDS, ids=lambda row: row["what"])
def test_each_bound_is_shown_by_a_test(row: dict[str, str]) -> None:
    """Behind each bound stands a test, which is there."""
    shown = SHOWN.fullmatch(row["shown by"])
    assert shown is not None
    tree = ast.parse((ROOT / shown[1]).read_text())
    assert shown[2] in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
