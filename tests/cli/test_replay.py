"""`otel-bridge replay`: ETDumps to spans without a server."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData
from support.otlp_answers import Answer
from support.otlp_sink import OtlpSink
from support.service import PROGRAM

ANCHOR = ("--anchor", "0=2026-01-01T00:00:00Z")


@pytest.fixture
def capture(fixtures: Path, tmp_path: Path) -> Path:
    """A folder with a capture of the toy backend and its mapping: nine events, five with metadata."""
    for name in ("run.etdp", "run10.etdp", "model.etrecord"):
        shutil.copy(fixtures / "toy_backend_int" / name, tmp_path)
    return tmp_path


def spans_of(text: str) -> list[dict[str, Any]]:
    """The spans of OTLP JSON lines, in order."""
    return [
        span
        for line in text.splitlines()
        for resource in json.loads(line)["resourceSpans"]
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    ]


def said(span: dict[str, Any]) -> dict[str, Any]:
    """The attributes of a span; arrays as they stand in JSON."""
    return {each["key"]: next(iter(each["value"].values())) for each in span.get("attributes", ())}


def test_lines_of_otlp(cli: Callable[..., Any], capture: Path) -> None:
    """Each line on stdout is one TracesData by OTLP's JSON rules; what is told of the work goes to stderr."""
    done = cli("replay", capture / "run.etdp", capture / "run10.etdp", "--mapping", capture / "model.etrecord", "--output", "-")
    assert done.code == 0
    spans = spans_of(done.out)
    assert done.err == f"{len(spans)} spans of 2 files written\n"
    for line in done.out.splitlines():
        assert list(json.loads(line)) == ["resourceSpans"]
    for span in spans:
        assert (len(bytes.fromhex(span["traceId"])), len(bytes.fromhex(span["spanId"]))) == (16, 8)
        assert len(bytes.fromhex(span.get("parentSpanId", ""))) in {0, 8}
        assert span["traceId"] == span["traceId"].lower()
        assert isinstance(span["kind"], int)
        assert span["startTimeUnixNano"].isdecimal()
        for key in ("traceId", "spanId", "parentSpanId"):  # protobuf's own reader takes ids for base64
            span.pop(key, None)
    ParseDict({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}, TracesData())


def test_a_file_gets_what_stdout_gets(cli: Callable[..., Any], capture: Path) -> None:
    """A file holds the lines that stdout gets, and no older ones."""
    arguments = ("replay", capture / "run.etdp", "--mapping", capture / "model.etrecord", "--output")
    out = cli(*arguments, "-").out
    (capture / "spans.jsonl").write_text("of an earlier replay\n")
    assert cli(*arguments, capture / "spans.jsonl").out == ""
    assert (capture / "spans.jsonl").read_text() == out


def test_a_replay_is_deterministic(cli: Callable[..., Any], capture: Path) -> None:
    """The same file gives the same bytes: by its modification time, or whatever that is by --anchor or --ended-at."""
    arguments = ("replay", capture / "run.etdp", "--mapping", capture / "model.etrecord", "--output", "-")
    os.utime(capture / "run.etdp", ns=(0, 1_700_000_000 * 10**9))
    by_mtime = cli(*arguments).out
    assert cli(*arguments).out == by_mtime
    assert cli(*arguments, "--ended-at", "mtime").out == by_mtime
    fixed = {option: cli(*arguments, *option).out for option in (ANCHOR, ("--ended-at", "2026-01-01T00:00:00.5Z"))}
    os.utime(capture / "run.etdp", ns=(0, 1_800_000_000 * 10**9))
    assert cli(*arguments).out != by_mtime
    assert {option: cli(*arguments, *option).out for option in fixed} == fixed
    assert len({by_mtime, *fixed.values()}) == 3


def test_clock_options(cli: Callable[..., Any], capture: Path) -> None:
    """Ticks become times by ratio, width and anchor, exactly; without an anchor the last event ends when it is said to."""

    def times(*options: str) -> list[tuple[int, int]]:
        out = cli("replay", capture / "run.etdp", "--mapping", capture / "model.etrecord", "--output", "-", *options).out
        return [(int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"])) for span in spans_of(out)]

    noon = 1_767_225_600 * 10**9
    plain = times(*ANCHOR)
    tenfold = times(*ANCHOR, "--tick-ratio", "10/1")
    assert [start - noon for start, _ in tenfold] == [10 * (start - noon) for start, _ in plain]
    ended = times("--ended-at", "2026-01-01T00:00:00Z")
    assert max(end for _, end in ended) == noon
    assert [end - start for start, end in ended] == [end - start for start, end in plain]
    first = min(start for start, _ in plain) - noon
    narrow = times("--anchor", f"{first}=2026-01-01T00:00:00Z", "--counter-bits", "48")
    assert min(start for start, _ in narrow) == noon


@pytest.mark.parametrize("mtime_ns", [-315_619_200 * 10**9, 0, 10_000_000_000 * 10**9])
def test_odd_modification_times(mtime_ns: int, cli: Callable[..., Any], capture: Path) -> None:
    """A file whose modification time no span can have is replayed all the same."""
    os.utime(capture / "run.etdp", ns=(0, mtime_ns))
    done = cli("replay", capture / "run.etdp", "--mapping", capture / "model.etrecord", "--output", "-")
    assert (done.code, len(spans_of(done.out))) == (0, 9)


def test_names_of_a_replay(cli: Callable[..., Any], capture: Path) -> None:
    """Spans bear the model and the resource that the options give, and resolve by the mapping that is given."""
    done = cli(
        "replay", capture / "run.etdp", "--mapping", capture / "model.etrecord", "--output", "-",
        "--model", "net@7", "--resource", "service.name=app", "--resource", "device.id=mine", "--method", "forward",
    )  # fmt: skip
    (line,) = done.out.splitlines()
    resource = said(json.loads(line)["resourceSpans"][0]["resource"])
    assert (resource["executorch.model.name"], resource["executorch.model.version"]) == ("net", "7")
    assert (resource["service.name"], resource["device.id"]) == ("app", "mine")
    statuses = [said(span).get("executorch.resolution.status") for span in spans_of(done.out)]
    assert statuses.count("exact") == 4
    assert statuses.count("unmapped_identifier") == 1


PARSERS = """
import time

def lengths(delegate_metadatas):
    print("a word that must not reach the spans")
    return {"length": len(delegate_metadatas[0]), "calls": len(delegate_metadatas)}

def raises(delegate_metadatas):
    raise RuntimeError("cannot read that")

def hangs(delegate_metadatas):
    time.sleep(1000)

def nonsense(delegate_metadatas):
    return 42

def dies(delegate_metadatas):
    import os
    os._exit(3)
"""


@pytest.mark.parametrize(
    ("parser", "told"),
    [
        ("raises", "the decoder raised RuntimeError: cannot read that"),
        ("hangs", "the decoder was switched off: no answer within 2 s"),
        ("nonsense", "the decoder gave int, not a list of strings or a dict"),
        ("dies", "the decoder was switched off: its process ended"),
    ],
)
def test_a_parser_that_fails(
    parser: str, told: str, cli: Callable[..., Any], capture: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A parser that raises, hangs, dies or answers nonsense costs its attribute: bytes stay raw, all spans come."""
    (capture / "author_of_parsers.py").write_text(PARSERS)
    monkeypatch.chdir(capture)
    monkeypatch.setenv("OTEL_BRIDGE_METADATA__TIME_LIMIT_S", "2")
    arguments = ("replay", "run.etdp", "--mapping", "model.etrecord", "--output", "-")
    done = cli(*arguments, "--metadata-parser", f"author_of_parsers:{parser}")
    attributes = [said(span) for span in spans_of(done.out)]
    assert (done.code, len(attributes)) == (0, 9)
    failed = [each for each in attributes if "executorch.delegate.metadata_error" in each]
    assert len(failed) == 5
    assert {each["executorch.delegate.metadata_error"] for each in failed} == {told}
    assert all(bytes.fromhex(each["executorch.delegate.metadata_raw"]) for each in failed)


def test_a_parser_beside_the_captures(capture: Path) -> None:
    """A module in the current directory is found, called with a list of one, for its backend; what it prints is no span."""
    (capture / "author_of_parsers.py").write_text(PARSERS)
    command = [
        PROGRAM, "replay", "run.etdp", "--mapping", "model.etrecord", "--output", "-",
        "--metadata-parser", "raw", "--metadata-parser", "ToyProfBackend=author_of_parsers:lengths",
    ]  # fmt: skip
    done = subprocess.run(command, cwd=capture, capture_output=True, text=True, timeout=50, check=True)
    attributes = [said(span) for span in spans_of(done.stdout)]
    lengths = [
        each["executorch.delegate.metadata.length"] for each in attributes if "executorch.delegate.metadata.length" in each
    ]
    assert len(lengths) == 5
    assert {each.get("executorch.delegate.metadata.calls") for each in attributes} == {None, 1}
    assert "a word that must not reach the spans" in done.stderr


@pytest.mark.parametrize(
    ("parser", "told"),
    [
        ("no_such_module:parse", "metadata parser 'no_such_module:parse' cannot be imported"),
        ("json:no_such_function", "metadata parser 'json:no_such_function' has no function 'no_such_function'"),
        ("string:ascii_letters", "metadata parser 'string:ascii_letters' is not callable"),
        ("nonsense", "metadata parser 'nonsense' must look like [BACKEND=]module:function"),
    ],
)
def test_a_parser_that_cannot_be_used(parser: str, told: str, cli: Callable[..., Any], capture: Path) -> None:
    """A parser that cannot be called is told before anything is written."""
    arguments = ("replay", capture / "run.etdp", "--mapping", capture / "model.etrecord", "--output", capture / "out")
    assert told in cli(*arguments, "--metadata-parser", parser).error
    assert not (capture / "out").exists()


def test_bad_files_between_good_ones(cli: Callable[..., Any], capture: Path) -> None:
    """A file that is no ETDump costs itself: it is named in one line, the others are replayed, and the exit code is 1."""
    bad = capture / "bad.etdp"
    bad.write_bytes(b"\x1b[31mno dump" * 9)
    (capture / "cut.etdp").write_bytes((capture / "run.etdp").read_bytes()[:-1])
    files = (bad, capture / "run.etdp", capture / "cut.etdp", capture / "run10.etdp")
    done = cli("replay", *files, "--mapping", capture / "model.etrecord", "--output", "-")
    whole = cli("replay", files[1], files[3], "--mapping", capture / "model.etrecord", "--output", "-")
    assert (done.code, done.out) == (1, whole.out)
    first, second, third = done.err.splitlines()
    assert first.startswith(f"Error: {bad}: no ETDump (108 bytes)")
    assert second.startswith(f"Error: {capture / 'cut.etdp'}: the ETDump was cut")
    assert third == f"{len(spans_of(whole.out))} spans of 2 files written"
    assert first.isprintable()
    assert cli("replay", bad, "--mapping", capture / "model.etrecord", "--output", "-").error.startswith(f"{bad}: no ETDump")


def test_files_that_cannot_be_used(cli: Callable[..., Any], capture: Path) -> None:
    """A file that is not there, and an output that cannot be written, are named with the reason."""
    mapping = ("--mapping", capture / "model.etrecord")
    none = capture / "none"
    assert cli("replay", none, *mapping, "--output", "-").error == f"{none}: cannot be read: No such file or directory"
    told = cli("replay", capture / "run.etdp", *mapping, "--output", capture).error
    assert told == f"{capture}: cannot be written: Is a directory"


@pytest.fixture
def sink() -> Iterator[OtlpSink]:
    """An OTLP back end."""
    with OtlpSink() as sink:
        yield sink


def test_spans_to_a_back_end(cli: Callable[..., Any], capture: Path, sink: OtlpSink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spans go to the endpoint; OTEL_EXPORTER_OTLP_* choose protocol and headers; what the back end refuses is told, with 1."""
    arguments = ("replay", capture / "run.etdp", "--mapping", capture / "model.etrecord", *ANCHOR)
    written = {span["spanId"] for span in spans_of(cli(*arguments, "--output", "-").out)}
    assert cli(*arguments, "--otlp-endpoint", sink.grpc_endpoint).err == "9 spans of 1 files sent\n"
    assert {span.span_id.hex() for span in sink.spans} == written
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "x-key=value")
    base = sink.http_endpoint.removesuffix("/v1/traces")
    assert cli(*arguments, "--otlp-endpoint", base).code == 0
    received = sink.received[-1]
    assert (received.transport, received.path, received.headers["x-key"]) == ("http", "/v1/traces", "value")
    sink.answers += [Answer.partial(2, "too many"), Answer.http_failure(403, "no")]
    done = cli(*arguments, "--otlp-endpoint", base)
    assert (done.code, done.err.splitlines()[-1]) == (1, "Error: the back end refused 2 of 9 spans")
    assert "403" in cli(*arguments, "--otlp-endpoint", base).error


@pytest.mark.parametrize("arguments", [("replay", "--output", "-", "--mapping"), ("inspect", "--format", "csv", "--mapping")])
def test_a_reader_that_has_seen_enough(arguments: tuple[str, ...], fixtures: Path) -> None:
    """When the reader of a pipe goes away the command ends with 1, and without a traceback."""
    capture = fixtures / "xnnpack"
    command = [
        PROGRAM,
        *arguments,
        capture / "model.etrecord",
        *[capture / "run100.etdp"] * (50 if arguments[0] == "replay" else 1),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        error = process.stderr.read().decode()
        assert process.wait(50) == 1
    assert "Traceback" not in error
    assert "Exception ignored" not in error
    assert len(error.splitlines()) <= 1
