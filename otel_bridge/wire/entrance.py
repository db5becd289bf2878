"""
What both doors have before them: TLS and the gate, as the settings want them, kept current while the bridge runs.

Invariant: a token that is created or revoked, and a certificate that is rotated, count within `LOOK_S` seconds and a moment.
"""

import asyncio
import logging
from collections.abc import Callable

from otel_bridge.auth.book import FILE_NAME
from otel_bridge.auth.gate import Gate
from otel_bridge.auth.keyring import Keyring
from otel_bridge.auth.refusals import Refusals, Watch
from otel_bridge.config.auth import AuthConfig
from otel_bridge.config.sections import ServerConfig
from otel_bridge.model.identity import Identity
from otel_bridge.wire.tls import DoorTls, TlsFiles

_log = logging.getLogger(__name__)

LOOK_S = 1.0
"""How often files are looked at: a `stat` each."""


class Entrance:
    """
    TLS and the gate; None: there is none.

    Raises `ConfigError` where a file cannot be used.
    """

    def __init__(self, tls: DoorTls | None = None, gate: Gate | None = None, *refresh: Callable[[], None]) -> None:
        self.tls = tls
        self.gate = gate
        self._refresh = (*refresh, tls.refresh) if tls is not None else refresh
        self._looking: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look after the files. Call it on the running loop."""
        if self._refresh:
            self._looking = asyncio.create_task(self._look())

    async def stop(self) -> None:
        """Look no more."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            for refresh in self._refresh:
                try:
                    await asyncio.to_thread(refresh)
                except Exception:  # noqa: BLE001 - whatever it is, what comes later is still to be seen
                    _log.exception("tokens or certificates could not be looked at; it is tried again")


def open_entrance(server: ServerConfig, auth: AuthConfig, watch: Watch) -> Entrance:
    """The entrance that the settings describe; `watch` is told of refusals. Raises `ConfigError`."""
    tls = None
    if server.tls_certificate and server.tls_key:
        files = TlsFiles(server.tls_certificate, server.tls_key, server.tls_client_ca)
        tls = DoorTls(files, http_needs_certificate=not auth.enabled)
    if not auth.enabled:
        return Entrance(tls)
    own = [server.data_dir / FILE_NAME] if server.data_dir is not None else []
    keyring = Keyring(own + ([auth.tokens_file] if auth.tokens_file is not None else []))
    if not len(keyring) and not auth.certificates:
        _log.warning("auth is on and there is no token yet: nobody comes in; make one with `otel-bridge token create`")
    gate = Gate(
        keyring,
        Refusals(watch),
        certificates={name: Identity(name, frozenset(each.scopes), each.tenant) for name, each in auth.certificates.items()},
        needs_certificate=server.tls_client_ca is not None,
    )
    return Entrance(tls, gate, keyring.refresh)
