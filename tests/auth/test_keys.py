"""The keys of an identity provider: from a file, and from where it publishes them."""

import logging
from pathlib import Path
from typing import Any

import pytest
from support.certificates import Certificates, make_certificates
from support.identity_provider import AUDIENCE, ISSUER, Provider

from otel_bridge.auth.gate import Refusal, Shown
from otel_bridge.auth.keys import MAX_BYTES, UrlKeys, open_keys, read_keys
from otel_bridge.auth.web_token import Unfit, WebTokens
from otel_bridge.config.jwt import JwtConfig
from otel_bridge.config.load import load
from otel_bridge.errors import ConfigError, Unauthenticated, Unavailable
from otel_bridge.model.identity import Identity, Scope
from otel_bridge.wire.entrance import open_entrance


class Clock:
    """Seconds that pass when told."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        """Now."""
        return self.now_s


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("tls"))


def url_keys(fetched: list[Any], clock: Clock) -> UrlKeys:
    """Keys that are fetched from a script, each answer a set or an error."""

    def fetch() -> Any:
        answer = fetched.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return UrlKeys(fetch, max_age_s=3600, wait_s=30, now=clock)


A, B = {"a": object()}, {"a": object(), "b": object()}


def test_keys_are_fetched_at_first_and_by_age() -> None:
    """Once at the start, and again when they are an hour old; not in between, however often it is looked."""
    clock, answers = Clock(), [A, B]
    keys = url_keys(answers, clock)
    assert keys.keys is A
    clock.now_s += 3599
    keys.refresh()
    assert keys.keys is A
    clock.now_s += 1
    keys.refresh()
    assert keys.keys is B


def test_an_unknown_key_is_looked_for_now_and_then() -> None:
    """A key that is not known is asked for, once in 30 seconds whoever shows what; right after it was, there is none."""
    clock, answers = Clock(), [A, A, B]
    keys = url_keys(answers, clock)
    assert keys.miss() is None
    clock.now_s += 30
    assert keys.miss() == 2.0
    keys.refresh()
    assert (len(answers), keys.miss()) == (1, None)
    for _ in range(29):
        clock.now_s += 1
        assert keys.miss() is None
        keys.refresh()
    assert len(answers) == 1
    clock.now_s += 1
    assert keys.miss() is not None
    keys.refresh()
    assert keys.keys is B


def test_what_cannot_be_fetched_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Without keys all waits; old ones go on, and who needs another is told when to come again. Each outage is logged once."""
    gone = ConfigError("the provider is gone")
    clock, answers = Clock(), [gone, gone, A, gone, gone, B]
    with caplog.at_level(logging.INFO, "otel_bridge"):
        keys = url_keys(answers, clock)
        assert (keys.keys, keys.miss()) == (None, 32.0)
        for _ in range(2):
            clock.now_s += 30
            keys.refresh()
        assert keys.keys is A
        for _ in range(2):
            clock.now_s += 3600
            keys.refresh()
            assert keys.keys is A
            assert keys.miss() == 32.0
        clock.now_s += 30
        keys.refresh()
        assert (keys.keys, keys.miss()) == (B, None)
    assert caplog.text.count("the provider is gone") == 2
    assert caplog.text.count("can be had again") == 2


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"keys": 7}', b'{"keys": [{"kty": "oct", "k": "AA"}]}', b"[" * 10_000])
def test_a_text_that_is_no_key_set(text: bytes) -> None:
    """What holds no public key is told as such."""
    with pytest.raises(ConfigError, match=r"somewhere: \d+ bytes without a public key"):
        read_keys(text, "somewhere")


def test_a_file_is_read_again(tmp_path: Path) -> None:
    """A rotated file counts; one that is gone, or no set, changes nothing. At first it must be one."""
    provider, file = Provider(), tmp_path / "keys.json"
    file.write_text("{}")
    config = JwtConfig(jwks_file=file, issuer=ISSUER, audience=[AUDIENCE])
    with pytest.raises(ConfigError, match="without a public key"):
        open_keys(config)
    file.write_bytes(provider.key_set())
    keys = open_keys(config)
    taken = WebTokens(config, keys)
    provider.rotate("two")
    assert taken.identify(provider.sign("two")) == Unfit("unknown_key")
    file.write_bytes(provider.key_set())
    keys.refresh()
    assert isinstance(taken.identify(provider.sign("two")), Identity)
    file.unlink()
    keys.refresh()
    assert isinstance(taken.identify(provider.sign("two")), Identity)


def settings(url: str, ca: Path, **more: Any) -> JwtConfig:
    return JwtConfig(jwks_url=url, ca=ca, issuer=ISSUER, audience=[AUDIENCE], **more)


def test_keys_are_fetched_over_tls(certificates: Certificates) -> None:
    """From a real place; another authority does not vouch for it, and then no key is taken from it."""
    provider = Provider()
    with provider.publish(certificates) as place:
        taken = WebTokens(config := settings(place.url, certificates.authority), open_keys(config))
        assert isinstance(taken.identify(provider.sign()), Identity)
        assert place.asked == 1
        assert open_keys(settings(place.url, certificates.client)).keys is None
        assert place.asked == 1


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ((302, b""), "it answered HTTP 302"),
        ((500, b"{}"), "it answered HTTP 500"),
        ((200, b"<html>"), "without a public key"),
        ((200, b" " * (MAX_BYTES + 1)), f"it answered more than {MAX_BYTES} bytes"),
    ],
)
def test_odd_answers(certificates: Certificates, caplog: pytest.LogCaptureFixture, answer: Any, told: str) -> None:
    """An answer that is no key set, of whatever size, is told in one line, and no keys come of it."""
    with Provider().publish(certificates) as place:
        place.answers.append(answer)
        assert open_keys(settings(place.url, certificates.authority)).keys is None
    assert f"jwt.jwks_url ({place.url})" in caplog.text
    assert told in caplog.text


@pytest.mark.parametrize("start", [b"HTTP/1.1 200 OK\r\na: ", b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n"])
def test_an_answer_that_drips(certificates: Certificates, caplog: pytest.LogCaptureFixture, start: bytes) -> None:
    """Headers or a set that come byte by byte, and are never done, hold up neither the start nor what comes later."""
    with Provider().publish(certificates) as place:
        place.drip = start
        assert open_keys(settings(place.url, certificates.authority, timeout_s=0.5)).keys is None
    assert "it did not answer within 0.5 s" in caplog.text


def test_a_bridge_starts_without_its_provider(certificates: Certificates, tmp_path: Path) -> None:
    """Where the keys cannot be had, a token is neither taken nor refused for good; other credentials are what they are."""
    provider = Provider()
    with provider.publish(certificates) as place:
        url = place.url
    overrides = {"jwks_url": url, "ca": certificates.authority, "issuer": ISSUER, "audience": AUDIENCE}
    config = load(None, {"auth.enabled": True, "server.data_dir": tmp_path} | {f"jwt.{n}": v for n, v in overrides.items()})
    gate = open_entrance(config, lambda *_: None).gate
    assert gate is not None
    decision = gate.decide(Shown([f"Bearer {provider.sign(scope='admin')}"]), Scope.ADMIN)
    assert isinstance(decision, Refusal)
    assert isinstance(decision.error, Unavailable)
    assert (decision.reason, decision.error.reason) == ("no_keys", "keys_unavailable")
    assert decision.error.retry_after_s is not None
    unknown = gate.decide(Shown([f"Bearer otb_{'a' * 10}_{'x' * 43}"]), Scope.ADMIN)
    assert isinstance(unknown, Refusal)
    assert isinstance(unknown.error, Unauthenticated)


def test_settings_of_tokens(tmp_path: Path) -> None:
    """All that would let strangers in, or nobody, is refused at start, each with its way out."""
    file = tmp_path / "keys.json"
    file.write_bytes(Provider().key_set())

    def refusal(**overrides: object) -> str:
        with pytest.raises(ConfigError) as caught:
            load(None, {f"jwt.{name}": value for name, value in overrides.items()})
        return str(caught.value)

    told = refusal(jwks_file=file, jwks_url="https://x", algorithms=[])
    for fault in (
        "jwt.jwks_file and jwt.jwks_url are both set: give one of them",
        "jwt.issuer must be given",
        "jwt.audience must be given",
        "jwt.algorithms must have at least one",
        "jwt has keys, but auth.enabled is false: set it, or drop them",
    ):
        assert fault in told
    assert "jwt.issuer is set, but neither jwt.jwks_file nor jwt.jwks_url is" in refusal(issuer="x")
    assert "jwt.ca is set, but jwt.jwks_url is not" in refusal(jwks_file=file, ca=file)
    assert "must begin with https://" in refusal(jwks_url="http://127.0.0.1/keys")
    assert "jwt.algorithms[1] ('HS256') must be" in refusal(algorithms="RS256,HS256")
    assert "jwt.algorithms[0] ('none') must be" in refusal(algorithms=["none"])
