"""`otel-bridge watch` with a real bridge: a folder of ETDumps that phones and scripts fill."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from click.testing import CliRunner, Result
from support.faulty_bridge import FaultyBridge
from support.otlp_answers import Answer
from support.otlp_sink import OtlpSink
from support.processes import LOOPBACK, Process, free_port
from support.service import PROGRAM, Service, running

from otel_bridge.cli.main import otel_bridge as commands
from otel_bridge.v1 import profiling_pb2 as pb

FIXTURES = Path(__file__).parents[1] / "fixtures"
CAPTURE = (FIXTURES / "toy_backend_int" / "run.etdp").read_bytes()
EVENTS = 9
MODEL = ("--model", "toy@1")


def watch_once(server: str, folder: Path, *arguments: str) -> Result:
    """One walk through a folder."""
    words = ["watch", str(folder), "--once", "--interval", "0.05", "--server", server, *arguments]
    return CliRunner().invoke(commands, words, catch_exceptions=False)


@contextmanager
def watching(server: str, folder: Path, log: Path, *arguments: str, interval_s: str = "0.05") -> Iterator[Process]:
    """A watcher in a process of its own, that has begun to look."""
    command = [PROGRAM, "watch", folder, "--interval", interval_s, "--server", server, *arguments]
    with Process(command, log=log) as process:
        process.wait_until(lambda: "watched, every" in log.read_text())
        yield process


def put(folder: Path, name: str, data: bytes) -> None:
    """A file as a script puts it there: written beside, then renamed."""
    part = folder / f"{name}.part"
    part.write_bytes(data)
    part.rename(folder / name)


def files_in(folder: Path) -> set[str]:
    """The names of a folder's files."""
    return {path.name for path in folder.iterdir() if path.is_file() and not path.name.startswith(".")}


def test_each_file_is_sent_once(service: Service, tmp_path: Path) -> None:
    """Files that are there and files that come are sent, each once, and moved; one that the bridge refuses goes aside."""
    folder, log = tmp_path / "pulled", tmp_path / "watch.log"
    folder.mkdir()
    put(folder, "first.etdp", CAPTURE + b"1")
    app = ("--resource", "service.name=watched")
    with watching(service.grpc, folder, log, *MODEL, *app, "--json") as process:
        put(folder, "bad.etdp", b"\x1b[31mno dump")
        put(folder, "second.etdump", CAPTURE + b"2")
        put(folder, "notes.txt", b"not for the bridge")
        process.wait_until(lambda: files_in(folder) == {"notes.txt"})
        put(folder, "first.etdp", CAPTURE + b"3")
        process.wait_until(lambda: files_in(folder) == {"notes.txt"})
        process.signal(signal.SIGTERM)
        assert process.wait() == 1  # a file was refused
    assert files_in(folder / "sent") == {"first.etdp", "first.2.etdp", "second.etdump"}
    assert files_in(folder / "refused") == {"bad.etdp"}
    said = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    assert len(said) == 5
    summary = {key: said[-1]["summary"][key] for key in ("sent", "refused", "accepted", "unsent")}
    assert summary == {"sent": 3, "refused": 1, "accepted": 3 * EVENTS, "unsent": 0}
    assert "Error: " in log.read_text()
    assert "no ETDump" in log.read_text()
    service.settle()
    spans = service.spans("watched")
    assert len(spans) == len({(span.trace_id, span.span_id) for span in spans}) == 3 * EVENTS


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_watcher_ends_when_it_is_told(number: signal.Signals, service: Service, tmp_path: Path) -> None:
    """SIGTERM and SIGINT end the watcher with 0; what comes later is sent by the next one."""
    log = tmp_path / "watch.log"
    folder = tmp_path / "pulled"
    folder.mkdir()
    with watching(service.grpc, folder, log, *MODEL) as process:
        process.signal(number)
        assert process.wait() == 0
    put(folder, "later.etdp", CAPTURE)
    assert "Traceback" not in log.read_text()
    done = watch_once(service.grpc, folder, *MODEL)
    assert (done.exit_code, done.stdout) == (0, f"{folder / 'later.etdp'}: {EVENTS} events accepted\n")


def test_a_bridge_that_is_away(sink: OtlpSink, tmp_path: Path) -> None:
    """While the bridge is away files stay, and that is said once; when it is there they are sent, each once."""
    folder, log = tmp_path / "pulled", tmp_path / "watch.log"
    folder.mkdir()
    for number in range(3):
        put(folder, f"{number}.etdp", CAPTURE + bytes([number]))
    address = f"{LOOPBACK}:{free_port()}"
    with watching(address, folder, log, *MODEL, "--resource", "service.name=patient") as process:
        process.wait_until(lambda: "3 files wait" in log.read_text())
        assert files_in(folder) == {"0.etdp", "1.etdp", "2.etdp"}
        with running(tmp_path, sink, "--grpc", address) as bridge:
            process.wait_until(lambda: not files_in(folder))
            bridge.settle()
            assert len(bridge.spans("patient")) == 3 * EVENTS
            process.signal(signal.SIGTERM)
            assert process.wait() == 0
    told = log.read_text()
    assert told.count("no bridge answers") == 1
    assert "3 sent: " in told
    done = watch_once(address, folder, *MODEL)
    assert (done.exit_code, done.stderr) == (0, "")  # nothing to send, nobody to ask
    put(folder, "more.etdp", CAPTURE)
    done = watch_once(address, folder, *MODEL)
    assert done.exit_code == 1
    assert "1 file waits" in done.stderr
    assert files_in(folder) == {"more.etdp"}


def test_a_watcher_that_was_killed_before_its_rename(service: Service, tmp_path: Path) -> None:
    """A file that was sent and not yet moved is sent again by the next watcher, and emitted once."""
    put(tmp_path, "run.etdp", CAPTURE)
    for _ in range(2):
        assert watch_once(service.grpc, tmp_path, *MODEL, "--resource", "service.name=killed").exit_code == 0
        (tmp_path / "sent" / "run.etdp").rename(tmp_path / "run.etdp")
    service.settle()
    spans = service.spans("killed")
    assert (len(spans), len({(span.trace_id, span.span_id) for span in spans})) == (EVENTS, EVENTS)


def test_a_sidecar_goes_along(service: Service, tmp_path: Path) -> None:
    """Without a model among the options a file waits for its sidecar, which says what ran, and is moved with it."""
    put(tmp_path, "run.etdp", CAPTURE)
    done = watch_once(service.grpc, tmp_path)
    assert done.exit_code == 1
    assert done.stderr == f"{tmp_path / 'run.etdp'}: waits for run.etdp.json, or start with --model or --build-id\n"
    put(tmp_path, "run.etdp.json", json.dumps({"model": "toy@1", "resource": {"service.name": "aside"}}).encode())
    assert watch_once(service.grpc, tmp_path).exit_code == 0
    assert files_in(tmp_path / "sent") == {"run.etdp", "run.etdp.json"}
    service.settle()
    assert len(service.spans("aside")) == EVENTS


def test_a_file_that_cannot_be_read(service: Service, tmp_path: Path) -> None:
    """A file that cannot be read stays, is told, and holds up nobody."""
    put(tmp_path, "good.etdp", CAPTURE)
    put(tmp_path, "bad.etdp", CAPTURE)
    (tmp_path / "bad.etdp.json").mkdir()
    done = watch_once(service.grpc, tmp_path, *MODEL)
    assert done.exit_code == 1
    assert done.stderr == f"{tmp_path / 'bad.etdp.json'}: cannot be read: Is a directory\n"
    assert files_in(tmp_path) == {"bad.etdp"}
    assert files_in(tmp_path / "sent") == {"good.etdp"}


def test_a_file_that_the_bridge_fails_at_holds_up_nobody(tmp_path: Path) -> None:
    """Where the bridge fails at one file, which may be of the file or of the moment, the others go first at the next look."""
    folder, log = tmp_path / "pulled", tmp_path / "watch.log"
    folder.mkdir()
    for number in range(3):
        put(folder, f"{number}.etdp", CAPTURE + bytes([number]))
        os.utime(folder / f"{number}.etdp", ns=(number, number))
    with FaultyBridge() as bridge:
        bridge.answers += [Answer.grpc_failure(grpc.StatusCode.INTERNAL)]
        with watching(bridge.address, folder, log, *MODEL) as process:
            process.wait_until(lambda: not files_in(folder))
            assert process.stop() == 0
        requests = [pb.UploadETDumpRequest.FromString(call.body) for call in bridge.received]
    assert [request.etdump[-1] for request in requests] == [0, 1, 2, 0]


def test_names_of_any_kind(service: Service, tmp_path: Path) -> None:
    """Names come from devices: what is in them reaches no terminal raw, and no name, link or pipe ends the watcher."""
    folder = tmp_path / "pulled"
    folder.mkdir()
    odd, long = b"\xff\x1b[31m\n.etdp", "n" * 250 + ".etdp"
    (folder / os.fsdecode(odd)).write_bytes(CAPTURE)
    put(folder, "bad\x1b[2J.etdp", b"none")
    (folder / long).write_bytes(CAPTURE)
    (folder / "loop.etdp").symlink_to("loop.etdp")
    (folder / "absent.etdp").symlink_to("nowhere")
    os.mkfifo(folder / "pipe.etdp")
    done = watch_once(service.grpc, folder)
    assert done.exit_code == 1
    assert all(line.isprintable() for line in done.stderr.splitlines())
    assert len([line for line in done.stderr.splitlines() if ": waits for " in line]) == 3
    done = watch_once(service.grpc, folder, *MODEL)
    assert done.exit_code == 1
    assert all(line.isprintable() for line in done.output.splitlines())
    assert {path.name for path in (folder / "sent").iterdir()} == {os.fsdecode(odd), long}
    assert {path.name for path in (folder / "refused").iterdir()} == {"bad\x1b[2J.etdp"}


@pytest.mark.parametrize("pattern", ["", "sent/*.etdp"])
def test_a_pattern_that_matches_no_name(pattern: str, tmp_path: Path) -> None:
    """It is refused at once: the watcher would wait for ever."""
    done = CliRunner().invoke(commands, ["watch", str(tmp_path), "--pattern", pattern])
    assert done.exit_code == 2
    assert "matches no name" in done.stderr


def test_a_file_that_is_being_written(service: Service, tmp_path: Path) -> None:
    """A file that grows between two looks is not sent until it is whole, in one piece."""
    folder, log = tmp_path / "pulled", tmp_path / "watch.log"
    folder.mkdir()
    app = ("--resource", "service.name=grown")
    with watching(service.grpc, folder, log, *MODEL, *app, interval_s="2") as process:
        with (folder / "run.etdp").open("wb", buffering=0) as stream:
            for index in range(0, len(CAPTURE), 8):  # each step changes the file: size and time
                stream.write(CAPTURE[index : index + 8])
        process.wait_until(lambda: not files_in(folder))
        assert process.stop() == 0
    assert files_in(folder / "sent") == {"run.etdp"}
    service.settle()
    assert len(service.spans("grown")) == EVENTS


def test_two_watchers(service: Service, tmp_path: Path) -> None:
    """A second watcher of a folder ends with 1 and names the process of the first, which goes on."""
    folder, log = tmp_path / "pulled", tmp_path / "watch.log"
    folder.mkdir()
    with watching(service.grpc, folder, log, *MODEL) as process:
        done = watch_once(service.grpc, folder, *MODEL)
        assert (done.exit_code, done.stdout) == (1, "")
        assert f"another otel-bridge watch follows it (process {process.pid})" in done.stderr
        put(folder, "run.etdp", CAPTURE)
        process.wait_until(lambda: not files_in(folder))
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    put(folder, "run.etdp", CAPTURE)
    assert watch_once(service.grpc, folder, *MODEL).exit_code == 0  # the lock ended with its process
