"""
What is not shown of mappings and metadata, although it is known.

Invariant: it is decided where attributes are put together, once for a template and once for a byte string; mappings and
metadata stay whole wherever they are kept, so a setting that changes needs no upload and no new event of old ones.
"""

import re
from collections.abc import Callable
from ntpath import basename

from otel_bridge.spans import attributes as at
from otel_bridge.spans.describe import Attributes

Withhold = Callable[[Attributes], Attributes]
"""What is shown of some attributes."""

_PACKAGES = re.compile(r".*[/\\](?:site|dist)-packages[/\\]", re.DOTALL)
_HOME = re.compile(
    r"(?:[A-Za-z]:)?[/\\](?:(?:[^/\\]*[/\\]){0,3}?(?:home[/\\]users|home|users)[/\\]+[^/\\]+|(?:var[/\\])?root)[/\\]+",
    re.IGNORECASE,
)
"""The folder of a person on a machine, which may itself lie up to three folders down (/usr/local/google/home/NAME)."""
_NOT_SHOWN = "not shown: its words may be the metadata's, which privacy.metadata_keys withholds"


def show_all(attributes: Attributes) -> Attributes:
    """Nothing is withheld."""
    return attributes


def withhold(metadata_key: Callable[[str], bool] | None, path: Callable[[str], str]) -> Withhold:
    """
    Show of metadata those keys, and of source files that much.

    metadata_key   None: all keys, and what has none. Else lines and undecoded bytes, which have none, are not shown, and of an
                   error only that there is one: an author's decoder may quote
    path           the path of a source file -> as it is shown, see `SHOW_PATH`
    """

    def shown(key: str, value: at.Value) -> at.Value | None:
        if key == at.CODE_FILE_PATH:
            file = path(str(value))
            return (at.Cut(file) if isinstance(value, at.Cut) else file) or None
        if metadata_key is None:
            return value
        if key.startswith(at.METADATA_PREFIX):
            return value if metadata_key(key.removeprefix(at.METADATA_PREFIX)) else None
        if key == at.METADATA_ERROR:
            return _NOT_SHOWN
        return None if key in (at.METADATA_VALUES, at.METADATA_RAW) else value

    def show(attributes: Attributes) -> Attributes:
        found = ((key, shown(key, value)) for key, value in attributes)
        return tuple((key, value) for key, value in found if value is not None)

    return show


def stripped(path: str) -> str:
    r"""
    A path without the folders of the machine that the model was built on.

    Both / and \ divide folders, wherever the bridge runs. Of an installed package what is in it is left; elsewhere a home
    directory goes.
    """
    head = _PACKAGES.match(path) or _HOME.match(path)
    return path[head.end() :] if head else path


SHOW_PATH: dict[str, Callable[[str], str]] = {"keep": str, "strip": stripped, "basename": basename}
"""By the value of `privacy.source_paths`."""
