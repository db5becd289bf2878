"""
A real bridge with TLS and tokens, and what its operator and its clients do.

    secured = Secured(folder, make_certificates(folder))
    with running(folder, sink, way_in=secured.way_in, **secured.settings) as secured.service:
        secured.command("mapping", "list", token=secured.known("reader", Scope.MAPPINGS_READ))
"""

from pathlib import Path

import httpx
from click.testing import CliRunner, Result
from support.certificates import Certificates
from support.service import Service, WayIn

from otel_bridge.cli.main import otel_bridge as commands
from otel_bridge.model.identity import Scope


class Secured:
    """A bridge with TLS and tokens, and what it takes to get in."""

    def __init__(self, folder: Path, certificates: Certificates) -> None:
        self.folder = folder
        self.certificates = certificates
        self.way_in = WayIn(certificates.authority, self.token("admin", *Scope))
        self.service: Service

    def token(self, name: str, *scopes: Scope, tenant: str = "") -> Path:
        """A file with a new token, made as an operator does."""
        output = self.folder / f"{name}.token"
        options = [option for scope in scopes for option in ("--scope", scope)]
        done = self.token_command("create", name, *options, "--tenant", tenant, "--output", output)
        assert (done.exit_code, done.stdout) == (0, "")
        return output

    def known(self, name: str, *scopes: Scope, tenant: str = "") -> Path:
        """The same, once the bridge that runs has noticed it."""
        output = self.token(name, *scopes, tenant=tenant)
        self.service.process.wait_until(lambda: self.knows(output))
        return output

    def knows(self, token: Path) -> bool:
        """Whether the bridge takes it for a good one."""
        return httpx.get(
            f"https://{self.service.http}/metrics",
            headers={"authorization": f"Bearer {token.read_text().strip()}"},
            verify=self.way_in.context,
            trust_env=False,
            timeout=30,
        ).status_code in (200, 403)

    def token_command(self, *arguments: object) -> Result:
        """`otel-bridge token` in the data directory of this bridge."""
        return invoke("token", *arguments, "--data-dir", self.folder / "data")

    @property
    def settings(self) -> dict[str, str]:
        """Of the bridge, as variables."""
        made = self.certificates
        return {
            "SERVER__TLS_CERTIFICATE": str(made.server),
            "SERVER__TLS_KEY": str(made.server_key),
            "AUTH__ENABLED": "true",
        }

    def command(self, *arguments: object, token: Path | None = None, **variables: str) -> Result:
        """A command of a client that trusts this bridge."""
        said = ["--token-file", token] if token else []
        return invoke(*arguments, "--server", self.service.grpc, "--ca", self.way_in.ca, *said, **variables)


def invoke(*arguments: object, **variables: str) -> Result:
    """A command, run in this process."""
    return CliRunner(env=variables).invoke(commands, [*map(str, arguments)])
