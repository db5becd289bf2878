"""Each command that talks to a bridge gets in where the bridge demands TLS, a certificate and a token, and not without."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from support.certificates import make_certificates
from support.commands import commands_of
from support.otlp_sink import OtlpSink
from support.secured import Secured, invoke
from support.service import WayIn, running

from otel_bridge.cli.main import otel_bridge
from otel_bridge.model.identity import Scope

FIXTURE = Path(__file__).parents[1] / "fixtures" / "toy_backend_int"
RECORD = FIXTURE / "model.etrecord"

COMMANDS: dict[str, tuple[Scope, tuple[object, ...]]] = {
    "mapping upload": (Scope.MAPPINGS_WRITE, (RECORD, "--build-id", "b1")),
    "mapping alias": (Scope.MAPPINGS_WRITE, ("toy@1", "b1")),
    "mapping list": (Scope.MAPPINGS_READ, ()),
    "mapping show": (Scope.MAPPINGS_READ, ("b1",)),
    "mapping missing": (Scope.MAPPINGS_READ, ()),
    "send": (Scope.EVENTS_WRITE, (FIXTURE / "run.etdp", "--model", "toy@1")),
    "watch": (Scope.EVENTS_WRITE, ("pulled", "--model", "toy@1", "--once", "--interval", "0.05")),
    "loadgen": (Scope.EVENTS_WRITE, ("--events", "9", "--batch", "9", "--patience", "0")),
    "mapping delete": (Scope.MAPPINGS_WRITE, ("b1",)),
}
"""In an order in which they may be run: the scope that each needs, and its arguments."""


def names(group: click.Group, path: str = "") -> Iterator[str]:
    """The commands that talk to a bridge."""
    for name, command in commands_of(group).items():
        if isinstance(command, click.Group):
            yield from names(command, f"{name} ")
        elif any("--server" in parameter.opts for parameter in command.params):
            yield f"{path}{name}"


class Demanding(Secured):
    """A bridge that wants certificates of clients, too."""

    @property
    def settings(self) -> dict[str, str]:
        """Of the bridge, as variables."""
        return super().settings | {"SERVER__TLS_CLIENT_CA": str(self.certificates.authority)}


@pytest.fixture(scope="module")
def demanding(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demanding]:
    """One that runs."""
    folder = tmp_path_factory.mktemp("demanding")
    demanding = Demanding(folder, made := make_certificates(folder))
    demanding.way_in = WayIn(made.authority, demanding.way_in.token)
    demanding.way_in.context.load_cert_chain(made.client, made.client_key)
    with OtlpSink() as sink, running(folder, sink, way_in=demanding.way_in, **demanding.settings) as demanding.service:
        yield demanding


def test_each_command_gets_in(demanding: Demanding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    With a certificate and a token of the one scope that it needs, from a file or from the variable, each command does its work.

    Without either, or with a token of all other scopes, it ends with 1, and nothing is done.
    """
    assert set(COMMANDS) == set(names(otel_bridge))
    made = demanding.certificates
    tls = ("--server", demanding.service.grpc, "--ca", made.authority)
    own = ("--cert", made.client, "--key", made.client_key)
    mutual = (*tls, *own)
    monkeypatch.chdir(tmp_path)
    pulled = tmp_path / "pulled"
    pulled.mkdir()
    right_of = {
        scope: demanding.known(f"{scope}".replace(":", "-"), scope) for scope in {scope for scope, _ in COMMANDS.values()}
    }
    wrong_of = {each: demanding.known(f"all-but-{token.stem}", *set(Scope) - {each}) for each, token in right_of.items()}
    for command, (scope, arguments) in COMMANDS.items():
        words, right, wrong = (*command.split(), *arguments), right_of[scope], wrong_of[scope]
        shutil.copy(FIXTURE / "run10.etdp", pulled)
        before = demanding.service.ledger().accepted, demanding.service.command("mapping", "list", "--json", *own)
        for refused in ((*tls, "--token-file", right), mutual, (*mutual, "--token-file", wrong)):
            done = invoke(*words, *refused)
            assert done.exit_code == 1, (command, done.output)
        after = demanding.service.ledger().accepted, demanding.service.command("mapping", "list", "--json", *own)
        assert after == before, command
        assert invoke(*words, *mutual, "--token-file", right).exit_code == 0, command
        if command != "mapping delete":
            shutil.copy(FIXTURE / "run10.etdp", pulled)
            assert invoke(*words, *mutual, OTEL_BRIDGE_TOKEN=right.read_text().strip()).exit_code == 0, command
