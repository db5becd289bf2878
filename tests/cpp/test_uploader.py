"""The uploader: what is encoded goes out once and unchanged, what is lost is told, and nobody is hammered."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from support.cpp import SOURCES, build, run
from support.cpp_scripts import Received, received

from otel_bridge.v1 import profiling_pb2 as pb

pytestmark = pytest.mark.timeout(300)  # compilers take their time on machines that have other work

Said = list[dict[str, Any]]


@pytest.fixture(scope="module")
def upload(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """tests/cpp/src/upload.cpp, under AddressSanitizer and UBSan."""
    return build(tmp_path_factory.mktemp("upload"), [SOURCES / "upload.cpp"], sanitize=("address", "undefined"))


def play(program: Path, *lines: str) -> Said:
    """What the program says while it plays the lines."""
    return [json.loads(line) for line in run(program, stdin="".join(f"{line}\n" for line in lines).encode()).splitlines()]


def attempts(said: Said) -> Said:
    """The attempts to send."""
    return [each for each in said if "sent" in each]


def taken(said: Said) -> Received:
    """What the receiver has."""
    return received([bytes.fromhex(each["sent"]) for each in attempts(said) if each["answer"] == "ok"])


def test_the_same_bytes_go_out_at_each_attempt(upload: Path) -> None:
    """A request that was not taken is sent again as it was, and what happened meanwhile goes in the next one."""
    said = play(upload, "B 3", "R again", "R again", "P", "B 2", "W 2000", "P", "B 4", "W 2000", "P", "P", "Q 0")
    tried = attempts(said)
    assert [each["answer"] for each in tried] == ["again", "again", "ok", "ok"]
    assert tried[0]["sent"] == tried[1]["sent"] == tried[2]["sent"]
    assert [len(block.rows) for block in taken(said).blocks.values()] == [3, 2, 4]
    assert said[-1] == {"sent_events": 9, "requests": 2, "attempts": 4, "waiting": 0, "rejected": 0}


def test_failures_are_followed_by_longer_waits(upload: Path) -> None:
    """Waits double up to their bound, each shortened at random by at most half; a poll that comes too early sends nothing."""
    lines = ["B 1", *["R again"] * 8]
    for _ in range(400):
        lines += ["P", "W 10"]
    moments = [each["now"] for each in attempts(play(upload, *lines))]
    waits = [later - earlier for earlier, later in pairwise(moments)]
    assert len(waits) == 8
    for wait, most in zip(waits, [100, 200, 400, 800, 1000, 1000, 1000, 1000], strict=True):
        assert most / 2 - 10 <= wait <= most + 10
    assert len(set(waits[4:])) > 1


def test_the_receivers_word_on_waiting_wins(upload: Path) -> None:
    """Where the receiver says how long to wait, that is how long."""
    said = play(upload, "B 1", "R wait=7000", "P", "W 6990", "P", "W 10", "P")
    assert [each["now"] for each in attempts(said)] == [1000, 8000]
    assert [each["poll"] for each in said if "poll" in each] == [7000, 10, 0]


def test_refused_events_are_told_as_drops(upload: Path) -> None:
    """A request that will never be taken is given up at once; its events, and the drops that it told of, stand in the next."""
    said = play(upload, "D 2", "B 3", "R never", "P", "B 1", "P", "Q 0")
    assert [each["answer"] for each in attempts(said)] == ["never", "ok"]
    body = bytes.fromhex(attempts(said)[1]["sent"])
    assert b"rejected" in body
    assert b"no_block" in body
    assert said[-1] == {"sent_events": 1, "requests": 1, "attempts": 2, "waiting": 0, "rejected": 3}


def test_drops_are_told_once(upload: Path) -> None:
    """Each drop stands in one request that was taken: the next one tells only of what came after."""
    said = play(upload, "D 2", "B 1", "P", "B 1", "P", "D 5", "B 1", "R again", "P", "D 1", "W 2000", "P", "P", "Q 0")
    assert taken(said).drops == {"no_block": 8}


def test_a_flush_tells_what_no_event_could(upload: Path) -> None:
    """Where nothing but drops is left, a request without events carries them; where that is refused, it is not tried again."""
    told = play(upload, "D 4", "Q 100")
    assert taken(told).drops == {"no_block": 4}
    refused = play(upload, "D 4", "R never", "Q 100")
    assert len(attempts(refused)) == 1
    assert {"flushed": False, "now": 1000} in refused


def test_a_flush_ends_by_its_deadline(upload: Path) -> None:
    """A flush tries until its deadline, and not much longer: what is not through then is said to be waiting."""
    said = play(upload, "B 5", *["R again"] * 1000, "Q 5000")
    flushed = next(each for each in said if "flushed" in each)
    assert not flushed["flushed"]
    assert 5900 <= flushed["now"] <= 6100
    assert said[-1]["waiting"] == 5
    assert len(attempts(said)) > 3


def test_a_clock_that_stands_still_stops_nothing(upload: Path) -> None:
    """With a clock stuck at a constant a failed request is still tried again, and a flush still ends."""
    said = play(upload, "K", "B 1", "R again", *["P"] * 300, "B 1", *["R again"] * 1000, "Q 500")
    assert [each["answer"] for each in attempts(said)[:2]] == ["again", "ok"]
    assert any(each == {"flushed": False, "now": 1000} for each in said)


def test_another_uploader_goes_on(upload: Path) -> None:
    """
    An uploader that takes over in the middle of an inference goes on where the one before ended: each event arrives once, in
    its block, and each drop is told once. `taken` refuses numbers with gaps, and parts that do not fit each other.
    """
    said = play(upload, "D 2", "O 3000", "P", "N 3000", "P", "E 100", "N 4096", "B 5", "P", "P", "Q 9000")
    assert len(attempts(said)) > 4
    heard = taken(said)
    assert [len(block.rows) for block in heard.blocks.values()] == [3100, 5]
    assert heard.drops == {"no_block": 2}


def test_what_an_uploader_leaves_unsent_is_told(upload: Path) -> None:
    """Events of a request that an uploader had when another took over are `abandoned`."""
    said = play(upload, "B 3", "R again", "P", "N 4096", "B 1", "P", "N 4096", "B 2", "P", "Q 0")
    requests = [pb.ExportEventsRequest.FromString(bytes.fromhex(each["sent"])) for each in attempts(said)]
    told = [[(drop.reason, drop.events) for drop in request.stream.dropped] for request in requests]
    assert told == [[], [(b"abandoned", 3)], []]
    assert [request.stream.sequence for request in requests] == [0, 1, 2]


def test_events_whose_block_was_dropped_are_dropped(upload: Path) -> None:
    """What a buffer that was too small has dropped the beginning of is no part of another block, for whoever takes over."""
    said = play(upload, "N 100", "O 3", "P", "N 4096", "E 4", "B 5", "P", "Q 0")
    heard = taken(said)
    assert [len(block.rows) for block in heard.blocks.values()] == [5]
    assert heard.drops == {"buffer_too_small": 7}
