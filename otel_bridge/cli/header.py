"""
`otel-bridge header`: the C++ client as one file.

Invariants
* Each of our headers is inlined once, where it is first included; what belongs to the system, ExecuTorch and libcurl stays an
  include, and stands once unless a condition surrounds it.
* What is written depends on the package and the options alone.
"""

from importlib.resources import files
from pathlib import Path, PurePosixPath

import click

from otel_bridge import __version__

_HEADERS = files("otel_bridge") / "clients" / "cpp"
_GUARD = "OTEL_BRIDGE_SINGLE_HEADER"
_LICENCE = "// Copyright (c) the otel-bridge authors. SPDX-License-Identifier: Apache-2.0"


@click.command()
@click.option(
    "--with",
    "transports",
    type=click.Choice(["grpc", "curl"]),
    multiple=True,
    help="A transport that comes along: h2c gRPC on POSIX sockets, HTTPS through libcurl. Repeatable.",
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="File to write; standard output if there is none.")
def header(transports: tuple[str, ...], output: Path | None) -> None:
    """Write the C++ client as one header.

    For projects that would rather add one file than a folder.
    """
    text = one_header([name for name in ("grpc", "curl") if name in transports])
    if output is None:
        click.echo(text, nl=False)
        return
    try:
        output.write_text(text, encoding="ascii")
    except OSError as error:
        raise click.ClickException(f"{output}: cannot be written: {error.strerror}") from error


def one_header(transports: list[str]) -> str:
    """`otel_bridge.h` and the headers of these transports, with all that they include of ours, as one text."""
    seen: set[str] = set()
    parts = [line for name in ("", *(f"_{each}" for each in transports)) for line in _inlined(f"otel_bridge{name}.h", seen)]
    made_by = " ".join(["otel-bridge header", *(f"--with {name}" for name in transports)])
    lines = [
        _LICENCE,
        f"// otel-bridge {__version__}, in one file: made by `{made_by}`.",
        f"#ifndef {_GUARD}",
        f"#define {_GUARD}",
        "",
        *parts,
        "",
        f"#endif  // {_GUARD}",
        "",
    ]
    kept = [line for line, above in zip(lines, ["", *lines], strict=False) if line or above]  # one blank line is enough
    return "\n".join(kept)


def _inlined(name: str, seen: set[str]) -> list[str]:
    """The lines of a header, without its licence and guard; none if it was seen before."""
    if name in seen:
        return []
    seen.add(name)
    made: list[str] = []
    conditions = 0
    for line in (_HEADERS / name).read_text(encoding="ascii").removeprefix(f"{_LICENCE}\n//\n").splitlines():
        conditions += line.startswith("#if")
        conditions -= line.startswith("#endif")
        if line.startswith('#include "'):
            made += _inlined(str(PurePosixPath(name).parent / line.split('"')[1]), seen)
        elif line.startswith("#include <") and conditions == 0:
            made += [] if line in seen else [line]
            seen.add(line)
        elif line != "#pragma once":
            made.append(line)
    return made
