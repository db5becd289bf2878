"""README.md and docs/ say what is so: whoever follows a page gets what it shows."""

import os
import re
import shutil
from pathlib import Path

import pytest
from support.engines import ENGINES, ROOT, require
from support.pages import PAGES, REASONS, all_blocks, blocks_of
from support.walk import LANGUAGES, Walk, agrees, dialogue

RUN = [page for page in PAGES if blocks_of(page)]


def name_of(page: Path) -> str:
    """A page's path below the checkout."""
    return str(page.relative_to(ROOT))


def need_programs(page: Path) -> None:
    """End the test where a page uses a program of the system that this machine lacks: as for engines (support/engines.py)."""
    commands = "".join(block.text for block in blocks_of(page) if block.language in ("console", "sh") and block.reason is None)
    for program in ("bash", "curl", "grep", "gzip", "openssl"):
        if re.search(rf"\b{program}\b", commands) and shutil.which(program) is None:
            line = f"needs {program}: it is not on PATH"
            if os.environ.get("OTEL_BRIDGE_REQUIRE_ENGINES") == "1":
                pytest.fail(line, pytrace=False)
            pytest.skip(line)


@pytest.mark.timeout(300)  # a page starts a dozen programs, on machines that may have other work
@pytest.mark.parametrize("page", RUN, ids=name_of)
def test_a_page_can_be_followed(page: Path, tmp_path: Path) -> None:
    """Each block of a page does what the page says, from top to bottom; spans of a bridge that it starts reach a back end."""
    need_programs(page)
    with Walk(tmp_path) as walk:
        for block in blocks_of(page):
            if block.reason is None and block.engine is None:
                walk.step(block)
        if walk.finish():
            assert walk.sink.spans


@pytest.mark.timeout(300)  # importing torch takes many seconds on a cold disk
@pytest.mark.parametrize("page", [page for page in RUN if any(block.engine for block in blocks_of(page))], ids=name_of)
def test_what_needs_an_engine_can_be_followed(page: Path, tmp_path: Path) -> None:
    """The blocks of a page that need an engine do what the page says, in their order."""
    with Walk(tmp_path) as walk:
        for block in blocks_of(page):
            if block.engine is not None:
                require(block.engine)
                walk.step(block)
        walk.finish()


def test_no_block_escapes() -> None:
    """Each fence opens a block of a language that is tested, and each comment for the tests is one that they know."""
    fences = [line for page in PAGES for line in page.read_text().splitlines() if line.startswith("```") and line != "```"]
    comments = [line for page in PAGES for line in page.read_text().splitlines() if line.startswith("<!-- test:")]
    blocks = all_blocks()
    assert len(fences) == len(blocks)
    assert len(comments) == sum(1 for block in blocks if block.how)
    assert {block.language for block in blocks} <= LANGUAGES
    known = {"", "background", *(f"not run: {reason}" for reason in REASONS)}
    known |= {f"{each}needs {engine}" for each in ("", "background, ") for engine in ENGINES}
    assert [str(block) for block in blocks if block.how not in known and not block.file and not block.shows] == []


def test_what_is_not_run_cannot_be() -> None:
    """A block that is not run holds only commands of the kind that its reason allows."""
    skipped = [block for block in all_blocks() if block.reason is not None]
    assert skipped
    for block in skipped:
        commands = [line.removeprefix("$ ") for line in block.text.splitlines() if line and not line.startswith("#")]
        assert [line for line in commands if not REASONS[block.reason or ""].match(line)] == [], str(block)


def test_links_lead_somewhere() -> None:
    """Each link inside the checkout leads to a file, and its fragment to a heading."""
    broken = []
    for page in [*PAGES, ROOT / "CHANGELOG.md"]:
        text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            path, _, fragment = target.partition("#")
            if "://" in target:
                continue
            file = (page.parent / path).resolve() if path else page
            if not file.exists() or (fragment and fragment not in anchors(file)):
                broken.append(f"{name_of(page)}: {target}")
    assert broken == []


def anchors(page: Path) -> set[str]:
    """The fragments of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_walk_compares() -> None:
    """A page agrees with a command only where all that it shows was printed, and nothing else but what `...` stands for."""
    assert agrees("a 1\nb\n", "a ...\nb\n")
    assert agrees("a\nx\ny\nb  \n", "a\n...\nb\n")
    assert not agrees("a\nb\nc\n", "a\nb\n")
    assert not agrees("a\n", "a\nb\n")
    assert not agrees("axb\n", "a.b\n")


def test_the_walk_takes_dialogues_apart() -> None:
    """A command ends with its line, or goes on after a backslash; the rest is what it prints."""
    assert dialogue("$ a \\\n  b\nc\nd\\\n$ e\n") == [("a \\\n  b\n", "c\nd\\\n"), ("e\n", "")]
