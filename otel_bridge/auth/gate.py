"""
Who may do what, and how much of it: the one decision, the same for both doors.

Invariants
* No credential, or one that is wrong, expired or revoked: `Unauthenticated`. All but the first are told in the same words: who
  shows a token does not learn whether it exists or did. Why it was refused is counted and logged, for those who run the bridge.
* A good credential without the scope: `PermissionDenied`, which names the scope.
* A token that is shown counts, even where a certificate would have done: a wrong credential is a mistake, not a spare one.
* A token is looked up without waiting and compared in constant time.
* Who may send events, of a tenant that has sent too many, comes back later: before anything of the request is read.
* Where keys are not there yet that a credential needs, nothing is said against it: `Unavailable`, and a retry helps.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from otel_bridge.auth.keyring import Keyring
from otel_bridge.auth.rates import Rates
from otel_bridge.auth.refusals import Refusals
from otel_bridge.auth.token import PREFIX, State, id_in, is_of
from otel_bridge.auth.web_token import Unfit, WebTokens
from otel_bridge.errors import PermissionDenied, Unauthenticated, Unavailable
from otel_bridge.model.identity import Identity, Scope

_SCHEME = "bearer"


@dataclass(frozen=True, slots=True)
class Shown:
    """
    What a request shows.

    authorizations   the headers `authorization`
    names            DNS and URI names in the client's certificate, which TLS has verified; None: there is no certificate
    """

    authorizations: Sequence[str] = ()
    names: Sequence[str] | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """
    A request that may not come in.

    error    what the sender is told
    reason   why, for those who run the bridge
    who      name and id of the credential; "": not known
    """

    error: Unauthenticated | PermissionDenied | Unavailable
    reason: str
    who: str = ""


class Gate:
    """
    The gate.

    certificates        name in a client's certificate -> whom it stands for
    needs_certificate   none comes in without a certificate, whatever else it shows
    web_tokens          tokens of an identity provider; None: none are taken
    rates               how fast tenants may send; None: as they like
    """

    def __init__(
        self,
        keyring: Keyring,
        refusals: Refusals,
        *,
        certificates: Mapping[str, Identity],
        needs_certificate: bool,
        web_tokens: WebTokens | None = None,
        rates: Rates | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._keyring = keyring
        self._refusals = refusals
        self._certificates = certificates
        self._needs_certificate = needs_certificate
        self._web_tokens = web_tokens
        self._rates = rates
        self._now = now

    @property
    def takes_certificates(self) -> bool:
        """Whether a certificate may stand for a token."""
        return bool(self._certificates)

    def decide(self, shown: Shown, needed: Scope) -> Identity | Refusal:
        """The sender, if it may do what needs that scope."""
        found = self._identify(shown)
        if isinstance(found, Refusal):
            return found
        identity, who = found
        if needed not in identity.scopes:
            lacks = f"the credential does not allow this: it lacks the scope {needed}; ask for one that has it"
            return Refusal(PermissionDenied(lacks, scope=needed), "scope", who)
        over = self._rates.over(identity.tenant) if self._rates is not None and needed is Scope.EVENTS_WRITE else None
        return identity if over is None else Refusal(over, f"{over.quota}_quota", who)

    def turn_away(self, refusal: Refusal, door: str, what: str, peer: str) -> None:
        """Count and log a refusal: the door ("grpc", "http"), the method or route, and the sender's address."""
        self._refusals.note(door, refusal.reason, what=what, peer=peer, who=refusal.who)

    def _identify(self, shown: Shown) -> tuple[Identity, str] | Refusal:
        if self._needs_certificate and shown.names is None:
            said = "the request came without a client certificate, which this bridge demands; connect with one"
            return Refusal(Unauthenticated(said), "no_certificate")
        if shown.authorizations:
            return self._by_token(shown.authorizations)
        for name in shown.names or ():
            if name in self._certificates:
                return self._certificates[name], name
        if shown.names is not None and self._certificates:
            return _invalid("unknown_certificate")
        said = "the request has no credential; send a token: `authorization: Bearer TOKEN`"
        return Refusal(Unauthenticated(said), "no_credential")

    def _by_token(self, authorizations: Sequence[str]) -> tuple[Identity, str] | Refusal:
        scheme, _, rest = authorizations[0].partition(" ")
        text = rest.strip()
        if scheme.lower() != _SCHEME or len(authorizations) != 1:
            return _invalid("malformed")
        if self._web_tokens is not None and not text.startswith(PREFIX):
            return _judged(self._web_tokens.identify(text))
        token_id = id_in(text)
        if token_id is None:
            return _invalid("malformed")
        token = self._keyring.find(token_id)
        if not is_of(text, token) or token is None:
            return _invalid("unknown")
        who = f"{token.name} ({token.id})"
        state = token.state(self._now())
        return (token.identity, who) if state is State.ACTIVE else _invalid(state.value, who)


def _judged(found: Identity | Unfit) -> tuple[Identity, str] | Refusal:
    if isinstance(found, Identity):
        return found, found.name
    if found.retry_after_s is None:
        return _invalid(found.reason)
    said = "the credential cannot be checked now: its issuer's keys are about to be fetched; send the request again"
    return Refusal(Unavailable(said, retry_after_s=found.retry_after_s, reason="keys_unavailable"), found.reason)


def _invalid(reason: str, who: str = "") -> Refusal:
    said = "the credential of the request is not valid; ask for a new one"
    return Refusal(Unauthenticated(said, is_invalid=True), reason, who)
