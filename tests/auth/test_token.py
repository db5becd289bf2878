"""What a token looks like, and what is kept of it."""

import hashlib
from datetime import timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.tokens import NOON

from otel_bridge.auth.token import State, draw, id_in, is_of
from otel_bridge.model.identity import Identity, Scope


def test_only_a_hash_is_kept() -> None:
    """Of a token its SHA-256 is kept, and nothing of the secret; the id in it finds what is kept."""
    kept, whole = draw("phones", [Scope.EVENTS_WRITE], NOON)
    prefix, key, secret = whole.split("_", 2)
    assert (prefix, key, id_in(whole)) == ("otb", kept.id, kept.id)
    assert kept.sha256 == hashlib.sha256(whole.encode()).hexdigest()
    assert secret not in kept.model_dump_json()
    assert kept.identity == Identity("phones", frozenset({Scope.EVENTS_WRITE}), tenant="")


def test_a_secret_has_256_bits_of_its_own() -> None:
    """Of a hundred tokens of one name no two share id or secret, and a secret is 43 letters of 6 bits."""
    drawn = [draw("phones", [Scope.EVENTS_WRITE], NOON)[1].split("_", 2) for _ in range(100)]
    assert len({key for _, key, _ in drawn}) == len({secret for _, _, secret in drawn}) == 100
    assert {len(secret) for _, _, secret in drawn} == {43}


@example(0, "\ud800")
@given(st.integers(0, 200), st.characters(codec=None))
def test_another_letter_is_another_token(position: int, letter: str) -> None:
    """A token with any letter changed is not the token."""
    kept, whole = draw("phones", [Scope.EVENTS_WRITE], NOON)
    position %= len(whole)
    changed = whole[:position] + letter + whole[position + 1 :]
    assert is_of(whole, kept)
    assert is_of(changed, kept) is (changed == whole)


@given(st.text())
def test_no_text_is_nobodys_token(text: str) -> None:
    """What was never drawn is of nobody, and what has not the form of a token has no id."""
    assert not is_of(text, None)
    assert id_in(text) is None


@pytest.mark.parametrize("end", ["\n", " ", "x", "="])
def test_the_form_is_exact(end: str) -> None:
    """Nothing stands behind a token."""
    _, whole = draw("phones", [Scope.EVENTS_WRITE], NOON)
    assert id_in(whole + end) is None


def test_states() -> None:
    """A token is good before the moment at which it expires or is revoked, and no longer; revoked wins."""
    kept, _ = draw("phones", [Scope.EVENTS_WRITE], NOON, timedelta(days=1))
    end = NOON + timedelta(days=1)
    moment = timedelta(microseconds=1)
    assert [kept.state(time) for time in (NOON, end - moment, end)] == [State.ACTIVE, State.ACTIVE, State.EXPIRED]
    revoked = kept.model_copy(update={"revoked": NOON})
    assert [revoked.state(time) for time in (NOON - moment, NOON, end)] == [State.ACTIVE, State.REVOKED, State.REVOKED]
    assert draw("ci", [Scope.ADMIN], NOON)[0].state(NOON + timedelta(days=36_500)) is State.ACTIVE
