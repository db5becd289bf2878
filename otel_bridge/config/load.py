"""
Reading the configuration.

Sources, strongest first: what the code gives (the command line), `OTEL_BRIDGE_<SECTION>__<NAME>`, for egress the standard
`OTEL_EXPORTER_OTLP_*`, the TOML file, the defaults. An empty variable is an unset one.
"""

import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError
from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsConfigDict

from otel_bridge.config import otlp_environment
from otel_bridge.config.bridge import SECTIONS, SETTINGS, TABLES, BridgeConfig, depth_of
from otel_bridge.config.faults import CONSEQUENCE, gather, sentence, shown
from otel_bridge.errors import ConfigError

PREFIX = "OTEL_BRIDGE_"
_NOTHING: Mapping[str, Any] = MappingProxyType({})


class _Environment(BridgeConfig, BaseSettings):
    """How `OTEL_BRIDGE_*` is read: values stay text, and the types of the settings take them apart."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_nested_delimiter="__", env_ignore_empty=True, enable_decoding=False
    )


def load(path: Path | None, overrides: Mapping[str, Any] = _NOTHING) -> BridgeConfig:
    """
    The configuration from all sources.

    path        the TOML file; None: there is none
    overrides   "section.name" -> value, stronger than all else; None: not given

    Raises ConfigError with every fault in one message.
    """
    given = _tables({name: value for name, value in overrides.items() if value is not None})
    environment = EnvSettingsSource(_Environment)()
    standard = otlp_environment.read(os.environ)
    file = _read(path) if path else {}

    egress = {name: found.value for name, found in standard.items()}
    if "endpoint" in standard:
        export = _merged(file, {"export": egress}, environment, given)["export"]
        protocol = export.get("protocol") if isinstance(export, dict) else None
        egress["endpoint"] = otlp_environment.endpoint(standard["endpoint"], protocol)
    values = _merged(file, {"export": egress} if egress else {}, environment, given)

    origins = {f"export.{name}": found.variable for name, found in standard.items()}
    origins |= {name: _variable(name) for name in _names(environment)}
    for name in _names(given):
        origins.pop(name, None)

    faults = list(_misspelt(os.environ))
    if "insecure" in standard and standard["insecure"].value.lower() not in ("true", "false"):
        faults.append(f"{standard['insecure'].variable} ({shown(standard['insecure'].value)}) must be true or false")
    try:
        config = BridgeConfig.model_validate(values)
    except ValidationError as error:
        details = [detail for detail in error.errors(include_url=False) if detail["type"] != CONSEQUENCE]
        faults += [_with_origin(sentence(detail), detail["loc"], origins) for detail in details]
    if faults:
        raise ConfigError(gather(iter(faults)))
    return config


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"the configuration file {path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"the configuration file {path} is not TOML: {error}") from error


def _tables(dotted: Mapping[str, Any]) -> dict[str, Any]:
    """{"a.b": c} -> {"a": {"b": c}}."""
    return _merged(*(_table(name.split("."), value) for name, value in dotted.items()))


def _table(names: list[str], value: Any) -> dict[str, Any]:
    first, *rest = names
    return {first: _table(rest, value) if rest else value}


def _merged(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """All layers, weakest first: sections merge, values replace."""
    merged: dict[str, Any] = {}
    for layer in layers:
        for section, table in layer.items():
            below = merged.get(section)
            if not isinstance(below, dict) or not isinstance(table, dict):
                merged[section] = table
            else:
                merged[section] = _merged(below, table) if section == TABLES else {**below, **table}
    return merged


def _names(layer: Mapping[str, Any]) -> Iterator[str]:
    for section, table in layer.items():
        names = _names(table) if section == TABLES and isinstance(table, dict) else table
        yield from (f"{section}.{name}" for name in names) if isinstance(table, dict) else (section,)


def _variable(name: str) -> str:
    return PREFIX + name.replace(".", "__").upper()


def _with_origin(fault: str, place: tuple[int | str, ...], origins: Mapping[str, str]) -> str:
    variable = origins.get(".".join(map(str, place[: depth_of(str(place[0]))]))) if place else None
    return f"{fault} (set by {variable})" if variable else fault


def _misspelt(environ: Mapping[str, str]) -> Iterator[str]:
    """
    Variables that no setting reads although they must be meant for one.

    Not every unknown OTEL_BRIDGE_*: Kubernetes adds OTEL_BRIDGE_SERVICE_HOST and others where a service is called otel-bridge.
    """
    single = {_variable(name).replace("__", "_", 1): _variable(name) for name in SETTINGS}
    for variable in sorted(environ):
        section, double, _ = variable.upper().removeprefix(PREFIX).partition("__")
        if not variable.upper().startswith(PREFIX):
            continue
        if double and section.lower() not in (*SECTIONS, TABLES):
            yield f"{shown(variable)[1:-1]} names no section of the configuration; there are {', '.join((*SECTIONS, TABLES))}"
        elif variable.upper() in single:
            yield f"{variable} is not read; did you mean {single[variable.upper()]}?"
