"""Who may do what."""

import logging
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.logs import logged
from support.tokens import Issuer, gate_of

from otel_bridge.auth.gate import Gate, Refusal, Shown
from otel_bridge.auth.refusals import Refusals
from otel_bridge.errors import PermissionDenied, Unauthenticated
from otel_bridge.model.identity import Identity, Scope

CI = "spiffe://fleet/ci"
CERTIFICATES = {CI: Identity(CI, frozenset({Scope.MAPPINGS_WRITE}), "acme")}


@pytest.fixture
def issuer(tmp_path: Path) -> Issuer:
    return Issuer(tmp_path / "tokens.json")


def reason_of(decision: Identity | Refusal) -> str:
    """Why a request was refused."""
    assert isinstance(decision, Refusal)
    return decision.reason


def test_a_token_names_its_bearer(issuer: Issuer) -> None:
    """A good token with the scope gives the identity; the word Bearer may be written in any case."""
    whole = issuer.issue(Scope.EVENTS_WRITE, name="phones")
    gate = gate_of(issuer.file)
    for word in ("Bearer", "bearer", "BEARER"):
        assert gate.decide(Shown([f"{word} {whole}"]), Scope.EVENTS_WRITE) == Identity(
            "phones", frozenset({Scope.EVENTS_WRITE})
        )


def test_a_certificate_may_stand_for_a_token(issuer: Issuer) -> None:
    """A listed name in a verified certificate allows what is listed, for its tenant; another one, or none, does not."""
    gate = gate_of(issuer.file, certificates=CERTIFICATES)
    for names in ([CI], ["host.example", CI]):
        decision = gate.decide(Shown((), names), Scope.MAPPINGS_WRITE)
        assert isinstance(decision, Identity)
        assert (decision.name, decision.tenant) == (CI, "acme")
    assert reason_of(gate.decide(Shown((), [CI]), Scope.ADMIN)) == "scope"
    assert reason_of(gate.decide(Shown((), [CI + "/x"]), Scope.MAPPINGS_WRITE)) == "unknown_certificate"
    assert reason_of(gate.decide(Shown((), []), Scope.MAPPINGS_WRITE)) == "unknown_certificate"
    assert reason_of(gate.decide(Shown((), None), Scope.MAPPINGS_WRITE)) == "no_credential"


def test_a_token_counts_before_a_certificate(issuer: Issuer) -> None:
    """Who shows both is who the token says, with its scopes alone; a bad token is not mended by a certificate."""
    whole = issuer.issue(Scope.EVENTS_WRITE, name="phones")
    gate = gate_of(issuer.file, certificates=CERTIFICATES)
    decision = gate.decide(Shown([f"Bearer {whole}"], [CI]), Scope.EVENTS_WRITE)
    assert isinstance(decision, Identity)
    assert decision.name == "phones"
    assert reason_of(gate.decide(Shown([f"Bearer {whole}"], [CI]), Scope.MAPPINGS_WRITE)) == "scope"
    assert reason_of(gate.decide(Shown([f"Bearer {whole[:-1]}"], [CI]), Scope.MAPPINGS_WRITE)) == "malformed"


def test_without_the_certificate_that_is_demanded(issuer: Issuer) -> None:
    """Where clients must show a certificate, a good token alone is not enough."""
    whole = issuer.issue(Scope.ADMIN)
    gate = gate_of(issuer.file, needs_certificate=True)
    assert reason_of(gate.decide(Shown([f"Bearer {whole}"], None), Scope.ADMIN)) == "no_certificate"
    assert isinstance(gate.decide(Shown([f"Bearer {whole}"], []), Scope.ADMIN), Identity)
    assert reason_of(gate.decide(Shown((), []), Scope.ADMIN)) == "no_credential"


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> tuple[Gate, str]:
    """A gate, and a token that it knows."""
    issuer = Issuer(tmp_path_factory.mktemp("tokens") / "tokens.json")
    whole = issuer.issue(*Scope)
    return gate_of(issuer.file), whole


WORDS = st.lists(
    st.text(max_size=80) | st.sampled_from(["Bearer ", "Bearer otb_aaaaaaaaaa_" + "A" * 43, "Basic eDp5"]), min_size=1
)


@given(WORDS, st.sampled_from(Scope))
def test_whatever_is_shown_is_answered(known: tuple[Gate, str], shown: Sequence[str], scope: Scope) -> None:
    """Whatever stands in the header is refused, with words that say nothing of it and are the same for all."""
    decision = known[0].decide(Shown(shown), scope)
    assert isinstance(decision, Refusal)
    assert str(decision.error) == "the credential of the request is not valid; ask for a new one"


def test_what_is_told_and_what_is_kept(issuer: Issuer, caplog: pytest.LogCaptureFixture) -> None:
    """Neither error nor log line holds any of the secret; the log names credential, reason, route and peer."""
    whole = issuer.issue(Scope.EVENTS_WRITE, name="phones")
    counted: Counter[tuple[str, str]] = Counter()
    gate = gate_of(issuer.file, counted)
    with caplog.at_level(logging.WARNING, "otel_bridge"):
        refusal = gate.decide(Shown([f"Bearer {whole}"]), Scope.ADMIN)
        assert isinstance(refusal, Refusal)
        gate.turn_away(refusal, "http", "GET /metrics", "192.0.2.1:999")
    assert isinstance(refusal.error, PermissionDenied)
    assert refusal.error.scope is Scope.ADMIN
    assert counted == {("http", "scope"): 1}
    secret = whole.split("_", 2)[2]
    assert secret not in caplog.text + str(refusal.error)
    for word in ("phones", whole.split("_")[1], "scope", "GET /metrics", "192.0.2.1:999"):
        assert word in caplog.text


def test_few_lines_of_many_refusals() -> None:
    """Of any number of refusals each reason has a few lines, and one that says how many more there were."""
    counted: Counter[tuple[str, str]] = Counter()
    refusals = Refusals(lambda door, reason: counted.update([(door, reason)]))
    with logged() as stream:
        for index in range(1000):
            refusals.note("grpc", "unknown" if index % 4 else "expired", what="/s/m", peer="p", who="")
    lines = stream.getvalue().splitlines()
    for reason, others in (("unknown", 740), ("expired", 240)):
        assert sum(line.endswith(f"refusals: refused: /s/m of p: {reason}") for line in lines) == 10
        assert sum(f" {others} more lines like this " in line and line.endswith(reason) for line in lines) == 1
    assert sum(counted.values()) == 1000


def test_invalid_and_missing_are_told_apart(issuer: Issuer) -> None:
    """A sender without a credential is told so: nothing about anybody's is in that."""
    gate = gate_of(issuer.file)
    missing, wrong = gate.decide(Shown(), Scope.ADMIN), gate.decide(Shown(["x"]), Scope.ADMIN)
    assert isinstance(missing, Refusal)
    assert isinstance(wrong, Refusal)
    assert [isinstance(each.error, Unauthenticated) and each.error.is_invalid for each in (missing, wrong)] == [False, True]
