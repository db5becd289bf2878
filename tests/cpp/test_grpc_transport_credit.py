"""Flow control of HTTP/2, both ways: the C++ transport with servers that give credit as they like."""

import itertools
from collections.abc import Iterable
from pathlib import Path

import pytest
from hyperframe.frame import DataFrame, Frame, SettingsFrame, WindowUpdateFrame
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from support.raw_http2 import TAKEN, RawConnection, RawPeer, Script
from support.senders import Sender

WINDOW, FRAME = 65_535, 16_384
INITIAL_WINDOW = SettingsFrame.INITIAL_WINDOW_SIZE


def paced(body: bytes, initial: int, steps_of_credit: Iterable[int]) -> Script:
    """A server that gives credit as it likes, checks that it is never exceeded, and that the body is `body`."""
    steps = itertools.cycle(steps_of_credit)

    def script(connection: RawConnection) -> None:
        connection.greet({INITIAL_WINDOW: initial})
        # What the client sends before it has read our SETTINGS, it sends by the default window.
        room = {"stream": initial, "connection": WINDOW}
        behind = max(0, WINDOW - initial)

        def credit(stream: int, size: int) -> list[Frame]:
            room["stream"] -= size
            room["connection"] -= size
            assert size <= FRAME
            assert room["connection"] >= 0
            assert room["stream"] >= -behind
            frames: list[Frame] = []
            for name, number in (("stream", stream), ("connection", 0)):
                while room[name] <= 0:
                    step = next(steps)
                    room[name] += step
                    frames.append(WindowUpdateFrame(number, step))
            return frames

        call = connection.read_call(credit)
        assert call.message == body
        connection.send_answer(call.stream)

    return script


@settings(
    max_examples=15,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # a failure costs a deadline: to shrink it would take minutes
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    size=st.integers(WINDOW - 20, 4 * WINDOW),
    initial=st.sampled_from([0, 1, 4, 5, 6, 100, FRAME, WINDOW, 100_000]),
    pace=st.lists(st.integers(700, 40_000), min_size=1, max_size=5),
)
def test_credit(send_grpc: Path, size: int, initial: int, pace: list[int]) -> None:
    """However a server gives credit, the client never sends more than it has, and the whole body arrives."""
    body = bytes(number % 251 for number in range(size))
    with RawPeer(paced(body, initial, pace)) as peer, Sender(send_grpc, peer.target) as send:
        assert send(body).sent


def test_a_window_that_shrinks(send_grpc: Path) -> None:
    """SETTINGS that make a window negative in the middle of an upload stop it, until credit makes it positive again."""
    body = bytes(200_000)

    def script(connection: RawConnection) -> None:
        connection.greet()
        read = len(connection.read_until(lambda frame: isinstance(frame, DataFrame)).data)
        while read < WINDOW:
            read += len(connection.read_frame().data)
        assert read == WINDOW
        # Both windows are empty. The stream's becomes -65,535, so that a credit of 65,535 allows nothing yet.
        connection.send(
            SettingsFrame(0, settings={INITIAL_WINDOW: 0}), WindowUpdateFrame(0, 1 << 20), WindowUpdateFrame(1, WINDOW)
        )
        connection.ping()
        assert not isinstance(connection.frames[-2], DataFrame)
        connection.send(WindowUpdateFrame(1, 5))
        frame = connection.read_until(lambda frame: isinstance(frame, DataFrame))
        assert len(frame.data) == 5
        connection.send(SettingsFrame(0, settings={INITIAL_WINDOW: 1 << 20}))
        connection.read_until(lambda frame: "END_STREAM" in frame.flags)
        connection.send_answer(1)

    with RawPeer(script) as peer, Sender(send_grpc, peer.target, "timeout_ms=15000") as send:
        assert send(body).sent


@pytest.mark.parametrize(("announced", "largest"), [(FRAME, FRAME), (50_000, 50_000), (2**24 - 1, 256 * 1024)])
def test_frames_are_as_long_as_the_server_takes(send_grpc: Path, announced: int, largest: int) -> None:
    """DATA comes in frames as long as the server's SETTINGS allow, but for those that would keep an acknowledgement waiting."""
    body = bytes(2 << 20)

    def script(connection: RawConnection) -> None:
        connection.greet({SettingsFrame.MAX_FRAME_SIZE: announced, INITIAL_WINDOW: 1 << 30})
        connection.send(WindowUpdateFrame(0, 1 << 30))
        call = connection.read_call(lambda _stream, _size: [])
        assert call.message == body
        assert max(len(frame.data) for frame in connection.frames if isinstance(frame, DataFrame)) == largest
        connection.send_answer(call.stream)

    with RawPeer(script) as peer, Sender(send_grpc, peer.target) as send:
        assert send(body).sent


def test_credit_is_given_back(send_grpc: Path) -> None:
    """Over many answers a server is given back what it spends of its windows, padding included."""

    def script(connection: RawConnection) -> None:
        spent = returned = 0
        while True:
            call = connection.read_call()
            connection.send_answer(call.stream, padding=255)
            spent += len(TAKEN) + 256
            returned = sum(
                frame.window_increment
                for frame in connection.frames
                if isinstance(frame, WindowUpdateFrame) and frame.stream_id == 0
            )
            assert returned <= spent
            assert spent - returned <= WINDOW

    with RawPeer(script) as peer, Sender(send_grpc, peer.target) as send:
        for _ in range(300):
            assert send(b"x").sent
