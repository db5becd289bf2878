"""
README.md and docs/ as data: their fenced blocks and their tables.

A comment in front of a block says how it is tested, where that differs from the rule of its language (support/walk.py):

    <!-- test: background -->       it runs while the rest of the page does
    <!-- test: file NAME -->        it is also written to that file
    <!-- test: shows FILE -->       it is that file of the checkout, which other tests compile and run
    <!-- test: needs ENGINE -->     it is run apart, where there is that engine (support/engines.py)
    <!-- test: not run: REASON -->  it needs what a test does not have; REASONS says what such a block may hold

The first two may stand together with the third: `<!-- test: file NAME, needs ENGINE -->`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from support.engines import ROOT

PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])

REASONS = {
    "docker": re.compile(r"docker (run|compose|build) "),
    "install": re.compile(r"(python3? -m venv|\.venv/bin/pip install|\.venv/bin/otel-bridge --version)\b"),
    "make": re.compile(r"make [a-z]+\b"),
    "phone": re.compile(r"(adb|sh scripts/build_android_library\.sh|EXECUTORCH_ANDROID_PROFILING=ON sh|cmake) "),
}
"""Why a block is not run -> what each of its commands must begin with, so that nothing else hides behind the reason."""

_BLOCK = re.compile(
    r"(?:^<!-- test: (?P<how>[^\n]+?) -->\n)?^```(?P<language>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
_ROW = re.compile(r"^\|(.+)\|$")


@dataclass(frozen=True)
class Block:
    """A fenced block; `line` is that of its fence, `how` the comment in front of it."""

    page: Path
    line: int
    language: str
    text: str
    how: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def reason(self) -> str | None:
        """Why it is not run; None: it is."""
        return self.how.removeprefix("not run: ") if self.how.startswith("not run: ") else None

    @property
    def engine(self) -> str | None:
        """The engine that it needs."""
        return self.how.rpartition("needs ")[2] if re.match(r"(.+, )?needs ", self.how) else None

    @property
    def file(self) -> str | None:
        """The file that it is written to."""
        return self.how.removeprefix("file ").partition(", needs ")[0] if self.how.startswith("file ") else None

    @property
    def shows(self) -> str | None:
        """The file that it is."""
        return self.how.removeprefix("shows ") if self.how.startswith("shows ") else None

    @property
    def in_background(self) -> bool:
        """Whether it runs while the rest of the page does."""
        return self.how.partition(", needs ")[0] == "background"


def blocks_of(page: Path) -> list[Block]:
    """The blocks of a page, in order."""
    text = page.read_text()
    return [
        Block(page, text.count("\n", 0, found.start("language")) + 1, found["language"], found["text"], found["how"] or "")
        for found in _BLOCK.finditer(text)
    ]


def all_blocks() -> list[Block]:
    """The blocks of all pages."""
    return [block for page in PAGES for block in blocks_of(page)]


def table(page: str, *columns: str) -> list[dict[str, str]]:
    """The rows of the one table with these columns in a page below the checkout; cells without their backquotes."""
    found = [rows for rows in _tables((ROOT / page).read_text()) if tuple(rows[0]) == columns]
    assert len(found) == 1, f"{page} has {len(found)} tables with the columns {', '.join(columns)}"
    return found[0]


def _tables(text: str) -> Iterator[list[dict[str, str]]]:
    lines = [*text.splitlines(), ""]
    header: list[str] = []
    rows: list[dict[str, str]] = []
    for line in lines:
        row = _ROW.match(line)
        if row is None:
            if rows:
                yield rows
            header, rows = [], []
            continue
        cells = [cell.replace("\\|", "|").strip().strip("`") for cell in re.split(r"(?<!\\)\|", row[1])]
        if not header:
            header = cells
        elif set("".join(cells)) != {"-"}:
            rows.append(dict(zip(header, cells, strict=True)))
