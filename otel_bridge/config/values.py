"""
Types of settings that are more than a number or a text, each with its rule.

A validator's message completes the sentence that starts with the setting's name and value: "must be ...".
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import unquote, urlsplit

from pydantic import AfterValidator, BeforeValidator, Field

from otel_bridge.model.identity import TENANT

IN_MEMORY = ":memory:"
"""As SQLite spells it: nothing is kept on disk."""

_LARGEST_PORT = 65_535
_ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+(?:%\w+)?\]|[^\s:\[\]/]+):(?P<port>\d{1,5})", re.ASCII)
_KEY = re.compile(r"!?[A-Za-z][\w./-]*(?:\.\*)?|\*", re.ASCII)
_METADATA_KEY = re.compile(r"!?[a-z0-9_]+\*?|\*", re.ASCII)
_NAME = r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*"
_PARSER = re.compile(rf"(?:[\w.-]+=)?(?:json|utf8|raw|auto|{_NAME}:{_NAME})", re.ASCII)
_CONVERTER = re.compile(rf"(?:[\w.-]+=)?{_NAME}:{_NAME}(?:@(?:ns|us|ms|s))?", re.ASCII)
_HEADER_NAME = re.compile(r"[a-z0-9_.-]+")  # what gRPC allows; a part of what HTTP does
_HEADER_VALUE = re.compile(r"(?:[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?)?")
_OWN_HEADERS = re.compile(r"content-.*|grpc-.*|expect|host|te|transfer-encoding|connection|user-agent")


def json_table(example: str) -> BeforeValidator:
    """A table that comes as JSON where it comes as text: from the environment."""

    def read(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return json.loads(value)
        except ValueError as error:
            raise ValueError(f"must be JSON such as {example}") from error

    return BeforeValidator(read)


def split_address(address: str) -> tuple[str, int]:
    """Host (without brackets) and port of `host:port` or `[IPv6]:port`. Raises ValueError."""
    match = _ADDRESS.fullmatch(address)
    if match is None or int(match["port"]) > _LARGEST_PORT:
        raise ValueError(f"must be HOST:PORT or [IPV6]:PORT with a port from 0 (any free one) to {_LARGEST_PORT}")
    return match["host"].strip("[]"), int(match["port"])


def _address(text: str) -> str:
    split_address(text)
    return text


def _several(value: Any) -> Any:
    """From the environment a list comes as JSON or with commas."""
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("["):
        try:
            return json.loads(value)
        except ValueError as error:
            raise ValueError("must be a list: as JSON, or with commas between the entries") from error
    return [entry.strip() for entry in value.split(",") if entry.strip()]


def _key(entry: str) -> str:
    if not _KEY.fullmatch(entry):
        raise ValueError("must be an attribute key, PREFIX.*, or * for all; with ! in front it takes away")
    return entry


def _metadata_key(entry: str) -> str:
    if not _METADATA_KEY.fullmatch(entry):
        raise ValueError("must be a key of [a-z0-9_], PREFIX*, or * for all; with ! in front it takes away")
    return entry


def _parser(entry: str) -> str:
    if not _PARSER.fullmatch(entry):
        raise ValueError("must be [BACKEND=]module:function, or json, utf8, raw or auto in place of module:function")
    return entry


def _converter(entry: str) -> str:
    if not _CONVERTER.fullmatch(entry):
        raise ValueError(
            "must be [BACKEND=]module:function, with @ns, @us, @ms or @s behind it where the unit is not the usual"
        )
    return entry


def parse_headers(text: str) -> dict[str, str]:
    """Headers from `name=value,...`: W3C baggage syntax without properties, percent-decoded. Raises ValueError."""
    headers = {}
    for member in filter(None, (member.strip() for member in text.split(","))):
        name, equals, value = member.partition("=")
        if not equals or not name.strip():
            raise ValueError("must be NAME=VALUE,NAME=VALUE,... with commas inside values written as %2C")
        headers[unquote(name.strip())] = unquote(value.strip())
    return headers


def _headers(headers: Mapping[str, str]) -> Mapping[str, str]:
    """Lower-cased, as gRPC demands and HTTP does not mind."""
    lowered = {name.lower(): value for name, value in headers.items()}
    for name, value in lowered.items():
        if not _HEADER_NAME.fullmatch(name):
            raise ValueError(f"must have names of letters, digits, '-', '_' and '.', which {_shown(name)} is not")
        if _OWN_HEADERS.fullmatch(name):
            raise ValueError(f"must not name {name}: the protocol sets it")
        if name.endswith("-bin"):
            raise ValueError(f"must not name {name}: -bin marks bytes in gRPC, and these are texts")
        if not _HEADER_VALUE.fullmatch(value):
            raise ValueError(f"must have values of printable ASCII without spaces around, which that of {name} is not")
    return lowered


def _readable(path: Path | None) -> Path | None:
    """Refused at start, not at the first connection."""
    if path is not None:
        try:
            with path.open("rb"):
                pass
        except OSError as error:
            raise ValueError(f"must be a file that can be read: {error.strerror}") from error
    return path


def _tenant(name: str) -> str:
    if name and not TENANT.fullmatch(name):
        raise ValueError("must be 1 to 64 letters, digits and . _ -, beginning with a letter or digit")
    return name


def check_endpoint(text: str, *, scheme_needed: bool) -> None:
    """Raise ValueError unless `text` is an http:// or https:// URL, or (where no scheme is needed) `host:port`."""
    form = "must be a URL such as http://HOST:PORT" + ("" if scheme_needed else ", or HOST:PORT")
    if not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError(f"{form}, without spaces")
    if "://" not in text and not scheme_needed:
        split_address(text)
        return
    try:
        url = urlsplit(text)
        port = url.port
    except ValueError as error:
        raise ValueError(f"{form}: {error}") from error
    if url.scheme not in ("http", "https") or not url.hostname or port == 0:
        raise ValueError(form)
    if "@" in url.netloc:
        raise ValueError("must not hold a user name or password: they belong in a header")


def _shown(value: object) -> str:
    return ascii(value)[:80]


def _lower(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


Address = Annotated[str, AfterValidator(_address)]
"""`host:port` to listen on."""
AllowList = Annotated[tuple[Annotated[str, AfterValidator(_key)], ...], BeforeValidator(_several)]
"""Attribute keys that are kept; see `otel_bridge.config.keys`."""
MetadataKeys = Annotated[tuple[Annotated[str, AfterValidator(_metadata_key)], ...], BeforeValidator(_several)]
"""Keys of delegate metadata that are shown; see `otel_bridge.config.keys`."""
Parsers = Annotated[tuple[Annotated[str, AfterValidator(_parser)], ...], BeforeValidator(_several)]
"""Metadata parsers: `[BACKEND=]module:function`, or a built-in one."""
Converters = Annotated[tuple[Annotated[str, AfterValidator(_converter)], ...], BeforeValidator(_several)]
"""Converters of delegates' times: `[BACKEND=]module:function[@UNIT]`."""
Headers = Annotated[
    Mapping[str, str],
    BeforeValidator(lambda value: parse_headers(value) if isinstance(value, str) else value),
    AfterValidator(_headers),
]
"""Header names in lower case -> values."""
HeaderName = Annotated[str, AfterValidator(lambda name: next(iter(_headers({name: ""}))) if name else name)]
"""A header name in lower case; "" for none."""
HeaderValue = Annotated[str, AfterValidator(lambda value: _headers({"x": value})["x"])]
"""A header value; "" for none."""
TenantName = Annotated[str, AfterValidator(_tenant)]
"""The name of a tenant; "" for the default one."""
ReadableFile = Annotated[Path | None, BeforeValidator(lambda value: None if value == "" else value), AfterValidator(_readable)]
"""A file that exists; None, written as "", for none."""
DataDirectory = Annotated[Path | None, BeforeValidator(lambda value: None if value == IN_MEMORY else value)]
"""A directory; None, written as ":memory:", for none."""
Unbounded = Annotated[float, Field(allow_inf_nan=True)]
"""A number, or inf for no bound."""
Several = BeforeValidator(_several)
"""Of a list: from the environment it comes as JSON or with commas."""
LowerCase = BeforeValidator(_lower)
"""Words that may be written in any case."""
