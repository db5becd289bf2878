"""
Fuzz one target, guided by coverage (atheris, libFuzzer).

    run.py TARGET FOLDER ... [-FLAG=VALUE ...]

What is new goes into the first folder; the flags are libFuzzer's. Ends at the first finding, whose input is kept as a file
`crash-*`, `timeout-*` or `oom-*`, and with an exit code that is not 0.
"""

import sys
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parents[1]))

with atheris.instrument_imports(include=["otel_bridge"], exclude=["otel_bridge.v1"]):
    from fuzz.targets import TARGETS


def main() -> None:
    """Run until a flag says so, or something is found."""
    name = sys.argv.pop(1)
    atheris.Setup(sys.argv, TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
