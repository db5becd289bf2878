"""
The configuration as TOML, each setting with its sentence, unit, rule and default.

A setting at its default is commented out, so the text says what was set; read back, it gives the same configuration.
"""

import json
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from textwrap import dedent, wrap
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from otel_bridge.config.bridge import SECTIONS, TABLES, BridgeConfig
from otel_bridge.config.setting import Section, facts
from otel_bridge.config.values import IN_MEMORY

MASK = "****"
_WIDTH = 110

_HEADER = """\
# Configuration of otel-bridge: every setting, with what it does, its unit, its rule and its default.
# A line that is commented out shows the default.
#
# Every setting can also come from the environment, as OTEL_BRIDGE_<SECTION>__<NAME>; lists with commas or as JSON.
# Strongest first: command line, OTEL_BRIDGE_*, OTEL_EXPORTER_OTLP_* (only for [export]), this file, the defaults.
"""


_DESTINATIONS = """\
Further destinations: each gets every event too, at its own pace. Settings are those of [export], under a name of their own, \
which OTEL_EXPORTER_OTLP_* do not set; variables are OTEL_BRIDGE_DESTINATIONS__<DESTINATION>__<NAME>."""

_DESTINATION = "Where spans go as well."


def render(config: BridgeConfig, masked: bool = True) -> str:  # noqa: FBT001, FBT002  # read as render(config, masked=False)
    """The effective configuration as TOML; values of headers are masked unless told otherwise."""
    return _HEADER + "".join("\n" + "\n".join(table) + "\n" for table in _tables(config, masked=masked))


def _tables(config: BridgeConfig, *, masked: bool) -> Iterator[Iterator[str]]:
    for name in BridgeConfig.model_fields:
        if name in SECTIONS:
            section = getattr(config, name)
            yield _table(name, section, section.__doc__ or "", masked=masked)
            continue
        yield chain(_comment(_DESTINATIONS), [] if config.destinations else [f"# [{TABLES}.archive]"])
        for destination, section in config.destinations.items():
            yield _table(f"{TABLES}.{destination}", section, _DESTINATION, masked=masked)


def _table(name: str, section: Section, sentences: str, *, masked: bool) -> Iterator[str]:
    yield from _comment(dedent(f"    {sentences}").strip())
    yield f"[{name}]"
    for setting, field in type(section).model_fields.items():
        declared = facts(field)
        value = getattr(section, setting)
        default = field.get_default(call_default_factory=True, validated_data=section.__dict__)
        if declared.secret and masked:
            value = dict.fromkeys(value, MASK)
        yield ""
        yield from _comment(declared.sentence)
        rule = "; ".join(filter(None, [declared.rule, _choices(field)]))
        told = {"Unit": declared.unit, "Rule": rule, "Default": _toml(default) if value != default else ""}
        yield from _comment(" ".join(f"{label}: {words}." for label, words in told.items() if words))
        yield f"{'# ' if value == default else ''}{setting} = {_toml(value, absent=_absent(setting))}"


def _comment(text: str) -> Iterator[str]:
    for paragraph in filter(None, text.split("\n\n")):
        yield from (f"# {line}" for line in wrap(paragraph, _WIDTH, break_long_words=False, break_on_hyphens=False))


def _choices(field: FieldInfo) -> str:
    words = [word for word in get_args(field.annotation) if isinstance(word, str)]
    return f"one of {', '.join(words)}" if words else ""


def _absent(setting: str) -> str:
    return IN_MEMORY if setting == "data_dir" else ""


def _toml(value: Any, *, absent: str = "") -> str:
    if isinstance(value, BaseModel):
        value = value.model_dump(exclude_unset=True)
    match value:
        case None:
            return _toml(absent)
        case bool():
            return str(value).lower()
        case int() | float():
            return repr(value)
        case str() | Path():
            # JSON's escapes are TOML's, but for DEL, which TOML wants escaped too.
            return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
        case Mapping():
            return (
                "{" + ", ".join(f" {_toml(name)} = {_toml(entry)}" for name, entry in value.items()) + (" }" if value else "}")
            )
        case _:
            return "[" + ", ".join(map(_toml, value)) + "]"
