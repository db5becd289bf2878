"""docs/architecture.md draws the code as it is."""

import ast
import re
import tomllib
from pathlib import Path

import pytest
from support.engines import ROOT
from support.pages import table

PAGE = (ROOT / "docs" / "architecture.md").read_text()
PACKAGE = ROOT / "otel_bridge"

NAMED = [
    (path, name)
    for path, names in re.findall(r"\b(\w+/\w+\.py)\s+(\w+(?:\.\w+)?(?:, \w+\.\w+)*)", PAGE)
    for name in names.split(", ")
]


@pytest.mark.parametrize(("path", "name"), NAMED, ids=lambda part: part)
def test_what_the_walk_names_exists(path: str, name: str) -> None:
    """Each function or class that stands behind a file's name is defined in that file."""
    defined = set(definitions(ast.parse((PACKAGE / path).read_text())))
    assert name in defined


def definitions(module: ast.Module) -> list[str]:
    """Functions and classes of a module, and methods as `Class.method`."""
    top = [node for node in module.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)]
    methods = [
        f"{node.name}.{each.name}"
        for node in top
        if isinstance(node, ast.ClassDef)
        for each in node.body
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    return [node.name for node in top] + methods


def test_the_stages_stand_in_their_order() -> None:
    """The stages that the walk lists are those of `Stages`, in the order in which they run."""
    (listing,) = [
        node
        for node in ast.walk(ast.parse((PACKAGE / "pipeline" / "stages.py").read_text()))
        if isinstance(node, ast.FunctionDef) and node.name == "_stages"
    ]
    run = [node.attr for node in ast.walk(listing) if isinstance(node, ast.Attribute)]
    assert run
    assert re.findall(r"^ +(_\w+) ", PAGE, re.MULTILINE) == run


def test_the_rooms_are_those_of_the_package() -> None:
    """The table of rooms has each one, and nothing else."""
    rooms = {path.parent.name for path in PACKAGE.glob("*/*.py")} | {path.stem for path in PACKAGE.glob("[a-z]*.py")}
    assert {row["room"] for row in table("docs/architecture.md", "room", "holds")} == rooms


def test_the_layers_are_those_that_are_enforced() -> None:
    """The drawn layers are those of pyproject.toml, but for rooms that do not exist yet."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    enforced = [{room.strip() for room in layer.split("|") if "(" not in room} for layer in contracts[0]["layers"]]
    (drawn,) = re.findall(r"^```text\n(cli .*?)```", PAGE, re.MULTILINE | re.DOTALL)
    assert [set(re.findall(r"\w+", layer)) for layer in drawn.split(">")] == enforced


def test_files_that_pages_name_exist() -> None:
    """Each file that a page of docs/ names by its path in the package or the checkout exists."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    named = {name for page in pages for name in re.findall(r"`((?:[\w.]+/)+[\w.]+\.(?:py|proto|toml|yaml))`", page.read_text())}
    foreign = {
        name for name in named if name.startswith(("devtools/", "exir/", "runtime/", "backends/nxp", "backends/xnnpack"))
    }
    missing = [name for name in named - foreign if not any(Path(base, name).exists() for base in (ROOT, PACKAGE))]
    assert missing == []
