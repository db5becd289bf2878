"""Every command: help, exit codes, and what is told of a command that is written wrongly."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import click
import pytest
from support.commands import commands_of
from support.service import otel_bridge as run

from otel_bridge import __version__
from otel_bridge.cli.main import otel_bridge


def commands(group: click.Command = otel_bridge, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command and group, with the words that name it."""
    yield path, group
    if isinstance(group, click.Group):
        for name, command in commands_of(group).items():
            yield from commands(command, (*path, name))


COMMANDS = dict(commands())


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help(path: tuple[str, ...], cli: Callable[..., Any]) -> None:
    """Each command explains itself and each of its options, and the explanation ends with 0."""
    done = cli(*path, "--help")
    assert (done.code, done.err) == (0, "")
    command = COMMANDS[path]
    assert command.help
    assert done.out.startswith(f"Usage: {' '.join(('otel-bridge', *path))}")
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help
            assert parameter.opts[-1] in done.out
        else:
            assert str(parameter.metavar or parameter.name).upper().split(".")[0] in done.out.upper()
    short = cli(*path, "-h")
    assert (short.code, short.err, short.out) == (0, "", done.out)


def test_a_command_loads_what_it_needs() -> None:
    """What sends to a bridge starts without the service: without its web server, its database and its settings."""
    program = "import sys; from otel_bridge.cli.main import main; sys.argv = ['otel-bridge', *{}]\n"
    program += "try: main()\nexcept SystemExit: print(*sys.modules)"
    for words in (["send", "--help"], ["watch", "--help"], ["mapping", "upload", "--help"]):
        command = [sys.executable, "-c", program.format(words)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert not {"starlette", "uvicorn", "sqlalchemy", "pydantic_settings"} & set(done.stdout.split())


def test_version(cli: Callable[..., Any]) -> None:
    """The version is the package's."""
    assert cli("--version").out == f"otel-bridge, version {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "Usage: otel-bridge"),
        (("mapping",), "Usage: otel-bridge mapping"),
        (("nonsense",), "No such command 'nonsense'"),
        (("serve", "--nonsense"), "No such option"),
        (("serve", "extra"), "unexpected extra argument"),
        (("send", "--model", "m"), "Missing argument 'RUN.etdp..."),
        (("send", "run.etdp"), "say which model ran: --model NAME@VERSION or --build-id ID"),
        (("send", "run.etdp", "--model", "m", "--resource", "novalue"), "'novalue' must look like KEY=VALUE"),
        (("send", "run.etdp", "--model", "m", "--resource", "=v"), "'=v' must look like KEY=VALUE"),
        (("replay", "run.etdp", "--output", "-"), "Missing option '--mapping'"),
        (("replay", "run.etdp", "--mapping", "m"), "say where the spans go"),
        (("replay", "run.etdp", "--mapping", "m", "--output", "-", "--otlp-endpoint", "http://x"), "say where the spans go"),
        (("inspect",), "Missing argument 'RUN.etdp'"),
        (("inspect", "run.etdp", "--format", "xml"), "'xml' is not one of 'table', 'csv', 'json'"),
        (("inspect", "run.etdp", "--tick-ratio", "0"), "must be N or N/D, nanoseconds a tick as positive integers"),
        (("inspect", "run.etdp", "--tick-ratio", "1/0"), "must be N or N/D"),
        (("inspect", "run.etdp", "--tick-ratio", "1.5"), "must be N or N/D"),
        (("inspect", "run.etdp", "--tick-ratio", "9" * 5000), "must be N or N/D"),
        (("inspect", "run.etdp", "--counter-bits", "65"), "65 is not in the range 1<=x<=64"),
        (("inspect", "run.etdp", "--anchor", "12"), "must look like TICKS=TIME"),
        (("inspect", "run.etdp", "--anchor", "-1=2026-01-01T00:00:00Z"), "must look like TICKS=TIME"),
        (("inspect", "run.etdp", "--anchor", "18446744073709551616=2026-01-01T00:00:00Z"), "must look like TICKS=TIME"),
        (("inspect", "run.etdp", "--anchor", "9" * 5000 + "=2026-01-01T00:00:00Z"), "must look like TICKS=TIME"),
        (("inspect", "run.etdp", "--anchor", "1=yesterday"), "must be a time by RFC 3339"),
        (("inspect", "run.etdp", "--ended-at", "2026-13-01T00:00:00Z"), "must be a time by RFC 3339"),
        (("inspect", "run.etdp", "--ended-at", "2026-01-01"), "must be a time by RFC 3339"),
        (("inspect", "run.etdp", "--ended-at", "1969-12-31T23:59:59Z"), "must not be before 1970"),
        (("inspect", "run.etdp", "--ended-at", "2400-01-01T00:00:00Z"), "must not be after 2262-04-11"),
        (("mapping", "build", "source"), "Missing option '-o'"),
        (("mapping", "build", "s", "-o", "o", "--pte", "no such program.pte"), "'no such program.pte' does not exist"),
        (("mapping", "upload"), "Missing argument 'SOURCE'"),
        (("mapping", "alias", "m@1"), "Missing argument 'REF'"),
        (("mapping", "alias", "\udcff", "ref"), r"the argument '\udcff' is not UTF-8"),
        (("mapping", "show", "\udcff"), r"the argument '\udcff' is not UTF-8"),
    ],
)
def test_a_command_that_is_written_wrongly(arguments: tuple[str, ...], told: str, cli: Callable[..., Any]) -> None:
    """What cannot be understood ends with 2 and says what was expected, before anything is read or sent."""
    done = cli(*arguments)
    assert (done.code, done.out) == (2, "")
    assert told in done.err
    assert "Traceback" not in done.err


def test_the_process_ends_as_the_command_does() -> None:
    """Exit codes reach the shell: 0 done, 1 the input says no, 2 the command is written wrongly; errors go to stderr."""
    for arguments, code in ((("config", "check"), 0), (("inspect", "no such file"), 1), (("inspect",), 2)):
        done = run(*arguments)
        assert done.returncode == code
        assert (done.stderr == "") == (code == 0)
        assert (done.stdout == "") == (code != 0)
        assert "Traceback" not in done.stderr


SERVER_COMMANDS = (
    ("mapping", "list"),
    ("mapping", "show", "ref"),
    ("mapping", "delete", "ref"),
    ("mapping", "alias", "m@1", "ref"),
)


@pytest.mark.parametrize("server", ["127.0.0.1:1", "no-such-host.invalid:4417"])
@pytest.mark.parametrize("arguments", SERVER_COMMANDS, ids=" ".join)
def test_no_bridge(arguments: tuple[str, ...], server: str, cli: Callable[..., Any]) -> None:
    """Where no bridge answers, that is said, with the address and the way out."""
    error = cli(*arguments, "--server", server).error
    assert error == f"no bridge answers at {server}: start one with `otel-bridge serve`, or name another with --server"


def test_config(cli: Callable[..., Any], tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """`config show` prints a file of the same settings, which `check` takes; each fault is one line."""
    monkeypatch.setenv("OTEL_BRIDGE_SERVER__DRAIN_S", "3")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=of-nobody-else")
    shown = cli("config", "show")
    assert shown.code == 0
    assert "\ndrain_s = 3.0\n" in shown.out
    assert "of-nobody-else" not in shown.out
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_HEADERS")
    monkeypatch.delenv("OTEL_BRIDGE_SERVER__DRAIN_S")
    file = tmp_path / "bridge.toml"
    file.write_text(cli("config", "show").out)
    assert cli("config", "check", "--config", file).out == "the settings are in order\n"
    file.write_text("[server]\ndrain = 3\n")
    assert cli("config", "check", "--config", file).error == "server.drain is not a setting; did you mean server.drain_s?"
    file.write_text("[server]\ndrain_s = -1\nmax_request_bytes = 'x'\n")
    done = cli("config", "check", "--config", file)
    assert (done.code, len(done.err.splitlines())) == (1, 3)
    assert "no such file" not in done.err
