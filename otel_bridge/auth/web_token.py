"""
JSON Web Tokens (RFC 7519): who an identity provider says that somebody is.

Invariants
* The signature is checked first, by a key of the provider that is made for the algorithm that the token names, which must be
  one of the settings: a public key is never taken for a shared secret.
* Issuer, audience and expiry are demanded of every token. Nothing of one that is not good is logged.
* It is decided without waiting: a key that is not there yet is told as such, and a retry helps.
* A token that was good is known by its SHA-256, so that not each of its requests pays for a signature (0.2 to 0.5 ms), until it
  expires or the keys are others.
"""

import hashlib
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import jwt

from otel_bridge.auth.keys import Key, Keys, KeySource
from otel_bridge.config.jwt import JwtConfig
from otel_bridge.model.identity import TENANT, Identity, Scope

MAX_KNOWN = 4096
"""Tokens that are remembered; of more the one not seen for longest is checked anew."""

MAX_BYTES = 8192
"""Of a token; gRPC takes no longer metadata."""

_MAX_NAME = 64
_LATEST_S = 1 << 53
"""What ends later ends here: a claim may be any integer, also one that no float holds."""
_OPTIONS: Any = {"require": ["exp", "iss", "aud"], "enforce_minimum_key_length": True}

_REASONS: tuple[tuple[type[Exception], str], ...] = (
    (jwt.ExpiredSignatureError, "expired"),
    (jwt.ImmatureSignatureError, "not_yet_valid"),
    (jwt.InvalidIssuerError, "issuer"),
    (jwt.InvalidAudienceError, "audience"),
    (jwt.InvalidSignatureError, "signature"),
    (jwt.MissingRequiredClaimError, "claims"),
    (jwt.DecodeError, "malformed"),
    (jwt.InvalidKeyError, "algorithm"),
    (Exception, "claims"),
)
"""By the first class that fits; `InvalidSignatureError` is a `DecodeError`, too."""


@dataclass(frozen=True, slots=True)
class Unfit:
    """A token that is not taken: why, and after how many seconds it may be (None: never)."""

    reason: str
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class _Good:
    """The bearer of a token that was good with these keys, and is so before this time (seconds since 1970)."""

    identity: Identity
    keys: Keys | None
    until_s: float


class WebTokens:
    """Tokens as the settings want them, with keys from `source`. One thread uses it."""

    def __init__(self, config: JwtConfig, source: KeySource) -> None:
        self._config = config
        self._source = source
        self._good: OrderedDict[bytes, _Good] = OrderedDict()

    def identify(self, shown: str) -> Identity | Unfit:
        """The bearer of a token, whose name is the claim `sub`."""
        digest, keys = hashlib.sha256(shown.encode("utf-8", "replace")).digest(), self._source.keys
        good = self._good.get(digest)
        if good is not None and good.keys is keys and time.time() < good.until_s:
            self._good.move_to_end(digest)
            return good.identity
        found, until_s = self._judge(shown)
        if isinstance(found, Identity):
            self._good[digest] = _Good(found, keys, until_s)
            if len(self._good) > MAX_KNOWN:
                self._good.popitem(last=False)
        return found

    def _judge(self, shown: str) -> tuple[Identity | Unfit, float]:
        """Who it is, and until when."""
        claims = self._claims(shown)
        if isinstance(claims, Unfit):
            return claims, 0.0
        return self._identity(claims), min(int(claims["exp"]), _LATEST_S) + self._config.leeway_s

    def _claims(self, shown: str) -> dict[str, Any] | Unfit:
        header = _header(shown)
        if header is None:
            return Unfit("malformed")
        algorithm = header.get("alg")
        if algorithm not in self._config.algorithms:
            return Unfit("algorithm")
        key = self._find(header.get("kid", ""), algorithm)
        return key if isinstance(key, Unfit) else self._checked(shown, algorithm, key)

    def _find(self, key_id: str, algorithm: str) -> Key | Unfit:
        keys = self._source.keys
        if keys is None:
            return Unfit("no_keys", self._source.miss())
        if not key_id and len(keys) == 1:  # a token that names no key means the only one that there is
            key_id = next(iter(keys))
        if key_id not in keys:
            return Unfit("unknown_key", self._source.miss())
        return next((key for key in keys[key_id] if algorithm in key.algorithms), Unfit("algorithm"))

    def _checked(self, shown: str, algorithm: str, key: Key) -> dict[str, Any] | Unfit:
        try:
            return jwt.decode(
                shown,
                key.public,
                [algorithm],
                options=_OPTIONS,
                audience=self._config.audience,
                issuer=self._config.issuer,
                leeway=self._config.leeway_s,
            )
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError) as error:
            return Unfit(next(reason for kind, reason in _REASONS if isinstance(error, kind)))

    def _identity(self, claims: Mapping[str, Any]) -> Identity | Unfit:
        tenant = claims.get(self._config.tenant_claim) if self._config.tenant_claim else ""
        if not isinstance(tenant, str) or (self._config.tenant_claim and not TENANT.fullmatch(tenant)):
            return Unfit("claims")
        name = ascii(claims.get("sub", "nobody"))[1:-1][:_MAX_NAME]
        return Identity(name, frozenset(_scopes(claims.get(self._config.scope_claim))), tenant)


def _header(shown: str) -> dict[str, Any] | None:
    """What stands before a token's claims, not checked yet; None: it is no token."""
    if len(shown) > MAX_BYTES:
        return None
    try:
        return jwt.get_unverified_header(shown)
    except (jwt.PyJWTError, ValueError, RecursionError):
        return None


def _scopes(claim: Any) -> Iterable[Scope]:
    words = claim.split() if isinstance(claim, str) else claim if isinstance(claim, list) else ()
    return (scope for scope in Scope if scope.value in words)
