"""
Whose request is being answered: told by the gate, asked by what answers.

Invariant: each request of either door is answered in one task of its own, the gate's decision included, so nobody is ever taken
for the sender of another request. Where no gate is, nobody is told apart.
"""

from contextvars import ContextVar

from otel_bridge.model.identity import Identity

ANYBODY = Identity("", frozenset())
"""The sender where there is no gate; of the default tenant."""

_SENDER: ContextVar[Identity] = ContextVar("sender", default=ANYBODY)


def note_sender(identity: Identity) -> None:
    """From here on the request is that of this sender."""
    _SENDER.set(identity)


def sender() -> Identity:
    """Who sent the request that is being answered."""
    return _SENDER.get()
