"""How every command gets into a bridge."""

from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from support.commands import commands_of

from otel_bridge.cli import remote as module
from otel_bridge.cli.main import otel_bridge
from otel_bridge.cli.remote import Remote, explain, patiently
from otel_bridge.errors import BridgeRefused, BridgeUnavailable

WAYS = {"--server", "--token-file", "--ca", "--cert", "--key", "--plain-token"}


def commands(group: click.Command, path: str = "") -> Iterator[tuple[str, click.Command]]:
    """Every command, with the words that name it."""
    yield path, group
    if isinstance(group, click.Group):
        for name, command in commands_of(group).items():
            yield from commands(command, f"{path} {name}".strip())


REMOTE = {
    path: command
    for path, command in commands(otel_bridge)
    if any("--server" in parameter.opts for parameter in command.params)
}


def test_there_are_such_commands() -> None:
    """Those that talk to a bridge are found."""
    assert {"send", "watch", "mapping upload", "mapping list", "mapping missing"} <= set(REMOTE)


@pytest.mark.parametrize("path", REMOTE)
def test_each_command_takes_all_ways_in(path: str) -> None:
    """Whatever talks to a bridge can show a token and a certificate, and trust an authority of its own."""
    assert {name for parameter in REMOTE[path].params for name in parameter.opts} >= WAYS


def test_where_the_token_comes_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file counts before the variable; an empty variable is none; without both there is no token."""
    seen = []

    @click.command()
    @module.remote_options
    def probe(remote: Remote) -> None:
        seen.append(remote.token)

    file = tmp_path / "token"
    file.write_text("from-a-file")

    def call(*arguments: str) -> None:
        probe.main(list(arguments), standalone_mode=False)

    call()
    monkeypatch.setenv("OTEL_BRIDGE_TOKEN", "from-a-variable")
    call()
    call("--token-file", str(file))
    monkeypatch.setenv("OTEL_BRIDGE_TOKEN", "")
    call()
    assert seen == [None, "from-a-variable", file, None]


@pytest.mark.parametrize(
    ("details", "told"),
    [
        ("Tls handshake failed: CERTIFICATE_VERIFY_FAILED", "name one with --ca"),
        ("Ssl handshake failed: WRONG_VERSION_NUMBER", "it speaks plain text"),
        ("Ssl handshake failed: ALERT", "give --cert and --key"),
        ("Socket closed", "where it speaks TLS, write https://"),
        ("Connection refused", "start one with `otel-bridge serve`"),
    ],
)
def test_connections_that_fail(details: str, told: str) -> None:
    """What gRPC says of a connection that fails becomes what to do about it."""
    error = BridgeUnavailable(f"no bridge answers: {details}", code="UNAVAILABLE", reason=module.UNREACHABLE)
    assert told in explain("host:1", error)


def test_a_token_that_is_missing() -> None:
    """A refusal for want of a credential says how to give one."""
    error = BridgeRefused("said", code="UNAUTHENTICATED", reason="unauthenticated")
    assert explain("host:1", error) == "said (--token-file FILE, or OTEL_BRIDGE_TOKEN)"


def test_patience_has_an_end() -> None:
    """A bridge that asks for patience gets it five times, a minute at the longest each, whatever it asks for."""
    waits: list[float] = []

    def call() -> None:
        raise BridgeUnavailable("full", retry_after_s=(2.0, 1e9)[len(waits) % 2])

    with pytest.raises(BridgeUnavailable):
        patiently(call, waits.append)
    assert waits == [2.0, 60.0, 2.0, 60.0, 2.0]
