"""A back end that moves: its name stands for another address, and the spans follow."""

import asyncio
import socket
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from support.names import NameServer
from support.otlp_answers import Answer
from support.otlp_payloads import a_payload
from support.otlp_sink import OtlpSink
from support.proxy import Proxy

from otel_bridge.export.circuit import Circuit
from otel_bridge.export.otlp_grpc import OtlpGrpc
from otel_bridge.export.otlp_http import OtlpHttp
from otel_bridge.export.protocol import Exporter
from otel_bridge.export.retry import Retry, RetryPolicy

Run = Callable[[Coroutine[Any, Any, Any]], Any]

NAME = "back-end.test"
HERE, THERE = "127.0.0.1", "127.0.0.2"
QUICK = RetryPolicy(0.05, 0.2, 30.0)


@dataclass
class Place:
    """Two back ends of one name: `old` is where it leads first, `move` lets it lead to `new`."""

    old: OtlpSink
    new: OtlpSink
    move: Callable[[], None]
    exporter: Callable[..., Exporter]


@pytest.fixture
def place(protocol: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    with (
        OtlpSink(host=HERE) as old,
        OtlpSink(host=THERE, ports=old.ports) as new,
        _over_grpc(old.ports[0]) if protocol == "grpc" else _over_http(old.ports[1], monkeypatch) as (move, exporter),
    ):
        yield Place(old, new, move, exporter)


@contextmanager
def _over_grpc(port: int) -> Iterator[tuple[Callable[[], None], Callable[..., Exporter]]]:
    with NameServer(NAME, HERE) as names:
        yield (
            lambda: setattr(names, "now", THERE),
            lambda **settings: OtlpGrpc(f"dns://{names.address}/{NAME}:{port}", **settings),
        )


@contextmanager
def _over_http(port: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Callable[[], None], Callable[..., Exporter]]]:
    now, real = [HERE], socket.getaddrinfo

    def ask(host: Any, *rest: Any, **more: Any) -> Any:
        known = host in {NAME, NAME.encode()}
        return real(now[0] if known else host, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", ask)
    yield lambda: now.__setitem__(0, THERE), lambda **settings: OtlpHttp(f"http://{NAME}:{port}/v1/traces", **settings)


def sent_by(exporter: Exporter, *steps: Callable[[], None]) -> None:
    """Send a span, take a step, send another one, and so on, with retries, on asyncio's own loop: it asks Python for names."""

    async def scene() -> None:
        retry = Retry(exporter, QUICK, Circuit())
        await retry.send(a_payload(1))
        for step in steps:
            await asyncio.to_thread(step)
            await retry.send(a_payload(1))
        await retry.close()

    asyncio.run(scene())


def test_a_back_end_that_is_gone_is_found_where_it_is_now(place: Place) -> None:
    """After the old address has closed, the next request arrives at the new one, by the same exporter."""

    def move() -> None:
        place.move()
        place.old.go_away()

    try:
        sent_by(place.exporter(), move)
    finally:
        place.old.come_back()
    assert (len(place.old.spans), len(place.new.spans)) == (1, 1)


def test_a_back_end_that_falls_silent_is_found_where_it_is_now(place: Place) -> None:
    """An address that takes connections and answers nothing (its host is gone, nobody closed them) is left after a timeout."""

    def move() -> None:
        place.move()
        place.old.answer = Answer(delay_s=60)

    sent_by(place.exporter(timeout_s=1.0), move)
    assert len(place.new.spans) == 1


def test_a_connection_has_an_age(place: Place) -> None:
    """A connection to the old address that works is given up at its age, and the new address is asked for."""
    sent_by(place.exporter(max_age_s=1e-6), place.move)
    assert (len(place.old.spans), len(place.new.spans)) == (1, 1)


def test_a_young_connection_is_kept(place: Place) -> None:
    """As long as it works and is young, one connection serves all requests, wherever the name leads."""
    sent_by(place.exporter(), place.move)
    assert (len(place.old.spans), len(place.new.spans)) == (2, 0)


def test_a_connection_that_died_in_silence_is_not_used_again(protocol: str) -> None:
    """Where a connection is dead and nobody closed it, a request waits in vain once, and goes by a new one."""

    async def scene(sink: OtlpSink) -> int:
        proxy = Proxy(sink.ports[0 if protocol == "grpc" else 1])
        address = await proxy.start()
        settings: dict[str, Any] = {"timeout_s": 3.0}
        exporter = OtlpGrpc(address, **settings) if protocol == "grpc" else OtlpHttp(f"http://{address}/v1/traces", **settings)
        retry = Retry(exporter, QUICK, circuit := Circuit())
        await retry.send(a_payload(1))
        proxy.freeze()
        await retry.send(a_payload(1))
        await retry.close()
        await proxy.finish()
        return circuit.successes

    with OtlpSink() as sink:
        assert asyncio.run(scene(sink)) == len(sink.received) == 2
