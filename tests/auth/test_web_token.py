"""Which tokens of an identity provider are taken, and for whom."""

import base64
import hmac
import json
import time
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from hypothesis import given
from hypothesis import strategies as st
from jwt.algorithms import ECAlgorithm
from jwt.utils import base64url_encode
from support.identity_provider import AUDIENCE, ISSUER, Provider

from otel_bridge.auth import web_token
from otel_bridge.auth.keys import FileKeys
from otel_bridge.auth.web_token import MAX_BYTES, Unfit, WebTokens
from otel_bridge.config.jwt import JwtConfig
from otel_bridge.model.identity import Identity, Scope

NOW = int(time.time())


@pytest.fixture(scope="module")
def provider() -> Provider:
    made = Provider()
    made.rotate("rsa", rsa_bits=2048)
    return made


@pytest.fixture(scope="module")
def file(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "keys.json"
    path.write_bytes(provider.key_set())
    return path


def tokens(file: Path, **settings: Any) -> WebTokens:
    """What takes tokens with the keys of a file."""
    given = {"jwks_file": file, "issuer": ISSUER, "audience": [AUDIENCE, "other"], **settings}
    return WebTokens(JwtConfig(**given), FileKeys(file))


def test_a_good_token_names_its_bearer(provider: Provider, file: Path) -> None:
    """Scopes come as words or as a list, the tenant from the claim that the settings name; other words do nothing."""
    plain, of_tenants = tokens(file), tokens(file, tenant_claim="org", scope_claim="roles", algorithms=["ES256", "PS256"])
    both = frozenset({Scope.EVENTS_WRITE, Scope.ADMIN})
    assert plain.identify(provider.sign(scope="openid events:write admin")) == Identity("somebody", both)
    assert plain.identify(provider.sign("rsa", org="acme")) == Identity("somebody", frozenset())
    token = provider.sign(roles=["admin", "x", "events:write", 7], org="acme", sub="ci\n\x1b")
    assert of_tenants.identify(token) == Identity("ci\\n\\x1b", both, "acme")
    assert of_tenants.identify(provider.sign("rsa", algorithm="PS256", org="acme", sub=None)) == Identity(
        "nobody", frozenset(), "acme"
    )
    assert plain.identify(provider.sign(scope={"admin": 1})) == Identity("somebody", frozenset())


@pytest.mark.parametrize(
    ("reason", "changed"),
    [
        ("expired", {"exp": NOW - 31}),
        ("not_yet_valid", {"nbf": NOW + 86_400}),
        ("not_yet_valid", {"iat": NOW + 86_400}),
        ("issuer", {"iss": ISSUER + "x"}),
        ("issuer", {"iss": ISSUER.rstrip("/")}),
        ("audience", {"aud": "another service"}),
        ("audience", {"aud": ["another", "and another"]}),
        ("claims", {"exp": None}),
        ("claims", {"aud": None}),
        ("claims", {"iss": None}),
        ("malformed", {"exp": "soon"}),
        ("malformed", {"exp": 1e400}),
        ("claims", {"sub": 7}),
        ("claims", {"org": None}),
        ("claims", {"org": ""}),
        ("claims", {"org": "a b"}),
        ("claims", {"org": ["acme"]}),
    ],
)
def test_claims_that_are_not_good(provider: Provider, file: Path, reason: str, changed: dict[str, Any]) -> None:
    """Expired, early, of another issuer, for somebody else, or without what each token must say: refused, whoever signed it."""
    token = provider.sign(**{"org": "acme", "scope": "admin"} | changed)
    assert tokens(file, tenant_claim="org").identify(token) == Unfit(reason)


def test_clocks_may_differ_a_little(provider: Provider, file: Path) -> None:
    """Within the leeway a token is good before its time and after it."""
    token = provider.sign(exp=int(time.time()) - 100, nbf=int(time.time()) + 100, iat=int(time.time()) + 100)
    assert isinstance(tokens(file, leeway_s=600).identify(token), Identity)
    assert tokens(file).identify(provider.sign(exp=NOW - 100)) == Unfit("expired")


def test_a_token_without_end(provider: Provider, file: Path) -> None:
    """A provider may say a time that no float holds; the token is good, also when it is shown again."""
    token = provider.sign(exp=10**400)
    taken = tokens(file)
    for _ in range(2):
        assert isinstance(taken.identify(token), Identity)


def signed_as_it_is(provider: Provider, header: dict[str, Any]) -> str:
    """A token with whatever header, which the library would not write."""
    parts = ({"alg": "ES256", "kid": "one"} | header, provider.claims(scope="admin"))
    said = b".".join(base64url_encode(json.dumps(part).encode()) for part in parts)
    signature = ECAlgorithm(ECAlgorithm.SHA256).sign(said, provider.keys["one"])
    return (said + b"." + base64url_encode(signature)).decode()


@pytest.mark.parametrize("header", [{"crit": ["exp"]}, {"crit": []}, {"crit": ["b64"], "b64": False}])
def test_what_a_token_calls_critical(provider: Provider, file: Path, header: dict[str, Any]) -> None:
    """A token whose signer demands what the bridge does not do (RFC 7515, section 4.1.11) is refused, well signed as it is."""
    assert isinstance(tokens(file).identify(signed_as_it_is(provider, {})), Identity)
    assert tokens(file).identify(signed_as_it_is(provider, header)) == Unfit("malformed")


def test_a_tampered_token(provider: Provider, file: Path) -> None:
    """Another claim under the same signature, the signature of another key, or none: refused, whatever the claims are."""
    head, _, signature = provider.sign().split(".")
    _, richer, _ = provider.sign(scope="admin").split(".")
    assert tokens(file).identify(f"{head}.{richer}.{signature}") == Unfit("signature")
    assert tokens(file).identify(Provider().sign(scope="admin")) == Unfit("signature")
    assert tokens(file).identify(f"{head}.{richer}.") == Unfit("signature")
    assert tokens(file).identify(provider.sign(header={"kid": "another"})) == Unfit("unknown_key")


def test_a_public_key_is_no_secret(provider: Provider, file: Path) -> None:
    """The classic: a token "signed" with the public key as a shared secret, or by nobody; and a key made for something else."""
    public = (
        provider.keys["rsa"]
        .public_key()
        .public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    claims = provider.claims(scope="admin")
    head, body, _ = jwt.encode(claims, "s" * 32, "HS256", {"kid": "rsa"}).split(".")
    mac = base64.urlsafe_b64encode(hmac.digest(public, f"{head}.{body}".encode(), "sha256")).rstrip(b"=").decode()
    for forged in (f"{head}.{body}.{mac}", jwt.encode(claims, None, "none", {"kid": "rsa"})):
        assert tokens(file).identify(forged) == Unfit("algorithm")
    assert tokens(file).identify(provider.sign("rsa", header={"kid": "one"})) == Unfit("algorithm")
    assert tokens(file).identify(provider.sign("rsa", algorithm="RS512")) == Unfit("algorithm")


def test_a_token_brings_no_key(file: Path) -> None:
    """A key that stands in the token itself, or where the token points to, is nobody's word."""
    stranger = Provider()
    (own,) = json.loads(stranger.key_set())["keys"]
    for header in ({"jwk": own}, {"jku": "https://127.0.0.1/keys"}, {"x5u": "https://127.0.0.1/chain"}, {"x5c": ["AA"]}):
        assert tokens(file).identify(stranger.sign(header=header, scope="admin")) == Unfit("signature")
        assert tokens(file).identify(stranger.sign(header=header | {"kid": "own"}, scope="admin")) == Unfit("unknown_key")


def test_a_key_that_says_what_it_is_for(provider: Provider, tmp_path: Path) -> None:
    """A key that names its algorithm checks that one alone; private, symmetric and foreign entries of a set are passed over."""
    file = tmp_path / "keys.json"
    told = json.loads(provider.key_set())
    told["keys"][1]["alg"] = "PS256"
    secret = {"kid": "shared", "kty": "oct", "k": base64.urlsafe_b64encode(b"s" * 32).decode()}
    private = {**told["keys"][0], "kid": "private", "d": "AA"}
    public = told["keys"][0]
    foreign = [{"kid": "odd", "kty": "?"}, {**public, "kid": "nobody", "alg": "none"}, 7]
    crypt = [{**public, "kid": "crypt", "use": "enc"}, {**public, "kid": "ops", "key_ops": ["deriveKey"]}]
    told["keys"] += [secret, private, *crypt, *foreign]
    file.write_text(json.dumps(told))
    given = tokens(file, algorithms=["RS256", "PS256", "ES256"])
    assert isinstance(given.identify(provider.sign("rsa", algorithm="PS256")), Identity)
    assert given.identify(provider.sign("rsa", algorithm="RS256")) == Unfit("algorithm")
    for key_id in ("shared", "private", "crypt", "ops", "odd", "nobody"):
        assert given.identify(provider.sign(header={"kid": key_id})) == Unfit("unknown_key")


def test_keys_of_one_name(tmp_path: Path) -> None:
    """Keys of two types may share a name: the algorithm of a token tells which is meant, whichever stands first."""
    provider = Provider()
    provider.rotate("rsa", rsa_bits=2048)
    listed = [each | {"kid": "both"} for each in json.loads(provider.key_set())["keys"]]
    for order in (listed, listed[::-1]):
        file = tmp_path / "keys.json"
        file.write_text(json.dumps({"keys": order}))
        for key_id in ("one", "rsa"):
            assert isinstance(tokens(file).identify(provider.sign(key_id, header={"kid": "both"})), Identity)
        assert tokens(file).identify(Provider().sign(header={"kid": "both"})) == Unfit("signature")


def test_the_only_key_needs_no_name(provider: Provider, tmp_path: Path, file: Path) -> None:
    """A token that names no key is checked with the only one that there is; of several none is guessed."""
    lone = Provider()
    alone = tmp_path / "alone.json"
    alone.write_bytes(lone.key_set())
    assert isinstance(tokens(alone).identify(lone.sign(header={"kid": None})), Identity)
    assert tokens(file).identify(provider.sign(header={"kid": None})) == Unfit("unknown_key")


def test_a_short_key(tmp_path: Path) -> None:
    """A key of RSA that is too short to trust opens nothing."""
    weak = Provider()
    weak.rotate("weak", rsa_bits=1024)
    file = tmp_path / "keys.json"
    file.write_bytes(weak.key_set())
    with pytest.warns(jwt.InsecureKeyLengthWarning):
        token = weak.sign("weak")
    assert tokens(file).identify(token) == Unfit("algorithm")


def test_a_good_token_is_checked_once(provider: Provider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token that is shown again is known, until it expires or its key is withdrawn; memory for such is bounded."""
    checked: list[str] = []
    decode = jwt.decode
    monkeypatch.setattr(jwt, "decode", lambda shown, *rest, **more: (checked.append(shown), decode(shown, *rest, **more))[1])
    monkeypatch.setattr(web_token, "MAX_KNOWN", 2)
    file = tmp_path / "keys.json"
    file.write_bytes(provider.key_set())
    keys = FileKeys(file)
    taken = WebTokens(JwtConfig(jwks_file=file, issuer=ISSUER, audience=[AUDIENCE], leeway_s=0), keys)
    first, second, third = (provider.sign(sub=name) for name in "abc")
    for token in (first, second, first, second, third, second, first):
        assert isinstance(taken.identify(token), Identity)
    assert checked == [first, second, third, first]
    monkeypatch.setattr(web_token.time, "time", lambda: NOW + 10_000)
    assert isinstance(taken.identify(first), Identity)  # by the library's clock it is still good
    assert checked[4:] == [first]
    monkeypatch.undo()
    file.write_bytes(Provider().key_set())
    keys.refresh()
    assert taken.identify(first) == Unfit("signature")


SEGMENT = st.one_of(
    st.binary(max_size=40).map(lambda data: base64.urlsafe_b64encode(data).rstrip(b"=").decode()),
    st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=8), st.lists, max_leaves=5).map(
        lambda value: base64.urlsafe_b64encode(json.dumps({"alg": value, "kid": value}).encode()).rstrip(b"=").decode()
    ),
)


@given(st.one_of(st.text(max_size=60), st.tuples(SEGMENT, SEGMENT, SEGMENT).map(".".join)))
def test_any_text_is_judged(file: Path, text: str) -> None:
    """Whatever is shown is refused for a reason; nothing else comes of it."""
    assert isinstance(tokens(file).identify(text), Unfit)


def test_deep_and_long_texts(provider: Provider, file: Path) -> None:
    """A header of brackets, and a token of megabytes, cost nothing."""
    deep = base64.urlsafe_b64encode(b"[" * 6000).decode()
    assert tokens(file).identify(f"{deep}.e30.e30") == Unfit("malformed")
    long = provider.sign(more="x" * MAX_BYTES)
    assert tokens(file).identify(long) == Unfit("malformed")
