"""The rules of the house that no linter knows."""

import ast
import graphlib
import itertools
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.engines import ROOT, require

import otel_bridge

MAX_LINES = 300
GENERATED = ROOT / "otel_bridge" / "v1"
THIS = Path(__file__)
MADE_BY_TOOLS = {"__pycache__", "dist", "build"}


def project_files() -> Iterator[Path]:
    """Every file of the project, but for what tools make."""
    folders = [ROOT]
    while folders:
        for path in folders.pop().iterdir():
            if path.is_dir():
                hidden = path.name.startswith(".") and path.name != ".ci"
                if not hidden and path.name not in MADE_BY_TOOLS and not path.name.endswith(".egg-info"):
                    folders.append(path)
            elif path.name != ".git":  # a file, in a second work tree
                yield path


def python_files() -> list[Path]:
    """Every Python file that somebody wrote."""
    return sorted(path for path in project_files() if path.suffix == ".py" and GENERATED not in path.parents)


def test_imports_flow_down() -> None:
    """The layers of pyproject.toml hold."""
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_only_telemetry_knows_the_sdk() -> None:
    """No other room imports `opentelemetry.sdk`: re-emitted spans never go through it."""
    # Not a contract of import-linter, which sees external packages only as a whole, and all rooms may use opentelemetry.proto.
    importers = {
        path.relative_to(ROOT / "otel_bridge").parts[0]
        for path in (ROOT / "otel_bridge").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        for name in _imported(node)
        if f"{name}.".startswith("opentelemetry.sdk.")
    }
    assert importers == {"telemetry"}


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module:
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return []


def test_files_are_short() -> None:
    """No Python file is longer than 300 lines."""
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in python_files()}
    assert {path: length for path, length in lengths.items() if length > MAX_LINES} == {}


def test_sources_of_the_cpp_client_are_short() -> None:
    """No header or source of the C++ client, its tests and its examples is longer than 300 lines."""
    sources = [path for path in project_files() if path.suffix in {".h", ".cpp"}]
    assert ROOT / "otel_bridge" / "clients" / "cpp" / "otel_bridge.h" in sources
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in sources}
    assert {path: length for path, length in lengths.items() if length > MAX_LINES} == {}


def test_headers_of_the_cpp_client_have_no_cycles() -> None:
    """Each header includes others of its folder by name, none of them, by whatever way, itself."""
    folder = ROOT / "otel_bridge" / "clients" / "cpp" / "otel_bridge"
    included = {path.name: re.findall(r'^#include "(.+)"$', path.read_text(), re.MULTILINE) for path in folder.iterdir()}
    assert {name for names in included.values() for name in names} <= set(included)
    graphlib.TopologicalSorter(included).prepare()  # raises CycleError


def test_exceptions_to_the_rules_have_a_reason() -> None:
    """A `noqa` or `type: ignore` names its rule, and says why on the same line or in a comment just above."""
    marker = re.compile(r"#\s*(noqa|type:\s*ignore)(?P<rule>:?\s*[\w\-,\[\] ]*?)(?P<reason>\s*(?:#|-|:|\().*)?$")
    unexplained = []
    for path in python_files():
        lines = ["", *path.read_text().splitlines()]
        for number, (above, line) in enumerate(itertools.pairwise(lines), 1):
            found = marker.search(line)
            if found and path != THIS and not (re.search(r"\w{3}", found["reason"] or "") or above.strip().startswith("#")):
                unexplained.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()}")
    assert unexplained == []


def test_generated_code_is_current(tmp_path: Path) -> None:
    """`otel_bridge/v1` is, byte for byte, what `make proto` makes of `proto/`."""
    require("protoc")
    subprocess.run(["make", "--silent", "proto", f"PROTO_OUT={tmp_path}"], cwd=ROOT, check=True)
    made = {path.name: path.read_bytes() for path in (tmp_path / "otel_bridge" / "v1").iterdir()}
    kept = {path.name: path.read_bytes() for path in GENERATED.iterdir() if path.is_file() and path.name != "__init__.py"}
    assert made.keys() == kept.keys()
    assert [name for name in sorted(made) if made[name] != kept[name]] == []


def test_the_changelog_opens_with_this_version() -> None:
    """The newest version in CHANGELOG.md is the package's."""
    versions = re.findall(r"^## \[?(\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert versions[:1] == [otel_bridge.__version__]


def make_targets() -> set[str]:
    """Targets of the Makefile that a person may ask for."""
    return set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_documented_commands_exist() -> None:
    """Each `make X` in the code of README.md and docs/ is a target, and README.md names the two that a stranger needs."""
    named: dict[str, set[str]] = {}
    for document in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        code = "\n".join(re.findall(r"```.*?```|`[^`\n]+`", document.read_text(), re.DOTALL))
        named[document.name] = set(re.findall(r"(?:^[ $]*|`|&& )make ([a-z]+)\b", code, re.MULTILINE))
    assert {"demo", "test"} <= named["README.md"]
    assert {name: targets - make_targets() for name, targets in named.items() if targets - make_targets()} == {}


FOREIGN = {
    "a path of one machine": rb"(?<![\w.~])/(?:work|root|Users)/\w",
    "the address of a package registry": rb"pypi\.org|pythonhosted\.org|(?:proxy|sum)\.golang\.org|npmjs\.org|crates\.io"
    rb"|maven\.apache\.org|debian\.org|docker\.io|ghcr\.io",
}


@pytest.mark.parametrize("what", FOREIGN)
def test_the_project_is_of_no_machine(what: str) -> None:
    """No file, captures included, holds a path that one machine has, or an address that belongs into a machine's settings."""
    pattern = re.compile(FOREIGN[what])
    found = [
        f"{path.relative_to(ROOT)}: {match[0]!r}"
        for path in project_files()
        if path != THIS
        for match in pattern.finditer(path.read_bytes())
    ]
    assert found == []
