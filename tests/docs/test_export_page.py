"""docs/export.md says what the tests show: each row of its table of outcomes has one."""

import ast
import re

import pytest
from grpc import StatusCode
from support.engines import ROOT
from support.pages import table

from otel_bridge.config.egress import ExportConfig
from otel_bridge.export.otlp_grpc import VERDICTS, Verdict

PAGE = "docs/export.md"

PROVED = {
    "takes the spans": "export/test_status_tables.py test_http_success",
    "is away": "e2e/test_egress.py test_away_then_back",
    "asks for patience": "e2e/test_egress.py test_asks_for_patience",
    "fails for the moment": "export/test_status_tables.py test_grpc_codes",
    "is slow": "e2e/test_egress.py test_slow",
    "never answers": "e2e/test_egress.py test_never_answers",
    "resets after it has taken the spans": "e2e/test_egress.py test_resets_after_committing",
    "rejects a part": "e2e/test_egress.py test_rejects_a_part",
    "finds a request too large": "e2e/test_egress.py test_rejects_by_size",
    "has no room and names no time": "export/test_isolate.py test_exhausted_parts_are_not_halved_for_ever",
    "refuses one span for good": "e2e/test_egress.py test_refuses_one_span",
    "refuses everything for good": "e2e/test_egress.py test_refuses_everything",
    "takes all requests but one": "export/test_retry.py test_a_request_that_is_stuck_while_others_pass_is_given_up",
    "has a wrong or expired certificate": "e2e/test_egress_tls.py test_certificates_come_and_go",
    "has a certificate of a new authority, or asks for a new one": "e2e/test_egress_tls.py test_certificates_come_and_go",
    "moves to another address": "export/test_addresses.py test_a_back_end_that_is_gone_is_found_where_it_is_now",
    "redirects": "export/test_status_tables.py test_redirects_are_not_followed",
}
"""Row of the table of outcomes -> the test that shows it."""


def outcomes() -> list[dict[str, str]]:
    return table(PAGE, "back end", "over gRPC", "over HTTP", "the bridge", "counted")


def test_each_outcome_is_proved() -> None:
    """The table has the rows that tests show, in this order, and the tests exist."""
    assert [row["back end"] for row in outcomes()] == list(PROVED)
    for place in PROVED.values():
        file, name = place.split()
        defined = {node.name for node in ast.walk(ast.parse((ROOT / "tests" / file).read_text())) if hasattr(node, "name")}
        assert name in defined, place


@pytest.mark.parametrize("code", VERDICTS, ids=lambda code: code.name)
def test_each_code_has_its_row(code: StatusCode) -> None:
    """Each gRPC code stands in rows of its verdict: in those that send again, or in those that do not."""
    again = {"is away", "asks for patience", "fails for the moment"}
    rows = {row["back end"] for row in outcomes() if re.search(rf"\b{code.name}\b", row["over gRPC"])}
    assert bool(rows & again) == (VERDICTS[code] in {Verdict.RETRY, Verdict.RETRY_IF_TOLD})
    assert rows - again or VERDICTS[code] is Verdict.RETRY


def test_settings_exist() -> None:
    """Each word in code on the page that looks like a setting of `export` is one, with the default that stands behind it."""
    text = (ROOT / PAGE).read_text()
    named = set(re.findall(r"`((?:retry|connection|dead_letter|token|client)_\w+|certificate|compression|timeout_ms)`", text))
    assert {name for name in named if name not in ExportConfig.model_fields} == set()
    assert {f"retry_{end}" for end in ("initial_s", "max_s", "max_elapsed_s", "max_stuck_s")} <= named
    defaults = {
        "dead_letter_bytes": f"({ExportConfig().dead_letter_bytes >> 20} MiB)",
        "connection_max_age_s": f"({ExportConfig().connection_max_age_s:g} s)",
    }
    for name, shown in defaults.items():
        assert f"`{name}` {shown}" in text
