"""`make bench` is run by people, so nothing else would notice that a benchmark does not even begin."""

import importlib.util
import inspect
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[1] / "bench"


@pytest.mark.parametrize("path", sorted(BENCH.glob("bench_*.py")), ids=lambda path: path.stem)
def test_a_benchmark_can_be_begun(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It imports what there is, and gives the figures that `run.py` writes down."""
    monkeypatch.syspath_prepend(BENCH)
    before = set(sys.modules)
    try:
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, path.stem, module)
        spec.loader.exec_module(module)
        assert "list[" in str(inspect.signature(module.main).return_annotation)
    finally:
        for name in set(sys.modules) - before:
            if (BENCH / f"{name}.py").exists():
                del sys.modules[name]
