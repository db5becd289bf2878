"""
Bearer tokens: what they look like, and what is kept of them.

Invariants
* `otb_ID_SECRET`: the id is public, names the token in lists and logs, and finds it; the secret is 256 random bits.
* Only the SHA-256 of the whole token is kept. Slow hashes (argon2, bcrypt) protect what people choose, which can be guessed;
  256 random bits cannot, at any speed, so a fast hash loses nothing and a request does not pay for it.
* A token is never part of a message, and its prefix lets scanners of repositories find one that leaked.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import Enum
from typing import Annotated

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from otel_bridge.model.identity import TENANT, Identity, Scope

PREFIX = "otb_"
SECRET_BITS = 256

_ID_LETTERS = "abcdefghijkmnpqrstuvwxyz23456789"
_ID_LENGTH = 10
_FORM = re.compile(rf"{PREFIX}([{_ID_LETTERS}]{{{_ID_LENGTH}}})_[A-Za-z0-9_-]{{43}}", re.ASCII)
NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._@/-]{0,62}[A-Za-z0-9])?", re.ASCII)
"""What a name may look like: it stands in logs and on command lines, and never is an option."""


class State(Enum):
    """Whether a token is good."""

    ACTIVE = "active"
    EXPIRED = "expired"
    REVOKED = "revoked"


class Token(BaseModel):
    """What is kept of a token. Times have a zone; `expires` None: never; `revoked` None: it was not."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: Annotated[str, Field(pattern=rf"^[{_ID_LETTERS}]{{{_ID_LENGTH}}}$")]
    name: Annotated[str, Field(pattern=rf"^{NAME.pattern}$")]
    scopes: Annotated[tuple[Scope, ...], Field(min_length=1)]
    tenant: Annotated[str, Field(pattern=rf"^({TENANT.pattern})?$")] = ""
    created: AwareDatetime
    expires: AwareDatetime | None = None
    revoked: AwareDatetime | None = None
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]

    @property
    def identity(self) -> Identity:
        """Its bearer."""
        return Identity(self.name, frozenset(self.scopes), self.tenant)

    def state(self, now: datetime) -> State:
        """Whether it is good at that time."""
        if self.revoked is not None and self.revoked <= now:
            return State.REVOKED
        if self.expires is not None and self.expires <= now:
            return State.EXPIRED
        return State.ACTIVE


def draw(
    name: str, scopes: Iterable[Scope], now: datetime, lifetime: timedelta | None = None, *, tenant: str = ""
) -> tuple[Token, str]:
    """A new token: what is kept of it, and the token itself, which is nowhere else."""
    key = "".join(secrets.choice(_ID_LETTERS) for _ in range(_ID_LENGTH))
    whole = f"{PREFIX}{key}_{secrets.token_urlsafe(SECRET_BITS // 8)}"
    expires = None if lifetime is None else now + lifetime
    kept = Token(
        id=key,
        name=name,
        scopes=tuple(dict.fromkeys(scopes)),
        tenant=tenant,
        created=now,
        expires=expires,
        sha256=_digest(whole),
    )
    return kept, whole


def id_in(shown: str) -> str | None:
    """The id in what somebody shows; None: it is no token."""
    match = _FORM.fullmatch(shown)
    return match[1] if match else None


_NOBODY = "0" * 64


def is_of(shown: str, token: Token | None) -> bool:
    """Whether that is the token, found in the same time whether there is one or not, and wherever the two differ."""
    kept = token.sha256 if token is not None else _NOBODY
    return hmac.compare_digest(_digest(shown), kept) and token is not None


def _digest(whole: str) -> str:
    return hashlib.sha256(whole.encode(errors="surrogatepass")).hexdigest()  # half a character is no token, and no fault
