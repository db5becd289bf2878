"""
The public keys of an identity provider (JSON Web Key Set, RFC 7517), from a file or from where it publishes them.

Invariants
* `keys` and `miss` are answered from memory and never wait; `refresh` reads and fetches, off the event loop.
* What cannot be fetched or understood changes nothing: the keys that were there go on, which is logged once.
* Nobody who shows a token can make the bridge fetch more often than once in `unknown_key_wait_s`.
* Public keys for signatures only: what else a set holds is passed over, and costs the others nothing.
"""

import asyncio
import json
import logging
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import httpx
import jwt

from otel_bridge.config.jwt import JwtConfig
from otel_bridge.config.reload import Reloaded
from otel_bridge.errors import ConfigError

MAX_BYTES = 1 << 20
"""Of a set. A provider's has some KB."""

_SOON_S = 2.0
"""When it is worth a try again where keys are about to be fetched."""

_log = logging.getLogger(__name__)

_OF_RSA = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})


@dataclass(frozen=True, slots=True)
class Key:
    """A public key (of `cryptography`), and the algorithms that it may check: the one that it names, or those of its type."""

    public: Any
    algorithms: frozenset[str]


Keys = Mapping[str, tuple[Key, ...]]
"""Key id ("": it has none) -> its keys, at least one: those of several types may share it (RFC 7517, section 4.5)."""


class KeySource(Protocol):
    """Where keys come from."""

    @property
    def keys(self) -> Keys | None:
        """The keys as they are known now; None: none could be had yet."""

    def refresh(self) -> None:
        """Look whether there are others. Not for an event loop."""

    def miss(self) -> float | None:
        """Told that a key is not known: seconds after which it may be; None: there is no such key."""


def read_keys(text: bytes, where: str) -> Keys:
    """The keys of a set. Raises `ConfigError`."""
    try:
        listed = [each for each in json.loads(text)["keys"] if isinstance(each, dict)]
    except (ValueError, TypeError, KeyError, RecursionError):
        listed = []
    keys: dict[str, tuple[Key, ...]] = {}
    for each in listed:
        if (key := _key(each)) is not None:
            name = str(each.get("kid", ""))
            keys[name] = (*keys.get(name, ()), key)
    if not keys:
        raise ConfigError(f"{where}: {len(text)} bytes without a public key for signatures; it must be a JSON Web Key Set")
    return keys


def _key(told: dict[str, Any]) -> Key | None:
    if told.get("kty") == "oct" or "d" in told or not _is_for_signatures(told):
        return None
    try:
        read = jwt.PyJWK(told)
    except Exception:  # noqa: BLE001 - whatever the library has against it, such as `NotImplementedError` for "none"
        return None
    if "alg" not in told and told["kty"] == "RSA":
        return Key(read.key, _OF_RSA)
    return Key(read.key, frozenset({read.algorithm_name}))


def _is_for_signatures(told: dict[str, Any]) -> bool:
    """Whether a key may check signatures by its `use` and `key_ops`; one that says nothing may."""
    operations = told.get("key_ops", ["verify"])
    return told.get("use", "sig") == "sig" and isinstance(operations, list) and "verify" in operations


class FileKeys:
    """Keys in a file. Raises `ConfigError`."""

    def __init__(self, path: Path) -> None:
        self._file = Reloaded([path], partial(_read, path))

    @property
    def keys(self) -> Keys:
        """See `KeySource`."""
        return self._file.value

    def refresh(self) -> None:
        """See `KeySource`."""
        self._file.refresh()

    def miss(self) -> None:
        """See `KeySource`: the file has no other keys."""


class UrlKeys:
    """
    Keys that `fetch` fetches, which raises `ConfigError`; where that fails at first, it is tried again.

    max_age_s   after which they are fetched anew
    wait_s      the least time between two tries for the sake of a key that is not known
    """

    def __init__(
        self,
        fetch: Callable[[], Keys],
        *,
        max_age_s: float,
        wait_s: float,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fetch = fetch
        self._max_age_s = max_age_s
        self._wait_s = wait_s
        self._now = now
        self._keys: Keys | None = None
        self._tried_s = self._had_s = float("-inf")
        self._is_wanted = self._has_failed = False
        self.refresh()

    @property
    def keys(self) -> Keys | None:
        """See `KeySource`."""
        return self._keys

    def refresh(self) -> None:
        """See `KeySource`."""
        now = self._now()
        is_needed = self._is_wanted or self._keys is None or now - self._had_s >= self._max_age_s
        if not is_needed or now - self._tried_s < self._wait_s:
            return
        self._tried_s = now
        try:
            keys = self._fetch()
        except ConfigError as error:
            if not self._has_failed:
                _log.warning(
                    "%s; %s, and it is tried again", error, "what was fetched before is used" if self._keys else "none"
                )
            self._has_failed = True
            return
        if self._has_failed:
            _log.info("the keys of the identity provider can be had again")
        self._keys, self._had_s = keys, now
        self._is_wanted = self._has_failed = False

    def miss(self) -> float | None:
        """See `KeySource`."""
        now = self._now()
        if now - self._had_s < self._wait_s:
            return None
        self._is_wanted = True
        return max(self._tried_s + self._wait_s - now, 0.0) + _SOON_S


def open_keys(config: JwtConfig) -> KeySource:
    """The keys that the settings name. Raises `ConfigError` where a file cannot be used."""
    if config.jwks_file is not None:
        return FileKeys(config.jwks_file)
    fetch = partial(_fetch, config.jwks_url, config.ca, config.timeout_s)
    return UrlKeys(fetch, max_age_s=config.max_age_s, wait_s=config.unknown_key_wait_s)


def _read(path: Path) -> Keys:
    try:
        text = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"jwt.jwks_file ({path}) cannot be read: {error.strerror}") from error
    return read_keys(text, f"jwt.jwks_file ({path})")


def _fetch(url: str, ca: Path | None, timeout_s: float) -> Keys:
    where = f"jwt.jwks_url ({url})"
    try:
        return read_keys(asyncio.run(_get(url, ssl.create_default_context(cafile=ca), timeout_s)), where)
    except (httpx.HTTPError, OSError) as error:  # OSError: TLS, and files of authorities
        raise ConfigError(f"{where} cannot be fetched: {ascii(str(error) or type(error).__name__)[1:-1][:240]}") from error


async def _get(url: str, trust: ssl.SSLContext, timeout_s: float) -> bytes:
    """
    The body of an answer, within bounds. Redirections are not followed: the keys are where the operator says.

    The time is that of all of it: each wait of the client begins anew with every byte, and one of headers has no hook.
    """
    headers = {"accept": "application/json", "accept-encoding": "identity"}  # a set is small, and a bomb is not unpacked
    body = bytearray()
    try:
        async with (
            asyncio.timeout(timeout_s),
            httpx.AsyncClient(verify=trust, timeout=None) as client,  # noqa: S113 - there is one, around it
            client.stream("GET", url, headers=headers) as response,
        ):
            if response.status_code != httpx.codes.OK:
                raise httpx.HTTPError(f"it answered HTTP {response.status_code}")
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) > MAX_BYTES:
                    raise httpx.HTTPError(f"it answered more than {MAX_BYTES} bytes")
    except TimeoutError:
        raise httpx.HTTPError(f"it did not answer within {timeout_s:g} s") from None
    return bytes(body)
