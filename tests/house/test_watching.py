"""Alert rules, the dashboard and the pages ask for what the bridge has: names and labels, as Prometheus sees them."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from support.engines import ROOT
from support.pages import PAGES, table

from otel_bridge.telemetry.instruments import INSTRUMENTS, Kind
from otel_bridge.telemetry.provider import Provider

SCRAPED = {"instance", "job", "le"}
"""Labels that every series has once it is scraped, and that of a histogram's buckets."""


def rules() -> list[dict[str, Any]]:
    """The rules for alerts."""
    (group,) = yaml.safe_load((ROOT / "deploy" / "alerts.yaml").read_text())["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def panels() -> list[dict[str, Any]]:
    """The panels of the dashboard."""
    found: list[dict[str, Any]] = json.loads((ROOT / "deploy" / "dashboard.json").read_text())["panels"]
    return found


def asked() -> Iterator[tuple[str, str]]:
    """Each question to Prometheus, with a text that shows its labels."""
    for rule in rules():
        yield rule["expr"], json.dumps(rule["annotations"])
    for panel in panels():
        for target in panel["targets"]:
            yield target["expr"], target["legendFormat"]


@pytest.fixture(scope="module")
def series() -> dict[str, set[str]]:
    """The labels of each series that /metrics may show."""
    provider = Provider(version="1")
    for each in INSTRUMENTS:
        labels = dict.fromkeys(each.labels, "x")
        if each.kind is Kind.COUNTER:
            provider.telemetry.add(each.name, 1, **labels)
        elif each.kind is Kind.HISTOGRAM:
            provider.telemetry.observe(each.name, 1, **labels)
        elif not each.name.startswith("otel_bridge.process."):
            provider.telemetry.watch(each.name, lambda: 1, **labels)
    families = text_string_to_metric_families(provider.exposition().decode())
    found = {sample.name: set(sample.labels) for family in families for sample in family.samples}
    provider.shutdown()
    return found


@pytest.mark.parametrize(("expression", "shown"), list(asked()))
def test_what_is_asked_for_exists(series: dict[str, set[str]], expression: str, shown: str) -> None:
    """Each metric of an expression is one that /metrics shows, and each label that it has is one of theirs."""
    names = re.findall(r"\botel_bridge_\w+", expression)
    assert names or expression.startswith("up{")
    known = set.union(SCRAPED, *(series[name] for name in names))
    chosen = re.findall(r"[{,]\s*(\w+)\s*=", expression)
    grouped = [label for group in re.findall(r"\bby \(([^)]*)\)", expression) for label in group.split(", ")]
    told = re.findall(r"\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}", shown)
    assert {*chosen, *grouped, *told} <= known
    groups = [set(group.split(", ")) for group in re.findall(r"\bby \(([^)]*)\)", expression)]
    assert all(set(told) <= group for group in groups)


def test_pages_name_what_exists(series: dict[str, set[str]]) -> None:
    """Each metric that a page names is one that /metrics shows, or the beginning of one, as it is given to grep."""
    found = {name for page in PAGES for name in re.findall(r"\botel_bridge_\w+", page.read_text())}
    targets = {"otel_bridge_curl", "otel_bridge_grpc"}  # of CMake
    assert found > targets
    known = {*series, "otel_bridge_process_memory_rss_bytes"}
    assert {name for name in found - targets if not any(each.startswith(name) for each in known)} == set()


def test_outcomes_are_known() -> None:
    """Each outcome of requests that a rule looks for is a reason for which requests are refused."""
    asked_for = [match for rule in rules() for match in re.findall(r'outcome=~"([^"]+)"', rule["expr"])]
    reasons = {row["reason"] for row in table("docs/protocol.md", "reason", "means")}
    assert {outcome for match in asked_for for outcome in match.split("|")} < reasons
    assert asked_for


@pytest.mark.parametrize("rule", [rule for rule in rules() if "increase(" in rule["expr"]], ids=lambda rule: rule["alert"])
def test_the_first_loss_is_seen(rule: dict[str, Any]) -> None:
    """What a series begins with is no increase to Prometheus: each rule for losses also asks for series that are new."""
    (name, span) = re.findall(r"increase\((\w+)\[(\w+)\]\)", rule["expr"])[0]
    assert f"or ({name} unless {name} offset {span})" in rule["expr"]


def test_what_must_wake_somebody_does() -> None:
    """There is a rule for each way in which events are lost, or may soon be."""
    expressions = " ".join(rule["expr"] for rule in rules())
    for metric in (
        "unaccounted_events",
        "spool_capacity_bytes",
        "receiver_refused_events_total",
        "receiver_requests_total",
        "exporter_circuit",
        "dead_letters_kept_spans_total",
        "dropped_events_total",
        "ready",
    ):
        assert re.search(rf"\botel_bridge_{metric}\b", expressions), metric
    names = [rule["alert"] for rule in rules()]
    assert len(set(names)) == len(names)
    assert all({"summary", "description"} == set(rule["annotations"]) for rule in rules())
    assert {rule["labels"]["severity"] for rule in rules()} <= {"critical", "warning", "info"}


def test_panels_do_not_lie_on_each_other() -> None:
    """Each panel has a place and a number of its own, and takes the chosen source."""
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels()]
    assert len(set(places)) == len(places) == len({panel["id"] for panel in panels()})
    assert {panel["datasource"]["uid"] for panel in panels()} == {"${source}"}
