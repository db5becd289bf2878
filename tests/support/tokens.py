"""Tokens for tests: a file of them, and the gate in front of which they are shown."""

from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from otel_bridge.auth.book import change_tokens
from otel_bridge.auth.gate import Gate
from otel_bridge.auth.keyring import Keyring
from otel_bridge.auth.rates import Rates
from otel_bridge.auth.refusals import Refusals
from otel_bridge.auth.token import Token, draw
from otel_bridge.auth.web_token import WebTokens
from otel_bridge.model.identity import Identity, Scope

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
ALL = frozenset(Scope)


class Issuer:
    """Draws tokens at `now`, and keeps them in a file."""

    def __init__(self, file: Path, now: datetime = NOON) -> None:
        self.file = file
        self.now = now

    def issue(self, *scopes: Scope, name: str = "somebody", lifetime: timedelta | None = None, tenant: str = "") -> str:
        """A token that is kept."""
        kept, whole = draw(name, scopes, self.now, lifetime, tenant=tenant)
        change_tokens(self.file, lambda tokens: [*tokens, kept], self.now)
        return whole

    def revoke(self, whole: str) -> None:
        """Revoke one, now."""
        key = whole.split("_")[1]
        change_tokens(self.file, lambda tokens: [self._ended(each) if each.id == key else each for each in tokens], self.now)

    def _ended(self, token: Token) -> Token:
        return token.model_copy(update={"revoked": self.now})


def gate_of(
    file: Path,
    counted: "Counter[tuple[str, str]] | None" = None,
    *,
    now: Callable[[], datetime] = lambda: NOON,
    certificates: Mapping[str, Identity] | None = None,
    needs_certificate: bool = False,
    web_tokens: WebTokens | None = None,
    rates: Rates | None = None,
) -> Gate:
    """A gate that knows the tokens in a file, and counts refusals by door and reason."""
    counts: Counter[tuple[str, str]] = Counter() if counted is None else counted

    def count(door: str, reason: str) -> None:
        counts[door, reason] += 1

    keyring = Keyring([file])
    return Gate(
        keyring,
        Refusals(count),
        certificates=certificates or {},
        needs_certificate=needs_certificate,
        web_tokens=web_tokens,
        rates=rates,
        now=now,
    )
