"""
How a setting is declared: once, with its name, default, unit, one sentence and its rule.

What `render` prints and what `load` says of a fault are made from the declaration.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge, Gt, Le
from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic.fields import FieldInfo

Number = Annotated[float, Field(allow_inf_nan=False)]
"""A finite number."""


class Section(BaseModel):
    """A table of the configuration file. Its docstring is the sentence above it."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    @field_validator("*", mode="before")
    @classmethod
    def _without_nul(cls, value: object) -> object:
        if isinstance(value, str | Path) and "\0" in str(value):
            raise ValueError("must not hold a NUL character: no path, address or name has one")
        return value


def setting(
    default: Any,
    sentence: str,
    *,
    unit: str = "",
    rule: str = "",
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    secret: bool = False,
) -> Any:
    """
    Declare a setting.

    default       the value, or a function of the section's earlier settings
    least, above, most   bounds; their wording is made from them
    rule          the wording of any other rule
    secret        values are masked wherever they are shown
    """
    keywords: dict[str, Any] = {"ge": least, "gt": above, "le": most}
    return Field(
        **({"default_factory": default} if callable(default) else {"default": default}),
        **{name: value for name, value in keywords.items() if value is not None},
        description=sentence,
        json_schema_extra={"unit": unit, "rule": rule, "secret": secret},
        repr=not secret,
    )


@dataclass(frozen=True, slots=True)
class Facts:
    """What was declared of a setting, in words: `rule` is "" where anything of the type will do."""

    sentence: str
    unit: str
    rule: str
    secret: bool


def facts(field: FieldInfo) -> Facts:
    """What was declared with `setting`."""
    extra = field.json_schema_extra
    if not isinstance(extra, dict):
        raise TypeError(f"{field!r} was not declared with setting()")
    bounds = [words for part in field.metadata if (words := _words(part))]
    rule = " and ".join([*bounds, *([str(extra["rule"])] if extra["rule"] else [])])
    return Facts(field.description or "", str(extra["unit"]), rule, bool(extra["secret"]))


def _words(bound: object) -> str:
    match bound:
        case Ge(least):
            return f"at least {least}"
        case Gt(above):
            return f"more than {above}"
        case Le(most):
            return f"at most {most}"
        case _:
            return ""
