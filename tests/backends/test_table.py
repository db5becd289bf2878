"""The table of backends: what is in it, what packages add to it, and what a rule may not do."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.delegate_runs import CALL_START, chosen, logged, run_delegate

from otel_bridge.backends.backend import Backend, Kind, Reading, TimeQuality, Timing, Unit, key_of
from otel_bridge.backends.table import CALL_ONLY, UNKNOWN, WITH_RULES, backend_of, known_backends
from otel_bridge.errors import ConfigError
from otel_bridge.metadata.table import Decoders

HERE = "support.vendor_backends"
Offer = Callable[..., None]


@pytest.fixture
def offer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Offer]:
    """Installs packages that offer backends: `name = value` lines, one list a package."""

    def install(*packages: str) -> None:
        for number, lines in enumerate(packages):
            info = tmp_path / f"vendor{number}-1.0.dist-info"
            info.mkdir()
            (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vendor{number}\nVersion: 1.0\n")
            (info / "entry_points.txt").write_text(f"[otel_bridge.backends]\n{lines}\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        known_backends.cache_clear()

    yield install
    monkeypatch.undo()
    known_backends.cache_clear()


@given(st.sampled_from([*WITH_RULES, *CALL_ONLY, "Somebodys"]), st.text(min_size=1) | st.integers(-(2**31), 2**31 - 1))
def test_every_identifier_has_a_reading(delegate: str, identifier: int | str) -> None:
    """For any backend and identifier: a name, and a counter exactly where it is one."""
    reading = backend_of(delegate).read(identifier)
    assert reading.name
    assert (reading.kind is Kind.COUNTER) == bool(reading.counter)
    assert reading.key is None or (isinstance(identifier, str) and identifier.startswith(str(reading.key)))


@given(st.text(max_size=100), st.sampled_from(["", "bytes"]))
def test_any_text_makes_a_key(text: str, suffix: str) -> None:
    """1 to 64 of [a-z0-9_], the unit at the end."""
    key = key_of(text, suffix=suffix)
    assert 0 < len(key) <= 64
    assert set(key) <= set("abcdefghijklmnopqrstuvwxyz0123456789_")
    assert key.endswith(suffix)


def test_an_unknown_backend_is_read_as_unknown() -> None:
    """No id, or one that nobody knows."""
    assert backend_of(None) is backend_of("Somebodys") is UNKNOWN
    assert UNKNOWN.read("conv #3") == Reading("conv", timing=Timing(TimeQuality.UNKNOWN, Unit.TICKS))


def test_a_package_adds_a_backend_with_its_rules(offer: Offer) -> None:
    """Its reading reaches the span: name, quality, node, details, counters, decoder."""
    offer(f"VendorBackend = {HERE}:VENDOR")
    events = [logged("conv #1", 200, 300, b"{}"), logged("heap now", 0, 77), logged("heap then", 0, 78, b"why")]
    run = run_delegate("VendorBackend", events, entries={"conv #1": [2]})
    assert run.said("conv #1", "delegate.node_id", "delegate.metadata", "time") == {
        "delegate.node_id": 5,
        "delegate.metadata.text": "conv #1",
        "delegate.metadata_values": ("{}",),
    }
    assert chosen(run.call, "delegate.counter") == {"delegate.counter.heap_bytes": 77}
    assert run.times("heap then") == (CALL_START, CALL_START + 1)  # it has metadata, which only a span can bear
    assert run.said("heap then", "delegate.counter", "delegate.metadata") == {
        "delegate.counter.heap_bytes": 78,
        "delegate.metadata_values": ("why",),
    }


@pytest.mark.parametrize("identifier", ["raise #1", "nonsense #1"])
def test_a_rule_that_fails_costs_the_reading_only(offer: Offer, identifier: str) -> None:
    """The event is read as that of an unknown backend, and still resolves by its map."""
    offer(f"VendorBackend = {HERE}:VENDOR")
    run = run_delegate("VendorBackend", [logged(identifier, 200, 300)], entries={identifier: [1]})
    assert run.said(identifier, "resolution", "time.quality") == {"resolution.status": "exact", "time.quality": "unknown"}


@pytest.mark.parametrize(
    ("packages", "said"),
    [
        ((f"V = {HERE}:NOT_A_BACKEND",), "is a str: let it name"),
        ((f"V = {HERE}:MISSING",), "cannot be loaded: AttributeError"),
        (("V = no.such.module:X",), "cannot be loaded: ModuleNotFoundError"),
        ((f"V = {HERE}:VENDOR", f"V = {HERE}:VENDOR"), "two packages offer the backend 'V'"),
    ],
)
def test_an_offer_that_cannot_be_obeyed_is_told_at_start(offer: Offer, packages: tuple[str, ...], said: str) -> None:
    """A bridge starts its decoders first, and they ask for all backends."""
    offer(*packages)
    with pytest.raises(ConfigError, match=said):
        Decoders(["raw"])


def test_a_package_may_know_a_backend_better(offer: Offer) -> None:
    """It was installed on purpose."""
    offer(f"XnnpackBackend = {HERE}:VENDOR")
    assert backend_of("XnnpackBackend").title == "Vendor"


@pytest.mark.parametrize(
    "make",
    [
        lambda: Reading(""),
        lambda: Reading("x", counter="y"),
        lambda: Reading("x", Kind.COUNTER),
        lambda: Reading("x", Kind.COUNTER, counter="Bytes"),
        lambda: Reading("x", key="y"),
        lambda: Reading("x", rule="y"),
        lambda: Reading("x", key=["y"], rule="z"),  # type: ignore[arg-type]  # wrong on purpose
        lambda: Reading("x", key=True, rule="z"),
        lambda: Reading("x", key="", rule=""),
        lambda: Reading("x", details=(("A", 1),)),
        lambda: Reading("x", details=(("a", 2**63),)),
        lambda: Reading("x", node_id=-(2**63)),
    ],
)
def test_a_reading_that_contradicts_itself_cannot_be_made(make: Callable[[], Reading]) -> None:
    """So none reaches a span."""
    with pytest.raises(ValueError, match="not a reading"):
        make()


def test_a_key_that_no_map_can_hold_costs_the_reading_only() -> None:
    """A rule may name an entry by anything; what cannot be looked up is read as unknown, and the batch goes on."""
    rule: Callable[[int | str], Reading] = lambda _identifier: Reading("conv", key=["conv"], rule="mine")  # type: ignore[arg-type]  # noqa: E731 - it is wrong on purpose
    assert Backend("Wrong", rule).read("conv #1") == Reading("conv")


def test_only_a_reading_is_a_reading() -> None:
    """A rule may answer anything."""
    answer: Callable[[int | str], Reading] = lambda _identifier: "conv"  # type: ignore[assignment, return-value]  # noqa: E731 - it is wrong on purpose
    assert Backend("Wrong", answer).read("conv #1") == Reading("conv")
