"""
What both doors have before them: TLS and the gate, as the settings want them, kept current while the bridge runs.

Invariant: a token that is created or revoked, a certificate that is rotated, and keys of an identity provider that are due
count within `LOOK_S` seconds and a moment.
"""

import asyncio
import logging
from collections.abc import Callable

from otel_bridge.auth.book import FILE_NAME
from otel_bridge.auth.gate import Gate
from otel_bridge.auth.keyring import Keyring
from otel_bridge.auth.keys import open_keys
from otel_bridge.auth.rates import Rates
from otel_bridge.auth.refusals import Refusals, Watch
from otel_bridge.auth.web_token import WebTokens
from otel_bridge.config.bridge import BridgeConfig
from otel_bridge.model.identity import Identity
from otel_bridge.wire.intake import Spend, for_nothing
from otel_bridge.wire.tls import DoorTls, TlsFiles

_log = logging.getLogger(__name__)

LOOK_S = 1.0
"""How often files are looked at: a `stat` each."""


class Entrance:
    """
    TLS and the gate; None: there is none.

    spend   to be told what tenants have sent

    Raises `ConfigError` where a file cannot be used.
    """

    def __init__(
        self,
        tls: DoorTls | None = None,
        gate: Gate | None = None,
        *refresh: Callable[[], None],
        spend: Spend = for_nothing,
    ) -> None:
        self.tls = tls
        self.gate = gate
        self.spend = spend
        self._refresh = (*refresh, tls.refresh) if tls is not None else refresh
        self._looking: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to look after the files. Call it on the running loop."""
        self._looking = [asyncio.create_task(_look(refresh)) for refresh in self._refresh]

    async def stop(self) -> None:
        """Look no more."""
        for task in self._looking:
            task.cancel()
        await asyncio.gather(*self._looking, return_exceptions=True)


async def _look(refresh: Callable[[], None]) -> None:
    """Each by itself: an identity provider that does not answer holds up no revoked token."""
    while True:
        await asyncio.sleep(LOOK_S)
        try:
            await asyncio.to_thread(refresh)
        except Exception:  # noqa: BLE001 - whatever it is, what comes later is still to be seen
            _log.exception("tokens, certificates or keys could not be looked at; it is tried again")


def open_entrance(config: BridgeConfig, watch: Watch) -> Entrance:
    """The entrance that the settings describe; `watch` is told of refusals. Raises `ConfigError`."""
    server, auth = config.server, config.auth
    tls = None
    if server.tls_certificate and server.tls_key:
        files = TlsFiles(server.tls_certificate, server.tls_key, server.tls_client_ca)
        tls = DoorTls(files, http_needs_certificate=not auth.enabled)
    if not auth.enabled:
        return Entrance(tls)
    own = [server.data_dir / FILE_NAME] if server.data_dir is not None else []
    keyring = Keyring(own + ([auth.tokens_file] if auth.tokens_file is not None else []))
    keys = open_keys(config.jwt) if config.jwt.enabled else None
    if not len(keyring) and not auth.certificates and keys is None:
        _log.warning("auth is on and there is no token yet: nobody comes in; make one with `otel-bridge token create`")
    rates = Rates(config.tenants)
    gate = Gate(
        keyring,
        Refusals(watch),
        certificates={name: Identity(name, frozenset(each.scopes), each.tenant) for name, each in auth.certificates.items()},
        needs_certificate=server.tls_client_ca is not None,
        web_tokens=WebTokens(config.jwt, keys) if keys is not None else None,
        rates=rates,
    )
    return Entrance(tls, gate, keyring.refresh, *([keys.refresh] if keys is not None else []), spend=rates.spend)
