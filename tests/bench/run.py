"""Run every benchmark beside this file, in order of name: each `bench_*.py` with a `main()`, which prints what it measured."""

import importlib
import sys
from pathlib import Path


def main() -> None:
    """All benchmarks, or those whose names hold one of the given words."""
    folder = Path(__file__).parent
    sys.path.insert(0, str(folder))
    sys.path.insert(1, str(folder.parent))  # for `support`
    wanted = sys.argv[1:]
    for path in sorted(folder.glob("bench_*.py")):
        if wanted and not any(word in path.stem for word in wanted):
            continue
        benchmark = importlib.import_module(path.stem)
        if hasattr(benchmark, "main"):
            print(f"== {path.stem.removeprefix('bench_')}", flush=True)
            benchmark.main()


if __name__ == "__main__":
    main()
