"""Our builder of debug handle maps against ExecuTorch's."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from support.pages import table

PAGE = "docs/export-script.md"


@pytest.mark.timeout(300)  # importing torch takes many seconds on a cold disk
def test_the_builders_agree(execute: Callable[..., str], tmp_path: Path) -> None:
    """
    For any sequence of inserts ours gives what theirs gives, or refuses; what it refuses beyond theirs is on the page.

    Each row of the page's table shows what both really do.
    """
    rows = table(PAGE, "insert", "ExecuTorch's builder", "this one", "why")
    cases = tmp_path / "cases.json"
    cases.write_text(json.dumps([row["insert"] for row in rows]))
    outcomes = json.loads(execute("compare_builders.py", cases).splitlines()[-1])
    assert [[row["insert"], row["ExecuTorch's builder"], row["this one"]] for row in rows] == [
        [row["insert"], *both] for row, both in zip(rows, outcomes, strict=True)
    ]
    assert all(theirs != ours for theirs, ours in outcomes)
