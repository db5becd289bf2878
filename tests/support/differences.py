"""The page docs/inspector-differences.md as data: what it lists, and what it explains."""

import re
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "inspector-differences.md"
_ROW = re.compile(r"^\| \[([a-z-]+)\]\(#([a-z-]+)\) \| (.+?) \| (csv|dump|live) \|$", re.MULTILINE)
_HEADING = re.compile(r"^### (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Difference:
    """One row of the page's table: what it is called, which columns of the Inspector it concerns, and what shows it."""

    name: str
    columns: frozenset[str]
    shown_by: str


def documented() -> dict[str, Difference]:
    """All differences that the page lists, by name."""
    rows = _ROW.findall(PAGE.read_text())
    assert all(name == anchor for name, anchor, *_ in rows), "an entry links to another's heading"
    return {name: Difference(name, frozenset(re.findall("`(.+?)`", columns)), by) for name, _, columns, by in rows}


def explained() -> list[str]:
    """The names of all entries that have a text of their own, in order."""
    return _HEADING.findall(PAGE.read_text())
