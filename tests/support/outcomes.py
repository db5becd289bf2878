"""
The ways in which a back end fails, and what exactly comes of six events then: the rows of the table in docs/outages.md.

A row is a case of tests/e2e/test_outages.py, over gRPC and HTTP where both can happen, against a bridge in a process of its
own; tests/docs/test_outages_page.py holds the page to the rows.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Literal

from grpc import StatusCode
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from support.otlp_answers import Answer

EVENTS = 6
POISON = "poison"
"""Name of one of the six events."""

TIMEOUT_S = 3.0
_FOR_EVER_S = 20.0

Trouble = Literal["away", "cut", "nonsense"]
"""
Of the connection: nobody listens; it is reset when the request is there and the answer is not; whoever connects hears nonsense.
"""

Judge = Callable[[bytes], Answer | None]
Script = Sequence[Callable[[], Answer]]


@dataclass(frozen=True)
class Way:
    """
    What the back end does, over one protocol.

    told      in the words of the page
    answers   one for each of the first requests; made when the case begins, since some say what time it is
    judge     answers by what a request holds
    """

    told: str
    answers: Script = ()
    judge: Judge = lambda _: None


@dataclass(frozen=True)
class Outcome:
    """
    A row: what the back end does, and what comes of six events that were sent in one request.

    trouble     of the connection
    grpc, http  None: this cannot happen there
    attempts    requests that reach the back end
    dropped     events, by reason
    letters     spans of each dead letter, by reason
    copies      spans that the back end takes a second time, with the same bytes
    waits_s     no attempt is made sooner after the one before
    """

    back_end: str
    grpc: Way | None
    http: Way | None
    trouble: Trouble | None = None
    attempts: int = 1
    emitted: int = EVENTS
    dropped: Mapping[str, int] = field(default_factory=dict)
    letters: Mapping[str, int] = field(default_factory=dict)
    copies: int = 0
    waits_s: float = 0.0

    def way(self, protocol: str) -> Way | None:
        """What it does over a protocol."""
        return self.grpc if protocol == "grpc" else self.http

    def row(self) -> dict[str, str]:
        """The row of the page."""
        cells = {
            "back end": self.back_end,
            "over gRPC": self.grpc.told if self.grpc else "",
            "over HTTP": self.http.told if self.http else "",
            "requests": str(self.attempts),
            "emitted": str(self.emitted),
            "dropped": _listed(self.dropped),
            "dead letters": _listed(self.letters),
            "copies": str(self.copies),
        }
        return {name: cell.strip("`") for name, cell in cells.items()}


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} `{reason}`" for reason, count in counts.items()) or "0"


def _code(code: StatusCode, details: str = "no", *, retry_after_s: float | None = None, told: str = "") -> Way:
    answer = Answer.grpc_failure(code, details, retry_after_s=retry_after_s)
    return Way(told or f"`{code.name}`", [lambda: answer])


def _status(status: int, *, retry_after: Callable[[], str] | None = None, told: str = "", **headers: str) -> Way:
    def answer() -> Answer:
        return Answer.http_failure(status, "no", retry_after=retry_after() if retry_after else None, **headers)

    return Way(told or str(status), [answer])


def _both(told: str, answer: Answer) -> dict[str, Way]:
    way = Way(told, [lambda: answer])
    return {"grpc": way, "http": way}


def _judged(code: StatusCode, status: int, applies: Callable[[bytes], bool], details: str = "no") -> dict[str, Way]:
    answer = Answer(code=code, status=status, details=details)

    def judge(payload: bytes) -> Answer | None:
        return answer if applies(payload) else None

    return {"grpc": Way(f"`{code.name}`", judge=judge), "http": Way(str(status), judge=judge)}


def _spans_in(payload: bytes) -> int:
    request = ExportTraceServiceRequest.FromString(payload)
    return sum(len(scope.spans) for part in request.resource_spans for scope in part.scope_spans)


def _in_two_seconds() -> str:
    return format_datetime(datetime.now(UTC) + timedelta(seconds=2), usegmt=True)


def _all(code: StatusCode, status: int) -> Judge:
    return lambda _: Answer(code=code, status=status, details="no")


_SIZE = "grpc: received message larger than max (6 vs. 4)"
_REFUSED = {"emitted": 0, "dropped": {"export_rejected": 6}, "letters": {"export_rejected": 6}}
_MOMENT = (
    StatusCode.CANCELLED, StatusCode.DEADLINE_EXCEEDED, StatusCode.ABORTED, StatusCode.OUT_OF_RANGE, StatusCode.DATA_LOSS,
)  # fmt: skip

OUTCOMES = (
    Outcome("takes them", Way("`OK`"), Way("200")),
    Outcome("takes them, and warns", **_both("`partial_success` with 0 spans and a message", Answer.partial(0, "odd names"))),
    Outcome("takes them, and says nonsense", **_both("a body that is no answer", Answer(body=b"\xff\xff<html>"))),
    Outcome("answers slowly", **_both("within `timeout_ms`", Answer(delay_s=0.4))),
    Outcome(
        "never answers",
        **_both("nothing for `timeout_ms`", Answer(code=StatusCode.INTERNAL, status=500, delay_s=_FOR_EVER_S)),
        attempts=2,
    ),
    Outcome(
        "takes them, and never answers",
        **_both("nothing for `timeout_ms`", Answer(delay_s=_FOR_EVER_S)),
        attempts=2,
        copies=6,
    ),
    Outcome(
        "takes them, and resets the connection",
        **_both("a reset before the answer", Answer(delay_s=_FOR_EVER_S)),
        trouble="cut",
        attempts=2,
        copies=6,
    ),
    Outcome("is away", Way("no connection"), Way("no connection"), trouble="away"),
    Outcome(
        "speaks another protocol for a while", Way("bytes that are not HTTP/2"), Way("bytes that are not HTTP"), "nonsense"
    ),
    Outcome("is overloaded for a moment", _code(StatusCode.UNAVAILABLE), _status(503), attempts=2),
    Outcome("is behind a gateway that fails", None, _status(502), attempts=2),
    Outcome("is behind a gateway that waits in vain", None, _status(504), attempts=2),
    Outcome(
        "names a time in seconds",
        _code(StatusCode.UNAVAILABLE, retry_after_s=1.0, told="`UNAVAILABLE` with `RetryInfo`"),
        _status(503, retry_after=lambda: "1", told="503 with `Retry-After: 1`"),
        attempts=2,
        waits_s=1.0,
    ),
    Outcome(
        "asks for less, and names a time",
        _code(StatusCode.RESOURCE_EXHAUSTED, retry_after_s=1.0, told="`RESOURCE_EXHAUSTED` with `RetryInfo`"),
        _status(429, retry_after=lambda: "1", told="429 with `Retry-After: 1`"),
        attempts=2,
        waits_s=1.0,
    ),
    Outcome(
        "names a time as a date",
        None,
        _status(503, retry_after=_in_two_seconds, told="503 with `Retry-After:` a date"),
        attempts=2,
        waits_s=0.9,
    ),
    Outcome("asks for less, and names no time", None, _status(429), attempts=2),
    Outcome(
        "has no room, and names no time",
        _code(StatusCode.RESOURCE_EXHAUSTED, "quota exceeded"),
        None,
        emitted=0,
        dropped={"export_exhausted": 6},
        letters={"export_exhausted": 6},
    ),
    Outcome(
        "fails for the moment, in five ways",
        Way(
            ", ".join(f"`{code.name}`" for code in _MOMENT),
            [lambda code=code: Answer.grpc_failure(code, "no") for code in _MOMENT],
        ),
        None,
        attempts=6,
    ),
    Outcome(
        "rejects a part",
        **_both("`partial_success` with 2 spans", Answer.partial(2, "two are odd")),
        emitted=4,
        dropped={"partial_success": 2},
    ),
    Outcome(
        "rejects more than it was sent",
        **_both("`partial_success` with 100 spans", Answer.partial(100, "all are odd")),
        emitted=0,
        dropped={"partial_success": 6},
    ),
    Outcome(
        "takes at most two spans at once",
        **_judged(StatusCode.RESOURCE_EXHAUSTED, 413, lambda payload: _spans_in(payload) > 2, _SIZE),
        attempts=7,
    ),
    Outcome(
        "finds one span too large",
        **_judged(StatusCode.RESOURCE_EXHAUSTED, 413, lambda payload: POISON.encode() in payload, _SIZE),
        attempts=5,
        emitted=5,
        dropped={"export_too_large": 1},
        letters={"export_too_large": 1},
    ),
    Outcome(
        "refuses one span",
        **_judged(StatusCode.INVALID_ARGUMENT, 400, lambda payload: POISON.encode() in payload),
        attempts=5,
        emitted=5,
        dropped={"export_invalid": 1},
        letters={"export_invalid": 1},
    ),
    Outcome(
        "finds one span senseless",
        None,
        Way("422", judge=lambda payload: Answer(status=422) if POISON.encode() in payload else None),
        attempts=5,
        emitted=5,
        dropped={"export_invalid": 1},
        letters={"export_invalid": 1},
    ),
    Outcome(
        "refuses each span",
        Way("`INVALID_ARGUMENT`", judge=_all(StatusCode.INVALID_ARGUMENT, 400)),
        Way("400", judge=_all(StatusCode.INVALID_ARGUMENT, 400)),
        attempts=11,
        emitted=0,
        dropped={"export_invalid": 6},
        letters={"export_invalid": 6},
    ),
    Outcome("does not know who asks", _code(StatusCode.UNAUTHENTICATED), _status(401), **_REFUSED),
    Outcome("does not let the bridge in", _code(StatusCode.PERMISSION_DENIED), _status(403), **_REFUSED),
    Outcome("is not there at that address", _code(StatusCode.UNIMPLEMENTED), _status(404), **_REFUSED),
    Outcome("is broken", _code(StatusCode.INTERNAL), _status(500), **_REFUSED),
    Outcome("fails in words that nobody knows", _code(StatusCode.UNKNOWN), _status(418), **_REFUSED),
    Outcome("has moved, it says", None, _status(307, told="307 with `Location`", location="http://127.0.0.1:9"), **_REFUSED),
)
"""The table."""
