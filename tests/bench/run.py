"""
Run every benchmark beside this file, in order of name: each `bench_*.py` with a `main(effort)`, which prints what it measured.

    run.py [--json FILE] [--full | --tiny] [--only WORD ...]    all, or those whose names hold one of the words

--full adds the long lines; --tiny shows that everything runs, and measures nothing; FILE gets every value of every round.
"""

import argparse
import importlib
import json
import os
import platform
import sys
import time
from pathlib import Path


def main() -> None:
    """All benchmarks, or those whose names hold one of the given words."""
    parser = argparse.ArgumentParser(description="Speeds, as ratios in one run.")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every measured value there")
    effort = parser.add_mutually_exclusive_group()
    effort.add_argument("--full", action="store_true", help="measure the long lines, too")
    effort.add_argument("--tiny", action="store_true", help="run everything once, for no more than to see that it runs")
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="WORD", help="run only benchmarks whose names hold one of these"
    )
    asked = parser.parse_args()
    folder = Path(__file__).parent
    sys.path.insert(0, str(folder))
    sys.path.insert(1, str(folder.parent))  # for `support`
    from rounds import Effort  # noqa: PLC0415 - found by the lines above

    figures = {}
    for path in sorted(folder.glob("bench_*.py")):
        name = path.stem.removeprefix("bench_")
        if asked.only and not any(word in name for word in asked.only):
            continue
        print(f"== {name}", flush=True)
        begin = time.monotonic()
        for figure in importlib.import_module(path.stem).main(Effort(asked.tiny, asked.full)):
            figures[f"{name}/{figure.name}"] = {"unit": figure.unit, "values": list(figure.values)}
        print(f"   {time.monotonic() - begin:.0f} s", flush=True)
    if asked.json:
        machine = {"python": platform.python_version(), "processors": os.cpu_count(), "machine": platform.machine()}
        asked.json.write_text(json.dumps({"machine": machine, "figures": figures}, indent=1) + "\n")


if __name__ == "__main__":
    main()
