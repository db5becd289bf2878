"""The tables of the pages are those of the code: nothing missing, nothing invented."""

import ast
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import get_args

import click
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from support.commands import commands_of
from support.engines import ROOT
from support.pages import table

from otel_bridge import errors
from otel_bridge.app.offline import Offline
from otel_bridge.backends.backend import TimeQuality
from otel_bridge.backends.table import CALL_ONLY, WITH_RULES, read
from otel_bridge.cli.main import otel_bridge
from otel_bridge.config.bridge import BridgeConfig
from otel_bridge.config.sections import SpoolConfig
from otel_bridge.mapping.source import read_source
from otel_bridge.metadata.builtin import BUILTIN
from otel_bridge.metadata.table import ENTRY_POINTS
from otel_bridge.model.resolution import Status
from otel_bridge.spans import attributes as at
from otel_bridge.spans.reference import build
from otel_bridge.spool.lot import LotLimits
from otel_bridge.telemetry.instruments import INSTRUMENTS
from otel_bridge.v1 import mapping_pb2, profiling_pb2
from otel_bridge.wire.query import UPLOAD_PARAMETERS
from otel_bridge.wire.status import CODES

PROTOCOL, ATTRIBUTES, OPERATIONS = "docs/protocol.md", "docs/attributes.md", "docs/operations.md"
BACKENDS, METADATA, TIME = "docs/backends.md", "docs/metadata.md", "docs/time.md"

RULES = {"xnnpack.node_order", "qnn.unit_suffix"}
"""Names of the rules by which an event is `derived`."""

MODULE_OF_DECODERS = ast.parse((ROOT / "otel_bridge" / "metadata" / "table.py").read_text())


def test_attributes() -> None:
    """The two tables of attributes name each constant of spans/attributes.py, and nothing else."""
    resource = {row["attribute"] for row in table(ATTRIBUTES, "attribute", "type", "value")}
    spans = {row["attribute"] for row in table(ATTRIBUTES, "attribute", "type", "on", "meaning")}
    known = {value for name, value in vars(at).items() if name.isupper() and isinstance(value, str)} - {at.SCHEMA_URL}
    assert {name.removesuffix("<key>") for name in resource | spans} == known
    assert not resource & spans


PREFIXED = rf"^({re.escape(at.METADATA_PREFIX)}|{re.escape(at.COUNTER_PREFIX)}).+"
"""Attributes of which the table has the beginning."""

TYPES = {
    "string_value": {"string"},
    "bool_value": {"bool"},
    "int_value": {"int"},
    "double_value": {"double"},
    "array_value.int_value": {"int[]"},
    "array_value.string_value": {"string[]"},
}


def test_types_of_attributes(fixtures: Path) -> None:
    """Each attribute of each span that the captures give stands in the table, with the type that it has there."""
    told = {row["attribute"]: set(row["type"].split(" or ")) for row in table(ATTRIBUTES, "attribute", "type", "on", "meaning")}
    seen = set()
    for attribute in (attribute for dump in fixtures.glob("*/run.etdp") for attribute in span_attributes(dump)):
        key = re.sub(PREFIXED, r"\1<key>", attribute.key)
        assert TYPES[kind_of(attribute.value)] <= told[key], key
        seen.add(key)
    assert {at.METHOD_NAME, at.DEBUG_HANDLES, at.OPERATOR_NAMES, at.METADATA_PREFIX + "<key>", at.TIME_DURATION_NS} <= seen


def span_attributes(dump: Path) -> Iterator[KeyValue]:
    """The attributes of all spans of a capture, resolved with the mapping beside it."""
    offline = Offline(read_source(dump.with_name("model.etrecord").read_bytes()))
    request = build(offline.replay(profiling_pb2.UploadETDumpRequest(etdump=dump.read_bytes())).scene)
    offline.close()
    for resource in request.resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield from span.attributes


def kind_of(value: AnyValue) -> str:
    """Which field of an `AnyValue` is set; for an array with that of its entries."""
    kind = str(value.WhichOneof("value"))
    return f"{kind}.{value.array_value.values[0].WhichOneof('value')}" if kind == "array_value" else kind


def test_statuses_of_resolution() -> None:
    """The README explains each status."""
    assert [row["status"] for row in table("README.md", "status", "when", "handles and operators")] == [
        status.value for status in Status
    ]


def test_rules_that_derive() -> None:
    """The attribute of the rule names each one that the code has."""
    (row,) = [row for row in table(ATTRIBUTES, "attribute", "type", "on", "meaning") if row["attribute"] == at.RESOLUTION_RULE]
    for rule in RULES:
        assert f"`{rule}`" in row["meaning"]


def test_rules_are_those_that_the_code_has() -> None:
    """A module that has a rule has it as `RULE`."""
    found = {
        node.value.value
        for path in (ROOT / "otel_bridge").rglob("*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "RULE"
        if isinstance(node.value, ast.Constant)
    }
    assert found == RULES


def test_time_quality() -> None:
    """Each word for the worth of times is explained."""
    rows = [row["executorch.time.quality"] for row in table(TIME, "executorch.time.quality", "means")]
    assert rows == [quality.value for quality in TimeQuality]


LOGGED: dict[str, tuple[int | str, ...]] = {
    "XnnpackBackend": ("Convolution (NHWC, F32) IGEMM #1",),
    "VulkanBackend": ("ETVK_EXECUTE", '{"kernel_name": "conv2d"}'),
    "CoreMLBackend": ("x_1:ios17.conv",),
    "QnnBackend": ("Accelerator (execute) time (us)",),
    "NeutronBackend": (0,),
    "VgfBackend": ("VGF_EXECUTE", "VGF_NEURAL_STATISTICS"),
}
"""What backends log whose events have times."""


def test_backends() -> None:
    """The table has each backend that is known, and says what its times are worth."""
    told: dict[str, set[str]] = {}
    name = ""
    for row in table(BACKENDS, "backend id", "identifiers", "times", "resolution", "metadata"):
        name = row["backend id"] or name
        words = set(re.findall(r"\w+", row["times"])) & {quality.value for quality in TimeQuality}
        for each in re.findall(r"\w+Backend", name) or ["any other"]:
            told.setdefault(each, set()).update(words)
    assert set(told) == {*WITH_RULES, *CALL_ONLY, "any other"}
    assert told["any other"] == {TimeQuality.UNKNOWN.value}
    for backend, identifiers in LOGGED.items():
        assert told[backend] == {read(backend, each).timing.quality.value for each in identifiers}, backend


def test_order_of_decoders() -> None:
    """The page and the module that chooses a decoder list as many ranks, in one order."""
    ranks = re.findall(r"^\d\. (.+)$", (ROOT / METADATA).read_text(), re.MULTILINE)
    assert len(ranks) == len(re.findall(r"^\d\. ", str(ast.get_docstring(MODULE_OF_DECODERS)), re.MULTILINE))
    for word, rank in zip(
        ("names for the backend", "declares", "names for all", ENTRY_POINTS, "known", "auto"), ranks, strict=True
    ):
        assert word in rank, rank


def test_instruments() -> None:
    """The table of metrics has each instrument, with its kind, unit and labels."""
    rows = table(OPERATIONS, "instrument", "kind", "unit", "labels", "meaning")
    told = [(row["instrument"], row["kind"], row["unit"], row["labels"]) for row in rows]
    assert told == [(each.name, each.kind.value, each.unit, ", ".join(each.labels)) for each in INSTRUMENTS]


def test_sections_of_the_settings() -> None:
    """Each section of the configuration is mentioned, in its order."""
    assert [row["section"] for row in table(OPERATIONS, "section", "says")] == list(BridgeConfig.model_fields)


def test_commands() -> None:
    """The README lists each command, and those of `mapping` and `config`."""
    rows = {row["command"].removeprefix("otel-bridge "): row["does"] for row in table("README.md", "command", "does")}
    commands = commands_of(otel_bridge)
    assert set(rows) == set(commands)
    for name in ("mapping", "config"):
        group = commands[name]
        assert isinstance(group, click.Group)
        assert set(commands_of(group)) <= set(re.findall(r"\w+", rows[name]))


def test_durabilities_of_the_spool() -> None:
    """The table has each word of the setting, in its order."""
    words = get_args(get_args(SpoolConfig.__annotations__["durability"])[0])
    assert [row["spool.durability"] for row in table(OPERATIONS, "spool.durability", "survives", "an answer waits for")] == [
        *words
    ]


def test_reasons_of_events_that_waited() -> None:
    """The table of instruments and the section on parking name bounds; the lot has those."""
    limits = {each.name.removeprefix("max_") for each in fields(LotLimits)} - {"age_s", "builds", "bytes_per_tenant"}
    section = (ROOT / OPERATIONS).read_text().partition("## Events before their mapping")[2].partition("\n## ")[0]
    assert {limit for limit in limits if f"max_{limit}`" in section} == limits
    assert "`tenants.parked_bytes`" in section


def test_parameters_of_the_http_door() -> None:
    """The table of parameters has each one that the door takes, in its order."""
    assert [row["parameter"] for row in table(PROTOCOL, "parameter", "value")] == [*UPLOAD_PARAMETERS, "resource.KEY"]


def test_codes_of_errors() -> None:
    """The table of statuses is the one in wire/status.py; a retry helps for `Unavailable` alone."""
    rows = table(PROTOCOL, "error", "gRPC", "HTTP", "retry")
    told = [(row["error"], row["gRPC"], row["HTTP"], row["retry"].partition(",")[0]) for row in rows]
    assert told == [
        (kind.__name__, code.grpc.name, str(code.http), "yes" if issubclass(kind, errors.Unavailable) else "no")
        for kind, code in CODES.items()
    ]


def test_built_in_decoders() -> None:
    """The table of decoders has each built-in one."""
    assert {row["decoder"] for row in table("docs/metadata.md", "decoder", "reads")} == set(BUILTIN)


def test_identifiers_of_a_mapping() -> None:
    """The table of entries has each way to give an identifier."""
    oneof = mapping_pb2.MapEntry.DESCRIPTOR.oneofs_by_name["identifier"]
    assert [row["entry"] for row in table("docs/mappings.md", "entry", "stands for")] == [field.name for field in oneof.fields]
