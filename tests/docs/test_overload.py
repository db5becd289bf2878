"""docs/overload.md says what the code has."""

import ast
import re

from support.engines import ROOT
from support.pages import table

from otel_bridge.config.bridge import SETTINGS
from otel_bridge.telemetry.instruments import INSTRUMENTS
from otel_bridge.wire import lookers
from otel_bridge.wire.grpc_door import LEAST_PING_S, MAX_STREAMS
from otel_bridge.wire.http_protocol import MAX_HEAD_BYTES, MAX_HEADERS, MAX_PIPELINED
from otel_bridge.wire.streams import MAX_AT_ONCE
from otel_bridge.wire.turnstile import RETRY_AFTER_S

PAGE = "docs/overload.md"


def rows() -> list[dict[str, str]]:
    """The table of bounds."""
    return table(PAGE, "setting", "bounds", "at the bound the sender", "an SRE sees")


def test_each_bound_is_a_setting() -> None:
    """Each row names a setting; those of `ingress` are all there."""
    told = [row["setting"] for row in rows()]
    assert set(told) <= SETTINGS
    assert {each for each in told if each.startswith("ingress.")} == {each for each in SETTINGS if each.startswith("ingress.")}


def test_what_is_seen_exists() -> None:
    """Each series that the page names is an instrument's, as /metrics writes it."""
    written = {each.name.replace(".", "_") for each in INSTRUMENTS}
    named = set(re.findall(r"otel_bridge_\w*[a-z]\b", (ROOT / PAGE).read_text()))
    for name in named - written:
        assert re.sub("(_total|_bytes)$", "", name) in written, name


def test_what_is_told_exists() -> None:
    """Each reason that the table names is the reason of an error that the doors raise."""
    source = "".join((ROOT / "otel_bridge" / name).read_text() for name in ("errors.py", "wire/turnstile.py"))
    given = {node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant)}
    reasons = {reason for row in rows() for reason in re.findall(r": `(\w+)`|outcome `(\w+)`", row["at the bound the sender"])}
    assert {each for pair in reasons for each in pair if each} <= given


def test_numbers_that_are_no_settings() -> None:
    """Bounds that nobody can set are told as the code has them."""
    text = " ".join((ROOT / PAGE).read_text().split())
    assert f"{MAX_STREAMS} calls at a time" in text
    assert f"every {LEAST_PING_S} s" in text
    assert f"of each call of health and reflection {lookers.MAX_OPEN} are open" in text
    assert f"at most {MAX_HEADERS} headers and trailers of {MAX_HEAD_BYTES >> 10} KiB" in text
    assert f"{MAX_PIPELINED} requests may wait behind" in text
    assert f"{MAX_AT_ONCE} requests of one are in work" in text
    assert f"in {RETRY_AFTER_S:g} to {1.5 * RETRY_AFTER_S:g} s" in text
