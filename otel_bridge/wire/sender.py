"""
Whose request is being answered: told by the gate, asked by what answers.

Invariant: each request of either door is answered in a context of its own, the gate's decision included, so nobody is ever
taken for the sender of another request. Where no gate is, nobody is told apart.
"""

from collections.abc import Callable
from contextvars import ContextVar

from otel_bridge.model.identity import Identity

ANYBODY = Identity("", frozenset())
"""The sender where there is no gate; of the default tenant."""

_SENDER: ContextVar[Identity] = ContextVar("sender", default=ANYBODY)

Renewal = Callable[[str], None]
"""Given the peer's address, asks the gate again, and notes what it says. Raises its refusal."""

_RENEWAL: ContextVar[Renewal] = ContextVar("renewal", default=lambda _peer: None)


def note_sender(identity: Identity, renewal: Renewal | None = None) -> None:
    """From here on the request is that of this sender; `renewal` is for calls that carry more than one request."""
    _SENDER.set(identity)
    if renewal is not None:
        _RENEWAL.set(renewal)


def renew_sender(peer: str) -> None:
    """Another request of the same call begins. Raises where its sender may not come in any more."""
    _RENEWAL.get()(peer)


def sender() -> Identity:
    """Who sent the request that is being answered."""
    return _SENDER.get()
