"""What each answer of a back end means, row by row, with a real back end that gives it."""

import gzip
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from google.rpc.error_details_pb2 import BadRequest, RetryInfo
from google.rpc.status_pb2 import Status
from grpc import StatusCode
from support.otlp_answers import Answer, duration, packed
from support.otlp_payloads import a_payload
from support.otlp_sink import OtlpSink

from otel_bridge.errors import BackEndUnavailable, ExportRejected
from otel_bridge.export.answers import read_retry_after_s
from otel_bridge.export.otlp_grpc import VERDICTS, Verdict
from otel_bridge.export.protocol import EXHAUSTED, INVALID, TOO_LARGE, Exporter, Sent

Build = Callable[..., Exporter]
Run = Callable[[Coroutine[Any, Any, Any]], Any]
Send = Callable[..., Sent]

RETRYABLE_CODES = {
    StatusCode.CANCELLED,
    StatusCode.DEADLINE_EXCEEDED,
    StatusCode.ABORTED,
    StatusCode.OUT_OF_RANGE,
    StatusCode.UNAVAILABLE,
    StatusCode.DATA_LOSS,
}
"""As the OTLP specification lists them; RESOURCE_EXHAUSTED is the one that depends."""

over_grpc = pytest.mark.parametrize("protocol", ["grpc"])
over_http = pytest.mark.parametrize("protocol", ["http/protobuf"])


def failure(send: Send, answer: Answer) -> BackEndUnavailable | ExportRejected:
    with OtlpSink() as sink:
        sink.answer = answer
        with pytest.raises((BackEndUnavailable, ExportRejected)) as caught:
            send(sink, a_payload(1))
        assert sink.spans == []
    return caught.value


def test_the_table_is_complete() -> None:
    """Every gRPC status code but OK has its verdict, and those that a retry helps are the specification's."""
    assert set(VERDICTS) == set(StatusCode) - {StatusCode.OK}
    assert {code for code, verdict in VERDICTS.items() if verdict is Verdict.RETRY} == RETRYABLE_CODES
    assert VERDICTS[StatusCode.RESOURCE_EXHAUSTED] is Verdict.RETRY_IF_TOLD


@over_grpc
@pytest.mark.parametrize(
    "code", sorted(set(StatusCode) - {StatusCode.OK}, key=lambda code: code.value[0]), ids=lambda code: code.name
)
def test_grpc_codes(send: Send, code: StatusCode) -> None:
    """A gRPC status means unavailable or rejected by the specification's table; the error tells it with the peer's words."""
    error = failure(send, Answer.grpc_failure(code, "no\nsuch"))
    assert isinstance(error, BackEndUnavailable if code in RETRYABLE_CODES else ExportRejected)
    assert f"answered {code.name}: 'no\\nsuch'" in str(error)
    if isinstance(error, BackEndUnavailable):
        assert error.retry_after_s is None
    reasons = {StatusCode.RESOURCE_EXHAUSTED: EXHAUSTED, StatusCode.INVALID_ARGUMENT: INVALID}
    if isinstance(error, ExportRejected):
        assert error.reason == reasons.get(code, "export_rejected")


SIZES = [
    (StatusCode.RESOURCE_EXHAUSTED, "SERVER: Received message larger than max (5000000 vs. 4194304)"),  # gRPC core
    (StatusCode.RESOURCE_EXHAUSTED, "grpc: received message after decompression larger than max 4194304"),  # grpc-go
    (StatusCode.RESOURCE_EXHAUSTED, "gRPC message exceeds maximum size 4194304: 5000000"),  # grpc-java
    (StatusCode.RESOURCE_EXHAUSTED, "Received message exceeds the maximum configured message size."),  # .NET
    (
        StatusCode.OUT_OF_RANGE,
        "Error, decoded message length too large: found 5000000 bytes, the limit is: 4194304 bytes",
    ),  # tonic
]


@over_grpc
@pytest.mark.parametrize(("code", "details"), SIZES, ids=["core", "go", "java", "dotnet", "tonic"])
def test_words_for_too_large(send: Send, code: StatusCode, details: str) -> None:
    """What servers say of a message over their limit is read as such; with RetryInfo it is patience that is asked for."""
    error = failure(send, Answer.grpc_failure(code, details))
    assert isinstance(error, ExportRejected)
    assert error.reason == TOO_LARGE
    assert isinstance(failure(send, Answer.grpc_failure(code, details, retry_after_s=1)), BackEndUnavailable)


@over_grpc
@pytest.mark.parametrize("code", [StatusCode.UNAVAILABLE, StatusCode.RESOURCE_EXHAUSTED])
def test_retry_info(send: Send, code: StatusCode) -> None:
    """RetryInfo is read from `grpc-status-details-bin`, as the specification says; without it RESOURCE_EXHAUSTED is final."""
    error = failure(send, Answer.grpc_failure(code, retry_after_s=1.25))
    assert isinstance(error, BackEndUnavailable)
    assert error.retry_after_s == 1.25


@over_grpc
def test_retry_info_without_a_time(send: Send) -> None:
    """RetryInfo without a delay says that a retry helps and leaves the time to us."""
    error = failure(send, Answer.grpc_failure(StatusCode.RESOURCE_EXHAUSTED, retry_after_s=0))
    assert isinstance(error, BackEndUnavailable)
    assert error.retry_after_s is None


@over_grpc
def test_retry_info_does_not_soften_a_rejection(send: Send) -> None:
    """A code that no retry helps stays rejected, whatever details it has."""
    assert isinstance(failure(send, Answer.grpc_failure(StatusCode.INVALID_ARGUMENT, retry_after_s=1)), ExportRejected)


@over_grpc
def test_retry_info_among_other_details(send: Send) -> None:
    """RetryInfo is found behind other details, and behind one that claims its type and is none."""
    broken = packed(RetryInfo())
    broken.value = b"\xff"
    status = Status(code=14, details=[packed(BadRequest()), broken, packed(RetryInfo(retry_delay=duration(2)))])
    trailers = (("grpc-status-details-bin", status.SerializeToString()),)
    error = failure(send, Answer(code=StatusCode.UNAVAILABLE, trailers=trailers))
    assert isinstance(error, BackEndUnavailable)
    assert error.retry_after_s == 2


@over_grpc
def test_details_that_make_no_sense(send: Send) -> None:
    """Details that cannot be read are as if they were not there."""
    error = failure(send, Answer(code=StatusCode.UNAVAILABLE, trailers=(("grpc-status-details-bin", b"\xff\xff"),)))
    assert isinstance(error, BackEndUnavailable)
    assert error.retry_after_s is None


@over_http
@pytest.mark.parametrize("status", [400, 401, 403, 404, 408, 413, 415, 429, 500, 501, 502, 503, 504])
def test_http_codes(send: Send, status: int) -> None:
    """429, 502, 503 and 504 mean unavailable, all else rejected; the error tells the peer's words."""
    error = failure(send, Answer.http_failure(status, "no\nsuch"))
    assert isinstance(error, BackEndUnavailable if status in {429, 502, 503, 504} else ExportRejected)
    assert str(error).endswith(f"answered HTTP {status}: 'no\\nsuch'")
    assert (error.reason == TOO_LARGE) == (status == 413)


@over_http
@pytest.mark.parametrize("status", [200, 202, 204])
def test_http_success(send: Send, status: int) -> None:
    """Any 2xx means taken; a body that is not protobuf says nothing."""
    with OtlpSink() as sink:
        body = b"" if status == 204 else b"accepted"
        sink.answer = Answer(status=status, body=body, headers={"content-type": "text/plain"})
        assert send(sink, a_payload(1)) == Sent()
        assert len(sink.spans) == 1


@over_http
def test_redirects_are_not_followed(send: Send) -> None:
    """A redirect is refused and told with where it leads: spans and API keys go only where they were configured to go."""
    with OtlpSink() as other:
        error = failure(send, Answer.http_failure(308, location=other.http_endpoint))
        assert isinstance(error, ExportRejected)
        assert f"set export.endpoint to where it leads, '{other.http_endpoint}'" in str(error)
        assert other.received == []


@over_http
def test_an_answer_is_not_unpacked(send: Send) -> None:
    """An answer that calls itself compressed is read as it is: whatever it would become takes no memory."""
    with OtlpSink() as sink:
        packed_answer = gzip.compress(Answer.partial(1, "x" * 1000).body)
        sink.answer = Answer(body=packed_answer, headers={"content-encoding": "gzip"})
        said = f"the answer is no ExportTraceServiceResponse ({len(packed_answer)} bytes)"
        assert send(sink, a_payload(1)) == Sent(0, said)


@over_http
def test_an_answer_without_end(send: Send) -> None:
    """Of an answer no more than some MiB are read. Its status counts; the rest says nothing."""
    with OtlpSink() as sink:
        sink.answer = Answer.partial(1, "x" * (5 << 20))
        assert send(sink, a_payload(1)) == Sent()


@over_http
def test_cookies_are_not_kept(build: Build, run: Run) -> None:
    """What a back end sets is not shown to whoever is asked next, by this name or another."""

    async def scene(sink: OtlpSink) -> None:
        exporter = build(sink, endpoint=f"http://localhost:{sink.ports[1]}/v1/traces")
        for _ in range(2):
            await exporter.send(a_payload(1))
        await exporter.close()

    with OtlpSink() as sink:
        sink.answer = Answer(headers={"set-cookie": "a=b; Path=/"})
        run(scene(sink))
        assert [one.headers.get("cookie") for one in sink.received] == [None, None]


@over_http
def test_retry_after(send: Send) -> None:
    """Retry-After is honoured as seconds and as a date; what is neither, or lies in the past, leaves the time to us."""
    date = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    waits = []
    for header in ("7", date, "soon", "-1", "0", "nan", "inf", "Thu, 01 Jan 1970 00:00:00 GMT"):
        error = failure(send, Answer.http_failure(503, retry_after=header))
        assert isinstance(error, BackEndUnavailable)
        waits.append(error.retry_after_s)
    assert waits[0] == 7
    assert waits[1] is not None
    assert 3_000 < waits[1] <= 3_600
    assert waits[2:] == [None] * 6


def test_retry_after_is_relative_to_now() -> None:
    """The wait until a date is counted from now, in either form that RFC 9110 asks recipients to take."""
    now = datetime(1994, 11, 6, 8, 49, 30, tzinfo=UTC)
    for date in ("Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"):
        assert read_retry_after_s(date, now) == 7.0


@over_http
def test_peer_text_is_bounded(send: Send) -> None:
    """A back end's words are cut, so that no log line is as long as a back end likes."""
    assert len(str(failure(send, Answer.http_failure(400, "x" * 100_000)))) < 500


@pytest.mark.parametrize(
    "settings", [{"endpoint": "http://127.0.0.1:1"}, {"endpoint": "http://no-such-host.invalid:80"}], ids=str
)
def test_nobody_there(send: Send, settings: dict[str, Any]) -> None:
    """A refused connection and an unknown host mean unavailable: both may change."""
    with OtlpSink() as sink, pytest.raises(BackEndUnavailable, match="back end"):
        send(sink, a_payload(1), **settings, timeout_ms=5_000)
