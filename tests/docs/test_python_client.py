"""docs/python-client.md says what the client is: settings, arguments, reasons, and the counts of its account."""

import ast
import inspect
import re
from dataclasses import fields

from support.engines import ROOT
from support.pages import table

from otel_bridge import client
from otel_bridge.client import BridgeClient, ClientSettings, ClientStats, Connection, EventTracer, Reason, profile_program

PAGE = "docs/python-client.md"
HEADER = "runtime/core/event_tracer.h"


def test_settings() -> None:
    """The table has each setting, with its default, its unit and its meaning, in the order of the code."""
    told = table(PAGE, "setting", "default", "unit", "meaning")
    assert [tuple(row.values()) for row in told] == [
        (each.name, str(each.default), each.metadata["unit"], each.metadata["meaning"]) for each in fields(ClientSettings)
    ]


def test_arguments_of_a_connection() -> None:
    """The table has the arguments that a client hands to its connection, with their defaults."""
    of_connection, of_client = (inspect.signature(each).parameters for each in (Connection, BridgeClient))
    told = [(row["argument"], row["default"]) for row in table(PAGE, "argument", "default", "meaning")]
    expected = [each for name, each in of_connection.items() if name in of_client]
    assert told == [(each.name, "-" if each.default is each.empty else str(each.default)) for each in expected]


def test_reasons_of_drops() -> None:
    """The table has each reason, and each reason has a place in the code where it is given."""
    reasons = {name: value for name, value in vars(Reason).items() if name.isupper()}
    assert {row["reason of a drop"] for row in table(PAGE, "reason of a drop", "when")} == set(reasons.values())
    given = {
        node.attr
        for path in (ROOT / "otel_bridge" / "client").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Reason"
    }
    assert given == set(reasons)


def test_the_methods_of_a_tracer() -> None:
    """The table names each public method of the tracer, but for those that its page tells of in text."""
    told = " ".join(" ".join(row.values()) for row in table(PAGE, "method", f"of ExecuTorch's `EventTracer` (`{HEADER}`)"))
    public = {name for name, value in vars(EventTracer).items() if not name.startswith("_") and callable(value)}
    assert {name for name in public if name not in told} == {"close", "current_ticks"}


def test_what_the_text_names() -> None:
    """Counts of the account, defaults of `profile_program`, and the parts of the front door stand in the page as they are."""
    page = (ROOT / PAGE).read_text()
    named = set(re.findall(r"\w+", page))
    assert {each.name for each in fields(ClientStats)} | set(client.__all__) <= named
    defaults = {each.name: each.default for each in inspect.signature(profile_program).parameters.values()}
    assert f"`every` executions ({defaults['every']})" in page
    assert f"`every_s` ({defaults['every_s']:g} seconds)" in page
