"""How fast tenants may send: on average what is set, at once what was saved, and nobody at another's expense."""

import math
import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_bridge.auth import rates as module
from otel_bridge.auth.rates import BYTES, EVENTS, MAX_WAIT_S, Rates
from otel_bridge.config.bridge import BridgeConfig
from otel_bridge.config.load import load
from otel_bridge.config.render import render
from otel_bridge.config.tenants import TenantsConfig
from otel_bridge.errors import ConfigError


class Clock:
    """Seconds that pass when told."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        """Now."""
        return self.now_s


def rates_of(clock: Clock, **settings: Any) -> Rates:
    """Rates of ten events a second, but for what is told."""
    return Rates(TenantsConfig(**({"events_per_s": 10.0, "burst_s": 10.0} | settings)), now=clock)


def refused(rates: Rates, tenant: str) -> tuple[str, float] | None:
    """Why, and for how long; None: a request may come in."""
    found = rates.over(tenant)
    return None if found is None else (found.quota, round(found.retry_after_s or 0, 6))


def test_a_burst_and_then_the_rate() -> None:
    """A quiet tenant may send what ten seconds allow at once, and then waits until its debt is paid."""
    clock = Clock()
    rates = rates_of(clock)
    rates.spend("a", 99, 10**9)
    assert refused(rates, "a") is None
    rates.spend("a", 51, 0)
    assert refused(rates, "a") == (EVENTS, 5.0)
    clock.now_s += 4.9
    assert refused(rates, "a") == (EVENTS, 0.1)
    clock.now_s += 0.2
    assert refused(rates, "a") is None
    clock.now_s += 10_000  # more than a burst is not saved
    rates.spend("a", 101, 0)
    assert refused(rates, "a") == (EVENTS, 0.1)


def test_a_large_debt_is_told_in_parts() -> None:
    """A request of any size comes in; after a huge one a sender is told to come back in a minute, and is refused again."""
    clock = Clock()
    rates = rates_of(clock)
    rates.spend("a", 10_000, 0)
    assert refused(rates, "a") == (EVENTS, MAX_WAIT_S)
    clock.now_s += 989
    assert refused(rates, "a") == (EVENTS, 1.0)
    clock.now_s += 2
    assert refused(rates, "a") is None


def test_tenants_do_not_share() -> None:
    """What one tenant has sent is nothing to another; each has its own quotas, for events and for bytes."""
    clock = Clock()
    rates = rates_of(
        clock, bytes_per_s=1000.0, overrides={"big": {"events_per_s": math.inf}, "": {"events_per_s": 1, "bytes_per_s": 1}}
    )
    rates.spend("a", 10_000, 0)
    rates.spend("big", 10**9, 9_999)
    rates.spend("", 0, 11)
    assert refused(rates, "b") is None
    assert refused(rates, "big") is None
    assert refused(rates, "") == (BYTES, 1.0)
    rates.spend("big", 0, 2)
    assert refused(rates, "big") == (BYTES, 0.001)
    assert "more than 1000 bytes a second" in str(rates.over("big"))
    assert "(tenants.bytes_per_s)" in str(rates.over("big"))


@given(st.lists(st.tuples(st.floats(0, 5), st.integers(0, 200)), max_size=60))
def test_the_average_is_kept(requests: list[tuple[float, int]]) -> None:
    """Whatever is sent when: what came in is never more than burst, rate and the one request that ended it allow."""
    clock = Clock()
    rates = rates_of(clock)
    taken = 0
    for pause_s, events in requests:
        clock.now_s += pause_s
        if rates.over("a") is None:
            assert taken < 100 + 10 * clock.now_s + 1e-6
            taken += events
            rates.spend("a", events, 0)


def test_tenants_that_are_quiet_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is that of the tenants which lately sent; who still has a debt is never forgotten with it."""
    monkeypatch.setattr(module, "SWEEP_TENANTS", 10)
    clock = Clock()
    rates = rates_of(clock)
    rates.spend("debtor", 10**6, 0)
    for number in range(1000):
        clock.now_s += 1
        rates.spend(f"t{number}", 1, 0)
        assert len(rates._buckets) <= 11
    assert refused(rates, "debtor") == (EVENTS, MAX_WAIT_S)


def test_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Quotas are read from tables and from the environment and shown again; what means nothing is refused."""
    own = {"acme": {"events_per_s": 5.0, "mappings": 3}, "": {"parked_bytes": 0}}
    config = load(None, {"auth.enabled": True, "server.data_dir": ":memory:", "tenants.overrides": own, "tenants.mappings": 7})
    assert (config.tenants.of("acme").events_per_s, config.tenants.of("acme").mappings) == (5.0, 3)
    assert (config.tenants.of("x").events_per_s, config.tenants.of("x").mappings) == (math.inf, 7)
    assert config.tenants.of("").parked_bytes == 0
    text = render(config)
    assert BridgeConfig.model_validate(tomllib.loads(text)) == config
    monkeypatch.setenv("OTEL_BRIDGE_TENANTS__OVERRIDES", '{"acme": {"mapping_bytes": 9}}')
    assert load(None).tenants.of("acme").mapping_bytes == 9
    monkeypatch.delenv("OTEL_BRIDGE_TENANTS__OVERRIDES")
    with pytest.raises(ConfigError) as caught:
        load(None, {"tenants.overrides": {"a b": {}, "c": {"events_per_s": 0}, "d": {"burst_s": 1}}, "tenants.burst_s": 0})
    for fault in (
        "tenants.overrides[a b] ('a b') must be 1 to 64 letters, digits and . _ -",
        "tenants.overrides[c][events_per_s] (0) must be more than 0",
        "tenants.overrides.d.burst_s is not a setting; did you mean tenants.burst_s?",
        "tenants.burst_s (0) must be more than 0",
    ):
        assert fault in str(caught.value)
    with pytest.raises(ConfigError, match=r"tenants has events_per_s, but auth\.enabled is false: nobody is told apart"):
        load(None, {"tenants.overrides": {"acme": {"events_per_s": 1}}})
