"""`otel-bridge header`: what it writes, and where. Whether it builds is seen in tests/cpp/test_one_header.py."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from otel_bridge import __version__

FOLDER = Path(__file__).parents[2] / "otel_bridge" / "clients" / "cpp"


@pytest.mark.parametrize("options", [(), ("--with", "curl"), ("--with", "curl", "--with", "grpc", "--with", "curl")])
def test_a_file_holds_what_the_terminal_shows(options: tuple[str, ...], cli: Callable[..., Any], tmp_path: Path) -> None:
    """Without -o the header goes to standard output, byte for byte; with it, into the file alone."""
    shown = cli("header", *options)
    written = cli("header", *options, "-o", tmp_path / "one.h")
    assert (shown.code, shown.err) == (written.code, written.err) == (0, "")
    assert written.out == ""
    assert (tmp_path / "one.h").read_text() == shown.out


def test_nothing_of_ours_stays_outside(cli: Callable[..., Any]) -> None:
    """With all transports it has each class of the folder once, includes nothing of ours, and the rest once each."""
    text = cli("header", "--with", "grpc", "--with", "curl").out
    defined = re.compile(r"^(?:class|struct|enum class) (\w+)[^;\n]*\{$", re.MULTILINE)
    ours = [name for path in FOLDER.glob("**/*.h") for name in defined.findall(path.read_text())]
    assert sorted(defined.findall(text)) == sorted(ours)
    assert '#include "' not in text
    assert "#pragma once" not in text
    outside = re.sub(r"^#if OTEL_BRIDGE_HOSTED[^\n]*\n.*?^#endif\n", "", text, flags=re.MULTILINE | re.DOTALL)
    included = re.findall(r"^#include (<.*>)$", outside, re.MULTILINE)
    assert "<executorch/runtime/core/event_tracer.h>" in included
    assert len(included) == len(set(included))


def test_it_says_what_it_is(cli: Callable[..., Any]) -> None:
    """Licence, version and the command that made it open the file, before its guard."""
    lines = cli("header", "--with", "grpc").out.splitlines()
    assert lines[0].endswith("SPDX-License-Identifier: Apache-2.0")
    assert lines[1] == f"// otel-bridge {__version__}, in one file: made by `otel-bridge header --with grpc`."
    assert lines[2].split() == ["#ifndef", lines[3].split()[1]]
    assert lines[-1] == f"#endif  // {lines[3].split()[1]}"
    assert sum("SPDX" in line for line in lines) == 1


def test_a_file_that_cannot_be_written(cli: Callable[..., Any], tmp_path: Path) -> None:
    """It is told in one line."""
    assert cli("header", "-o", tmp_path / "none" / "one.h").error.endswith(
        "one.h: cannot be written: No such file or directory"
    )
