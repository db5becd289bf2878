"""
One data directory, and the bridges that live and die on it, while devices send and builds are uploaded.

Invariants
* Where a life ends is drawn; nothing in a bridge helps to be killed at a certain place.
* A request counts as acknowledged when its sender has read an answer that says so, over gRPC or HTTP.
* A request that was not acknowledged is not sent again: so whatever arrives twice was sent twice by the bridge.
"""

import random
import signal
import time
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import grpc
import httpx
from support.mappings import mapping_of
from support.otlp_answers import TAKE, Answer
from support.scenes import STREAM, batch_of, call, delegated, execute, runtime
from support.service import Service

from otel_bridge.model.stream import Clock, ModelRef, Stream
from otel_bridge.spans.ids import trace_id
from otel_bridge.v1 import mapping_pb2
from otel_bridge.v1 import profiling_pb2 as pb
from otel_bridge.v1.mapping_pb2_grpc import MappingServiceStub
from otel_bridge.wire.codec import request_of

EVENTS = 3
"""Events of a request, and spans of it."""

POISON = b"poison"
"""What the back end refuses for good when it finds it in a request."""

AWAY = Answer.grpc_failure(grpc.StatusCode.UNAVAILABLE, "away")
REFUSED = Answer.grpc_failure(grpc.StatusCode.INVALID_ARGUMENT, "bad attribute")

_IN_FLIGHT = 24
_HTTP_EVERY = 5  # so many requests, one of which goes by HTTP
_LIVES_OF_A_BUILD = 5
_PLANS = ("load", "load", "load", "upload", "upload", "drain", "drain", "start", "start")
_LISTENS, _FOUND, _STOPPING = b"listens for gRPC", b"the spool holds", b" stopping"


def judge(payload: bytes) -> Answer | None:
    """What the back end says of a request: one bad span, and it refuses all."""
    return REFUSED if POISON in payload else None


def stream_of(sequence: int, build: str | None = None) -> Stream:
    """A device without an anchor, whose spans lie where the receipt puts them."""
    return replace(
        STREAM,
        sequence=sequence,
        model=ModelRef(None, "", build),
        build=build,
        clocks=(Clock(),),
        resource=(("service.name", "app"),),
    )


def request(sequence: int, build: str | None = None) -> pb.ExportEventsRequest:
    """An inference of three events; one of 97 is poison to the back end."""
    name = "poison" if sequence % 97 == 5 else "x"
    events = [delegated(name, 0, 1, 2), call("DELEGATE_CALL", 0, 0, 4), runtime("Method::execute", 0, 5)]
    return request_of(batch_of((execute(), events), stream=stream_of(sequence, build)))


def trace_of(sequence: int) -> bytes:
    """The trace id of the request."""
    return trace_id(stream_of(sequence), execute())


@dataclass
class Lives:
    """
    Bridges on one data directory, one after the other.

    chance         draws how each life goes, and when it ends
    acknowledged   sequences of the requests that were
    parked         of these, those that named a build which had no mapping when they were sent
    deaths         where kills met the bridge, and what was on its way then
    """

    service: Service
    chance: random.Random
    acknowledged: set[int] = field(default_factory=set)
    deaths: "Counter[str]" = field(default_factory=Counter)
    _sent: int = 0
    _lives: int = 0
    _start_s: float = 1.0

    def live(self) -> bool:
        """Start a bridge, use it, and kill it; False: it had ended by itself, as after SIGTERM it may."""
        log = self.service.process.log
        before = log.stat().st_size if log.exists() else 0
        plan = self.chance.choice(_PLANS)
        self.service.sink.answer = self.chance.choice([AWAY, *4 * [Answer(delay_s=0.01)]])
        if plan == "start":
            self.service.process.start()
            time.sleep(self.chance.uniform(0, 1.2 * self._start_s))
            killed, unanswered = self._kill(), 0
        else:
            begun = time.monotonic()
            self.service.start()
            self._start_s += (time.monotonic() - begun - self._start_s) / 4
            killed, unanswered = self._use(plan)
            self.service.channel.close()
        self._lives += 1
        if killed:
            self._note(log.read_bytes()[before:], unanswered)
        return killed

    def upload(self, service: Service) -> None:
        """Every build that devices ever named gets its mapping, if it has none."""
        for number in range(self._lives // _LIVES_OF_A_BUILD + 1):
            self._put_mapping(service, number).result()

    @property
    def _build(self) -> int:
        return self._lives // _LIVES_OF_A_BUILD

    def _use(self, plan: str) -> tuple[bool, int]:
        """Send as fast as it goes until the life is over; whether it was ended here, and how many requests had no answer."""
        chance, calls = self.chance, []
        act, act_s = {"upload": self._upload_now, "drain": self._terminate}.get(plan), chance.uniform(0, 0.3)
        end_s = chance.uniform(0, 0.25) + (act_s if act else chance.uniform(0, 0.25))
        begun = time.monotonic()
        with httpx.Client(trust_env=False) as client, ThreadPoolExecutor(4) as threads:
            while (now_s := time.monotonic() - begun) < end_s:
                if act and now_s >= act_s:
                    act()
                    if plan == "drain":
                        time.sleep(max(0.0, end_s - now_s))
                        break
                    act = None
                calls.append((self._sent, self._send(client, threads)))
                self._sent += 1
                if len(calls) > _IN_FLIGHT:
                    with suppress(grpc.RpcError, httpx.HTTPError):
                        calls[-_IN_FLIGHT][1].result()
            unanswered = sum(1 for _, each in calls if not each.done())
            killed = self._kill()
            self.acknowledged |= {sequence for sequence, each in calls if _is_taken(each)}
        return killed, unanswered

    def _send(self, client: httpx.Client, threads: ThreadPoolExecutor) -> "Future[Any] | grpc.Future[Any]":
        build = f"late-{self._build}" if self._sent % 3 == 0 else None
        message = request(self._sent, build)
        if self._sent % _HTTP_EVERY:
            return self.service.profiling.ExportEvents.future(message)
        url, body = f"http://{self.service.http}/v1/events", message.SerializeToString()
        headers = {"content-type": "application/x-protobuf"}
        return threads.submit(lambda: client.post(url, content=body, headers=headers).raise_for_status())

    def _upload_now(self) -> None:
        self._put_mapping(self.service, self._build)

    def _put_mapping(self, service: Service, number: int) -> "grpc.Future[Any]":
        file = mapping_pb2.MappingFile(build_id=f"late-{number}", mapping=mapping_of({"x": [1], "poison": [2]}))
        return MappingServiceStub(service.channel).PutMapping.future(mapping_pb2.PutMappingRequest(file=file))

    def _terminate(self) -> None:
        self.service.process.signal(signal.SIGTERM)

    def _kill(self) -> bool:
        return self.service.process.kill() == -signal.SIGKILL

    def _note(self, log: bytes, unanswered: int) -> None:
        if _STOPPING in log:
            where = "draining after SIGTERM"
        elif _LISTENS in log:
            where = "taking requests"
        elif _FOUND in log:
            where = "starting, the spool is open"
        else:
            where = "starting, before that"
        self.deaths[where] += 1
        self.deaths["with requests that had no answer"] += unanswered > 0
        self.deaths["of a bridge that had found events of before"] += _FOUND in log
        self.deaths["while the back end was away"] += self.service.sink.answer is AWAY
        self.deaths["after it had kept a dead letter"] += b"spans are kept as" in log


def settle(service: Service) -> None:
    """The back end takes all but poison, until every event has ended; then it takes the dead letters too."""
    service.sink.answer = TAKE
    service.settle()
    service.sink.judge = lambda _: None


def _is_taken(each: "Future[Any] | grpc.Future[Any]") -> bool:
    return each.exception() is None
