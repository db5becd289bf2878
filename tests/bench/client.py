"""
What the C++ client costs a device, beside ETDumpGen on the same calls in the same run: `make bench-client`.

Printed: a row a subject, median (min..max) of rounds that take turns; and the size of the example program, stripped.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # for `support`

import pytest
from rounds import spread
from support.cpp import HEADERS, build, run

BENCH = Path(__file__).parent
MODEL = BENCH.parent / "fixtures" / "xnnpack" / "model.pte"
SMALL = ("-Os", "-s")
FORMS = {"ns an event": ",.0f", "us an inference": ",.2f", "B an event": ",.1f"}


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        try:
            program = build(folder, [BENCH / "bench_client.cpp"], wheel=True, flags=("-O2",))
            example = build(folder, [HEADERS / "example" / "main.cpp"], wheel=True, flags=SMALL, libraries=("-ldl",))
        except pytest.skip.Exception as missing:
            sys.exit(f"bench-client {missing}")
        rows = json.loads(run(program, MODEL).decode().splitlines()[-1])
        example_kb = example.stat().st_size / 1000
    head = ""
    for what, unit, subject, *values in rows:
        if what != head:
            print(f"{what}, {unit}")
            head = what
        shown = spread(values, FORMS[unit]) if len(values) > 1 else f"{values[0]:{FORMS[unit]}}"
        print(f"  {subject:<30} {shown:>28}")
    print(f"the example program, stripped\n  {'':<30} {example_kb:>25,.0f} kB")


if __name__ == "__main__":
    try:
        main()
    except subprocess.TimeoutExpired as late:
        sys.exit(f"bench-client: {late}")
