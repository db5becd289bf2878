"""`otel-bridge spool dead-letters` and `otel-bridge spool replay`."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.otlp_answers import Answer
from support.otlp_payloads import a_payload
from support.otlp_sink import OtlpSink

from otel_bridge.app.crew import home_of
from otel_bridge.export.dead_letters import DIRECTORY
from otel_bridge.export.isolate import Refused
from otel_bridge.export.letter import letters_in, move_letter, write_letter

Cli = Callable[..., Any]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory with three letters, of three, one and two spans."""
    directory = tmp_path / "data" / DIRECTORY
    directory.mkdir(parents=True)
    for second, spans in enumerate((3, 1, 2)):
        refused = Refused(a_payload(spans), spans, "export_invalid", "bad [red]id\x1b[0m")
        write_letter(directory, refused, 1_800_000_000_000_000_000 + second * 10**9)
    return tmp_path / "data"


def spans_left(data: Path) -> list[int]:
    return [letter.spans for letter in letters_in(data / DIRECTORY)]


def test_list(cli: Cli, data: Path) -> None:
    """Each letter is a line, the oldest first, with what the back end said, on one line and without escape sequences."""
    done = cli("spool", "dead-letters", "--data-dir", data)
    assert done.code == 0
    head, *lines = done.out.splitlines()
    assert head.split() == ["letter", "time", "tenant", "reason", "spans", "bytes", "message"]
    assert [line.split()[1:4] for line in lines] == [
        ["2027-01-15T08:00:00.000+00:00", "export_invalid", "3"],
        ["2027-01-15T08:00:01.000+00:00", "export_invalid", "1"],
        ["2027-01-15T08:00:02.000+00:00", "export_invalid", "2"],
    ]
    assert "bad [red]id\\x1b[0m" in lines[0]
    listed = json.loads(cli("spool", "dead-letters", "--data-dir", data, "--json").out)
    assert [each["spans"] for each in listed] == [3, 1, 2]
    assert Path(listed[0]["path"]).read_bytes() == a_payload(3)


def test_those_of_all_workers(cli: Cli, data: Path) -> None:
    """Letters in the homes of other workers are listed and sent among the others."""
    home = home_of(data, 2) / DIRECTORY
    home.mkdir(parents=True)
    move_letter(sorted((data / DIRECTORY).glob("*.pb"))[1], home)
    listed = json.loads(cli("spool", "dead-letters", "--data-dir", data, "--json").out)
    assert [each["spans"] for each in listed] == [3, 1, 2]
    with OtlpSink() as sink:
        done = cli("spool", "replay", "--data-dir", data, "--otlp-endpoint", sink.grpc_endpoint)
        assert (done.code, done.err) == (0, "6 spans of 3 dead letters sent\n")
    assert spans_left(data) == list(home.iterdir()) == []


def test_replay(cli: Cli, data: Path) -> None:
    """All letters are sent as they are, the oldest first, and are gone then; a second time there is nothing to send."""
    with OtlpSink() as sink:
        arguments = ("spool", "replay", "--data-dir", data, "--otlp-endpoint", sink.grpc_endpoint)
        done = cli(*arguments)
        assert (done.code, done.err) == (0, "6 spans of 3 dead letters sent\n")
        assert [one.payload for one in sink.received] == [a_payload(3), a_payload(1), a_payload(2)]
        assert list((data / DIRECTORY).iterdir()) == []
        assert cli(*arguments).err == "0 spans of 0 dead letters sent\n"


def test_a_letter_keeps_its_tenant(tmp_path: Path, cli: Cli) -> None:
    """`spool replay` sends each letter as its tenant's, also after a replay of which a part was refused."""
    folder = tmp_path / DIRECTORY
    folder.mkdir()
    for second, tenant in enumerate(("acme", "")):
        write_letter(folder, Refused(a_payload(2), 2, "export_invalid", "bad", tenant), second)
    config = tmp_path / "bridge.toml"
    config.write_text('[export]\nprotocol = "http/protobuf"\ntenant_header = "X-Scope-OrgID"\n')
    assert "acme" in cli("spool", "dead-letters", "--data-dir", tmp_path).out
    with OtlpSink() as sink:
        refuse, take = Answer.http_failure(400, "bad"), Answer()
        sink.answers += [refuse, refuse, take]
        replay = ("spool", "replay", "--data-dir", tmp_path, "--config", config, "--otlp-endpoint", sink.http_endpoint)
        assert cli(*replay).code == 1
        assert cli(*replay).code == 0
        assert [one.headers["x-scope-orgid"] for one in sink.received] == ["acme"] * 3 + ["anonymous", "acme"]
    assert not list(folder.iterdir())


def test_what_is_refused_again_stays(cli: Cli, data: Path) -> None:
    """Of a letter that is taken in part the other spans stay, of one that is refused all; the exit code says so."""
    with OtlpSink() as sink:
        refuse, take = Answer.http_failure(400, "still bad"), Answer()
        environment = ("--otlp-endpoint", sink.http_endpoint)
        config = data / "bridge.toml"
        config.write_text('[export]\nprotocol = "http/protobuf"\n')
        sink.answers += [refuse, refuse, take, refuse, take]  # 3 spans, the first of them, the others; 1 span; 2 spans
        done = cli("spool", "replay", "--config", config, "--data-dir", data, *environment)
    assert done.code == 1
    *told, summary, error = done.err.splitlines()
    assert (summary, error) == ("4 spans of 3 dead letters sent", "Error: the back end refused 2 spans again")
    assert spans_left(data) == [1, 1]
    assert len(told) == 1
    assert "'still bad'" in told[0]
    assert "still bad" in next(letters_in(data / DIRECTORY)).message


def test_a_back_end_that_is_away(cli: Cli, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is lost where nobody answers: one line says which letter is the first that was not sent."""
    monkeypatch.setattr("otel_bridge.cli.dead_letters._PATIENCE_S", 0.01)
    done = cli("spool", "replay", "--data-dir", data, "--otlp-endpoint", "http://127.0.0.1:1")
    assert done.code == 1
    assert done.err.splitlines()[-1].endswith(".pb and later letters were not sent")
    assert spans_left(data) == [3, 1, 2]


def test_no_directory(cli: Cli, tmp_path: Path) -> None:
    """Without letters there is nothing to list; a bridge in memory has none, and that is said."""
    assert len(cli("spool", "dead-letters", "--data-dir", tmp_path).out.splitlines()) == 1
    told = cli("spool", "dead-letters", "--data-dir", ":memory:").error
    assert told == 'there are no dead letters with server.data_dir ":memory:"'
