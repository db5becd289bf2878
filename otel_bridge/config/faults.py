"""What is wrong with a configuration, in the user's words: setting, value, rule, way out."""

import re
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from pydantic_core import ErrorDetails

from otel_bridge.config.bridge import SECTIONS, SETTINGS, TABLES, depth_of, section_type
from otel_bridge.config.setting import facts

CONSEQUENCE = "default_factory_not_called"
"""Type of a pydantic error that only says that an earlier setting of the section is wrong, which is told by itself."""

_SHOWN_CHARACTERS = 80

_EXPORT = re.compile(r"(?<![/\w.(-])export(?=[. ])")
"""The section in a rule of `ExportConfig`, which stands for whatever table the settings are in; not a host of that name."""

_RULES: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "greater_than_equal": lambda bound: f"must be at least {int(bound['ge'])}",
    "greater_than": lambda bound: f"must be more than {int(bound['gt'])}",
    "less_than_equal": lambda bound: f"must be at most {bound['le']}",
    "literal_error": lambda bound: f"must be {bound['expected']}",
    "value_error": lambda bound: str(bound["error"]),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float", "int_parsing_size"), lambda _: "must be a whole number"),
    **dict.fromkeys(("float_type", "float_parsing", "finite_number"), lambda _: "must be a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), lambda _: "must be true or false"),
    **dict.fromkeys(("path_type", "string_type", "string_unicode"), lambda _: "must be text"),
    "tuple_type": lambda _: "must be a list",
    **dict.fromkeys(("dict_type", "mapping_type"), lambda _: "must be a table of names and values"),
    **dict.fromkeys(("model_type", "model_attributes_type"), lambda _: "must be a table"),
    "missing": lambda _: "is missing",
}
"""Type of a pydantic error -> the rule that was broken, from the error's context."""


def sentence(error: ErrorDetails) -> str:
    """One fault as one line (several where a rule between settings found several)."""
    place = error["loc"]
    if error["type"] == "extra_forbidden":
        return unknown(".".join(map(str, place)))
    worded = _RULES.get(error["type"])
    rule = worded(error.get("ctx", {})) if worded else f"is wrong: {error['msg']}"
    depth = depth_of(str(place[0])) if place else 1
    words = [str(part) for part in place if part != "[key]"]
    if error["type"] == "value_error" and len(place) < depth:  # a rule between settings, which names them itself
        return _EXPORT.sub(".".join(words), rule) if words[:1] == [TABLES] else rule
    name = ".".join(words[:depth]) + "".join(f"[{word}]" for word in words[depth:])
    return f"{name} {rule}" if _is_secret(place) else f"{name} ({shown(error['input'])}) {rule}"


def unknown(name: str) -> str:
    """That `name` is no setting, and which one may have been meant."""
    kind = "setting" if name.partition(".")[0] in (*SECTIONS, TABLES) and "." in name else "section"
    nearest = _nearest(name)
    return f"{shown(name)[1:-1]} is not a {kind}" + (f"; did you mean {nearest}?" if nearest else "")


def shown(value: object) -> str:
    """A value on one line, escaped and cut, without the user and password of a URL."""
    text = re.sub(r"//[^/@]*@", "//****@", ascii(value))
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "..."


def _nearest(name: str) -> str | None:
    last = name.rpartition(".")[2]
    same_name = sorted(setting for setting in SETTINGS if setting.rpartition(".")[2] == last)
    candidates = same_name or get_close_matches(name, [*SETTINGS, *SECTIONS], n=1, cutoff=0.5)
    return candidates[0] if candidates else None


def _is_secret(place: tuple[int | str, ...]) -> bool:
    if not place or len(place) < depth_of(str(place[0])):
        return False
    part, *_, name = map(str, place[: depth_of(str(place[0]))])
    field = section_type(part).model_fields.get(name)
    return field is not None and facts(field).secret


def gather(faults: Iterator[str]) -> str:
    """One message of all faults."""
    lines = [line for fault in faults for line in fault.splitlines()]
    return lines[0] if len(lines) == 1 else "\n".join([f"{len(lines)} settings are wrong:", *(f"  {line}" for line in lines)])
