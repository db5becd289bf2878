"""The gRPC transport as devices take it: without allocation, small, and for another processor."""

from collections.abc import Callable
from pathlib import Path

from support.cpp import SOURCES, build, run
from support.engines import require
from support.events_peer import EventsPeer
from support.processes import LOOPBACK
from support.senders import Sender

Built = Callable[..., Path]

SMALL = ("-Os", "-ffunction-sections", "-fdata-sections", "-Wl,--gc-sections", "-s")


def test_sending_allocates_nothing(built: Built) -> None:
    """Once it is constructed, a transport to an address allocates nothing: not to connect, to send, or to fail."""
    with EventsPeer() as peer:
        seen, made, sent = map(int, run(built("grpc_allocations"), peer.target, f"{LOOPBACK}:1").split())
    assert (seen, made, sent) == (1, 0, 100)


def test_aarch64(tmp_path: Path) -> None:
    """Built for aarch64, it sends small and large requests as here."""
    program = build(tmp_path, [SOURCES / "send_grpc.cpp"], compiler=require("cross_cxx"), flags=SMALL, libraries=("-static",))
    bodies = [b"", b"x" * 70_000, b"y" * 1_000_000]
    with EventsPeer() as peer, Sender(program, peer.target, before=(str(require("qemu_aarch64")),)) as send:
        assert [send(body).status for body in bodies] == ["OK"] * 3
    assert [one.payload for one in peer.calls] == bodies


def test_it_is_small(tmp_path: Path) -> None:
    """A stripped program that sends is at most 32 KiB larger than one that does not."""
    sizes = [
        build(tmp_path, [SOURCES / f"{name}.cpp"], flags=SMALL).stat().st_size for name in ("send_nothing", "send_something")
    ]
    assert 0 < sizes[1] - sizes[0] <= 32 << 10
