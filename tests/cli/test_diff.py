"""`otel-bridge mapping diff`."""

import json
from pathlib import Path

from click.testing import CliRunner, Result
from support.mappings import FIXTURES

from otel_bridge.cli.main import otel_bridge
from otel_bridge.mapping.source import read_source, write_file


def diff(*arguments: object) -> Result:
    """Run the command."""
    return CliRunner().invoke(otel_bridge, ["mapping", "diff", *map(str, arguments)])


def record(model: str) -> Path:
    """A capture's ETRecord."""
    return FIXTURES / model / "model.etrecord"


def test_equal_builds_exit_with_0(tmp_path: Path) -> None:
    """An ETRecord and the mapping that was built from it, in each of its forms."""
    source = record("mixed_ops")
    for name in ("model.otelmap", "model.json"):
        built = tmp_path / name
        built.write_bytes(write_file(read_source(source.read_bytes()), name))
        done = diff(source, built)
        assert (done.exit_code, done.stdout) == (0, "equal: the same operators run at the same places, fused alike\n")
        assert json.loads(diff(source, built, "--json").stdout)["equal"] is True


def test_what_changed_is_listed_and_exits_with_1() -> None:
    """`portable_only` is `mixed_ops` without delegates: a linear becomes two kernels, the rest moves to kernels."""
    done = diff(record("mixed_ops"), record("portable_only"))
    rows = [line.split() for line in done.stdout.splitlines()]
    assert done.exit_code == 1
    assert ["moved", "forward", "aten.add.Tensor", "XnnpackBackend", "kernel"] in rows
    assert ["removed", "forward", "a", "aten.linear.default", "XnnpackBackend", "-"] in rows
    assert ["added", "forward", "a", "aten.addmm.default", "-", "kernel"] in rows
    verdict = "different methods_added=0 methods_removed=0 added=4 removed=2 moved=3 fused=0"
    assert done.stdout.splitlines()[-1] == verdict


def test_json_lists_the_same() -> None:
    """With ids, as on the spans."""
    done = diff(record("toy_backend_int"), record("two_backends"), "--json")
    (method,) = json.loads(done.stdout)["methods"]
    assert done.exit_code == 1
    assert {method["labels"][move["id"]] for move in method["moved"]} == {
        "c1 aten.convolution.default", "c2 aten.convolution.default", "aten.relu.default", "aten.tan.default",
    }  # fmt: skip
    assert [[group["identifier"] for group in fusion["before"]] for fusion in method["fused"]] == [["1"]]


def test_a_method_that_is_new_is_a_change() -> None:
    """`multi_method` has `encode` and `decode`, `xnnpack` has `forward`."""
    done = diff(record("xnnpack"), record("multi_method"))
    rows = [line.split() for line in done.stdout.splitlines()]
    assert done.exit_code == 1
    assert ["removed", "forward", "(the", "method)", "-", "-"] in rows
    assert sum(row[:1] == ["added"] for row in rows) == 2


def test_a_comparison_by_handle_says_so() -> None:
    """On stderr, so that a pipe gets the difference alone."""
    done = diff(FIXTURES / "toy_backend_int" / "maps.json", record("toy_backend_int"))
    assert done.exit_code == 0
    assert "forward: no operators are known on one side" in done.stderr


def test_a_source_that_cannot_be_read_exits_with_2(tmp_path: Path) -> None:
    """1 would say that the builds differ; the message names the file."""
    bad = tmp_path / "bad.json"
    bad.write_text("{")
    for arguments in ((bad, record("xnnpack")), (record("xnnpack"), tmp_path / "none"), (record("xnnpack"),)):
        done = diff(*arguments)
        assert (done.exit_code, done.stdout) == (2, "")
    assert str(bad) in diff(bad, record("xnnpack")).stderr
