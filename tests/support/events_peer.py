"""
A gRPC server that takes `ExportEvents` and answers whatever a test tells it to: grpcio's own, in threads, on loopback.

    with EventsPeer() as peer:
        peer.answers += [Answer.grpc_failure(UNAVAILABLE, retry_after_s=0.1)]    # for the next request; then `answer`
        ...                                                                      # send to peer.target
        peer.go_away(); ...; peer.come_back()                                    # on the same port
"""

import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Self

import grpc
from support.otlp_answers import Answer
from support.processes import LOOPBACK

from otel_bridge.v1 import profiling_pb2 as pb

SERVICE = pb.DESCRIPTOR.services_by_name["ProfilingService"].full_name


def counts(accepted: int, first_rejection: str = "", **rejected: int) -> Answer:
    """An answer that takes the request, with these counts of events."""
    reasons = [pb.Rejection(reason=reason, events=events) for reason, events in rejected.items()]
    response = pb.ExportEventsResponse(accepted=accepted, rejected=reasons, first_rejection=first_rejection)
    return Answer(body=response.SerializeToString())


@dataclass(frozen=True)
class Call:
    """A request that came in."""

    payload: bytes
    metadata: Mapping[str, str | bytes]
    time_left_s: float
    peer: str


class EventsPeer:
    """The server. `options` are those of a gRPC channel; `calls` are all that came in, in order of arrival."""

    def __init__(self, *, options: Sequence[tuple[str, int]] = (), address: str = f"{LOOPBACK}:0") -> None:
        self.answers: deque[Answer] = deque()
        self.answer = counts(1)
        self.calls: list[Call] = []
        self._options = [("grpc.so_reuseport", 0), *options]
        self.target = address
        self._arrived = threading.Condition()
        self._gone = threading.Event()

    def __enter__(self) -> Self:
        self.come_back()
        return self

    def __exit__(self, *_: object) -> None:
        self.go_away()

    def wait_for_calls(self, count: int, *, timeout_s: float = 20.0) -> list[Call]:
        """Wait until `count` requests or more came in."""
        with self._arrived:
            assert self._arrived.wait_for(lambda: len(self.calls) >= count, timeout_s), f"{len(self.calls)} of {count}"
        return self.calls

    def go_away(self) -> None:
        """Close the port and every connection."""
        stopped = self._server.stop(None)
        self._gone.set()  # after the calls under way were cancelled: what waits in `_take` must not answer
        stopped.wait()

    def come_back(self) -> None:
        """Listen, on the port of before if there was one."""
        self._gone.clear()
        self._server = grpc.server(ThreadPoolExecutor(8), options=self._options)
        handler = grpc.unary_unary_rpc_method_handler(self._take)  # without serialisers: bytes
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {"ExportEvents": handler}),))
        host, _, _ = self.target.rpartition(":")
        self.target = f"{host}:{self._listen()}"
        self._server.start()

    def _listen(self) -> int:
        for _ in range(1000):  # the port of a stopped server is let go a moment after `stop`
            try:
                return self._server.add_insecure_port(self.target)
            except RuntimeError:
                time.sleep(0.02)
        raise AssertionError(f"{self.target} is taken")

    def _take(self, payload: bytes, context: grpc.ServicerContext) -> bytes:
        metadata = dict(context.invocation_metadata())
        with self._arrived:
            answer = self.answers.popleft() if self.answers else self.answer
            self.calls.append(Call(payload, metadata, context.time_remaining() or 0.0, context.peer()))
            self._arrived.notify_all()
        if answer.delay_s:
            self._gone.wait(answer.delay_s)
        context.set_trailing_metadata(answer.trailers)
        if answer.code is not grpc.StatusCode.OK:
            context.abort(answer.code, answer.details)
        return answer.body
