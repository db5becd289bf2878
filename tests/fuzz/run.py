"""
Fuzz one target, guided by coverage (atheris, libFuzzer).

    python -m fuzz.run TARGET FOLDER ... [-FLAG=VALUE ...]

What is new goes into the first folder; the flags are libFuzzer's. Ends at the first finding, whose input is kept as a file
`crash-*`, `timeout-*` or `oom-*`, and with an exit code that is not 0.
"""

import sys

import atheris

with atheris.instrument_imports(include=["otel_bridge"], exclude=["otel_bridge.v1"]):
    from fuzz.targets import TARGETS


def main() -> None:
    """Run until a flag says so, or something is found."""
    name, *rest = sys.argv[1:]
    again = f"{sys.executable} -m fuzz.run {name}"  # what libFuzzer starts where it needs a process of its own, as for -merge
    atheris.Setup([again, *rest], TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
