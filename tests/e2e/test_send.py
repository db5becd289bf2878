"""`otel-bridge send` with a real bridge: serial logs, sidecars, several files."""

import json
import os
import pty
import subprocess
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from google.protobuf import proto
from support.armour import armoured, printed_by_runner
from support.http import DUMP
from support.processes import free_port
from support.service import PROGRAM, Service

from otel_bridge.cli.main import otel_bridge as commands
from otel_bridge.etdump.read import read
from otel_bridge.model.stream import Anchor, Clock, ModelRef, Stream
from otel_bridge.v1 import profiling_pb2 as pb
from otel_bridge.wire.codec import request_of

NOON_NS = 1_800_000_000 * 10**9
FIXTURES = Path(__file__).parents[1] / "fixtures"
CAPTURE = (FIXTURES / "toy_backend_int" / "run.etdp").read_bytes()
EVENTS = 9
MODEL = ("--model", "toy@1")


def send(service: Service, *arguments: object, data: bytes | None = None) -> Result:
    """`otel-bridge send` in this process."""
    words = ["send", *map(str, arguments), "--server", service.grpc]
    return CliRunner().invoke(commands, words, input=data, catch_exceptions=False)


def a_request(app: str, *, model: bool = True) -> pb.ExportEventsRequest:
    """A capture as a device would print it."""
    stream = Stream(
        stream_id=app.encode().ljust(16, b".")[:16],
        model=ModelRef("toy", "1") if model else ModelRef(),
        resource=(("service.name", app),),
        clocks=(Clock(anchor=Anchor(0, NOON_NS)),),
    )
    return request_of(read(CAPTURE, stream).batch)


def a_log(*blocks: list[str], end: str = "\n") -> bytes:
    """Blocks among the noise of a device."""
    lines = ["\x1b[32mI (12) boot: ready", *(line for block in blocks for line in (*block, "I (99) app: idle"))]
    return "".join(f"[00:00:01.5] {line}{end}" for line in lines).encode()


def summary_of(done: Result) -> dict[str, Any]:
    """The last object of --json."""
    summary: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])["summary"]
    return summary


@pytest.mark.parametrize("by", ["file", "standard input"])
def test_a_serial_log_arrives_once(by: str, service: Service, tmp_path: Path) -> None:
    """Whatever blocks a log has, of this project or of ExecuTorch's runner, each arrives; sent again, none is emitted again."""
    app = f"uart {by}"
    request = a_request(app)
    data = a_log(
        armoured(request.SerializeToString()), armoured(CAPTURE, "ETDUMP"), printed_by_runner(CAPTURE + b"more"), end="\r\n"
    )
    log = tmp_path / "device.log"
    log.write_bytes(data)
    place: tuple[Any, ...] = ("--uart", log) if by == "file" else ("--uart", "-")
    words = (*place, *MODEL, "--resource", f"service.name={app}", "--method", "forward", "--json")
    for _ in range(2):
        done = send(service, *words, data=None if by == "file" else data)
        assert (done.exit_code, done.stderr) == (0, "")
        assert [json.loads(line)["accepted"] for line in done.stdout.splitlines()[:-1]] == [EVENTS] * 3
        assert summary_of(done)["accepted"] == 3 * EVENTS
    service.settle()
    seen = Counter((span.trace_id, span.span_id) for span in service.spans(app))
    assert (len(seen), set(seen.values())) == (3 * EVENTS, {1})


def test_damage_in_a_log_costs_itself(service: Service, tmp_path: Path) -> None:
    """A block that is damaged, cut or no request is told with its lines and is refused; the others arrive."""
    good = armoured(a_request("damaged log").SerializeToString())
    log = tmp_path / "device.log"
    log.write_bytes(a_log(good[:3], good, [*good[:2], *good[3:]], armoured(b"\xff"), armoured(b"no dump", "ETDUMP")))
    done = send(service, "--uart", log, *MODEL, "--json")
    assert done.exit_code == 1
    faults = done.stderr.splitlines()
    assert all(fault.startswith(f"Error: {log}: lines ") and fault.isprintable() for fault in faults)
    for fault, told in zip(
        faults, ("is cut", "checksum", "is no otel_bridge.v1.ExportEventsRequest", "no ETDump"), strict=True
    ):
        assert told in fault
    assert {key: summary_of(done)[key] for key in ("sent", "refused", "accepted")} == {
        "sent": 1,
        "refused": 4,
        "accepted": EVENTS,
    }
    service.settle()
    assert len(service.spans("damaged log")) == EVENTS


def test_a_block_leaves_before_the_log_ends(service: Service) -> None:
    """From standard input a block is sent as soon as its end is there: the device may go on printing."""
    command = [PROGRAM, "send", "--uart", "-", "--server", service.grpc]
    piped: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **piped) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        block = armoured(a_request("live").SerializeToString())
        process.stdin.write(a_log(block))
        process.stdin.flush()
        assert process.stdout.readline() == f"-: lines 2 to {len(block) + 1}: {EVENTS} events accepted\n".encode()
        process.stdin.close()
        assert process.wait(30) == 0


def test_options_say_what_a_block_does_not(service: Service, tmp_path: Path) -> None:
    """Model, anchor and resource of the options count where the block says nothing; what it says itself stays."""
    said = a_request("its own name", model=False)
    said.stream.clocks[0].ClearField("anchor_unix_ns")
    log = tmp_path / "device.log"
    log.write_bytes(a_log(armoured(said.SerializeToString())))
    done = send(service, "--uart", log)
    assert done.exit_code == 1
    assert "say which model ran" in done.stderr
    options = (*MODEL, "--anchor", "0=2026-01-02T03:04:05Z", "--resource", "service.name=another", "--resource", "os.name=rtos")
    assert send(service, "--uart", log, *options).exit_code == 0
    service.settle()
    spans = service.spans("its own name")
    assert len(spans) == EVENTS
    start_ns = min(span.start_time_unix_nano for span in spans)
    assert 0 <= start_ns - 1_767_323_045_000_000_000 < 3600 * 10**9  # its ticks count from the start of the process


def test_recorded_requests_arrive_once(service: Service, tmp_path: Path) -> None:
    """Requests that a runtime wrote into a file arrive, those before a cut too; sent again, they are not emitted again."""
    recording = tmp_path / "requests.bin"
    with recording.open("wb") as stream:
        for sequence in range(3):
            request = a_request("recorded")
            request.stream.sequence = sequence
            proto.serialize_length_prefixed(request, stream)
    words = ("--events", recording, "--json")
    assert send(service, *words).exit_code == 0
    recording.write_bytes(recording.read_bytes()[:-1])
    done = send(service, *words)
    assert done.exit_code == 1
    assert done.stderr.startswith(f"Error: {recording}: request 3, at byte ")
    assert "is cut" in done.stderr
    assert [json.loads(line).get("accepted") for line in done.stdout.splitlines()[:-1]] == [EVENTS, EVENTS, None]
    service.settle()
    seen = Counter((span.trace_id, span.span_id) for span in service.spans("recorded"))
    assert (len(seen), set(seen.values())) == (3 * EVENTS, {1})
    recording.write_bytes(b"")
    assert "is empty; let the runtime write requests into it" in send(service, *words).stderr


@pytest.mark.parametrize("content", [b"", b"nothing here\n"])
def test_a_log_without_blocks(content: bytes, service: Service, tmp_path: Path) -> None:
    """A log in which there is nothing to send is told, for it is seldom meant."""
    log = tmp_path / "device.log"
    log.write_bytes(content)
    done = send(service, "--uart", log, *MODEL)
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith(f"Error: {log}: holds no block; one begins with -----BEGIN OTEL BRIDGE EVENTS-----")
    log.unlink()
    assert "cannot be read: No such file" in send(service, "--uart", log, *MODEL).stderr


def test_a_port_that_is_pulled_out(service: Service) -> None:
    """Where reading fails in the middle, as of a serial port that was pulled out, that is told and the command goes on."""
    done = send(service, "--uart", "/proc/self/mem", "--events", "/proc/self/mem", *MODEL)
    assert done.exit_code == 1
    assert done.stderr.count("Error: /proc/self/mem: cannot be read any further: Input/output error; 0 came before\n") == 2


def test_standard_input_is_read_once(service: Service) -> None:
    """There is one standard input: to name it twice is a slip."""
    done = send(service, "--uart", "-", "--events", "-", data=b"")
    assert done.exit_code == 2
    assert "- is given twice" in done.stderr


def test_a_sidecar_wins_over_options(service: Service, tmp_path: Path) -> None:
    """What lies beside a file is said of its stream; options fill the rest; without either the model is asked for."""
    dump = tmp_path / "run.etdp"
    dump.write_bytes(CAPTURE)
    done = send(service, dump)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "say which model ran" in done.stderr
    sidecar = tmp_path / "run.etdp.json"
    sidecar.write_text(json.dumps({"resource": {"service.name": "sidecar"}, "model": "toy@2", "anchor": f"0={NOON_NS}"}))
    words = (*MODEL, "--resource", "service.name=option", "--resource", "service.version=7")
    assert send(service, dump, *words).exit_code == 0
    assert send(service, dump).exit_code == 0  # the sidecar alone names the model
    service.settle()
    resources = [
        {attribute.key: attribute.value.string_value for attribute in resource.resource.attributes}
        for request in service.sink.requests
        for resource in request.resource_spans
    ]
    (found, alone) = [each for each in resources if each["service.name"] == "sidecar"]
    assert (found["executorch.model.version"], found["service.version"]) == ("2", "7")
    assert "service.version" not in alone
    spans = service.spans("sidecar")
    assert min(span.start_time_unix_nano for span in spans) - NOON_NS < 3600 * 10**9


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"\xff", "is no JSON sidecar"),
        (b"{", "is no JSON sidecar"),
        (b"[]", "must be an object with the parameters of POST /v1/etdump"),
        (b"[" * 100_000, "is no JSON sidecar"),
        (b'{"resource": []}', "resource must be an object"),
        (b'{"model": null}', "'model' must be text or a whole number"),
        (b'{"sequence": 1.5}', "'sequence' must be text or a whole number"),
        (b'{"modell": "x"}', "parameter 'modell': is not known; known are model, build_id,"),
        (b'{"stream": "x"}', "parameter stream: must be 32 hex digits"),
        (b'{"method": "forward"}', "say which model ran"),
        (b" " * (2 << 20), "has more than 1048576 bytes"),
    ],
)
def test_a_bad_sidecar(content: bytes, told: str, service: Service, tmp_path: Path) -> None:
    """A sidecar that cannot be obeyed costs its file, and says why: sent without it, the run would look like another's."""
    dump = tmp_path / "run.etdp"
    dump.write_bytes(CAPTURE)
    (tmp_path / "run.etdp.json").write_bytes(content)
    done = send(service, dump)
    assert (done.exit_code, done.stdout) == (1, "")
    assert told in done.stderr
    assert done.stderr.strip().isprintable()


def test_a_summary(service: Service, tmp_path: Path) -> None:
    """After several files stands what they come to: files, events by outcome and time. A single file is its own summary."""
    names = ("a.etdp", "b.etdp", "c.etdp")
    for name, data in zip(names, (CAPTURE, DUMP, b"none"), strict=True):
        (tmp_path / name).write_bytes(data)
    done = send(service, *(tmp_path / name for name in names), *MODEL)
    assert done.exit_code == 1
    *_, last = done.stdout.splitlines()
    assert last.startswith(f"2 sent, 1 refused: {EVENTS + 1} events accepted, 1 debug_event, 1 unnamed, ")
    assert send(service, tmp_path / "a.etdp", *MODEL).stdout == f"{tmp_path / 'a.etdp'}: {EVENTS} events accepted\n"


def test_no_bridge(tmp_path: Path) -> None:
    """Where no bridge answers, the command ends with 1, says so, and counts what it did not send."""
    for name in ("a.etdp", "b.etdp"):
        (tmp_path / name).write_bytes(CAPTURE)
    words = ["send", str(tmp_path / "a.etdp"), str(tmp_path / "b.etdp"), *MODEL, "--server", f"127.0.0.1:{free_port()}"]
    done = CliRunner().invoke(commands, [*words, "--json"])
    assert done.exit_code == 1
    assert "no bridge answers" in done.stderr
    assert (summary_of(done)["files"], summary_of(done)["unsent"]) == (2, 2)


def test_progress_is_for_terminals(service: Service, tmp_path: Path) -> None:
    """On a terminal a bar shows how many files are sent, beside the lines; into a pipe go the lines alone."""
    files = [tmp_path / f"{number}.etdp" for number in range(3)]
    for number, file in enumerate(files):
        file.write_bytes(CAPTURE + bytes([number]))
    command = [PROGRAM, "send", *files, *MODEL, "--server", service.grpc]
    piped = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (len(piped.stdout.splitlines()), piped.stderr) == (4, "")
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "200"}
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        shown = b""
        with suppress(OSError):  # Linux ends a terminal that nobody writes to any more with EIO
            while chunk := os.read(ours, 65536):
                shown += chunk
    os.close(ours)
    assert process.returncode == 0
    assert b"sending" in shown
    assert b"3/3" in shown
    assert all(f"{file}: {EVENTS} events accepted".encode() in shown for file in files)
