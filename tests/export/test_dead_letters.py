"""Refused requests on disk."""

import errno
import json
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.otlp_payloads import a_payload

from otel_bridge.errors import ConfigError
from otel_bridge.export.dead_letters import DeadLetters
from otel_bridge.export.halves import count_spans
from otel_bridge.export.isolate import Refused
from otel_bridge.export.letter import about, letters_in, write_letter

Run = Callable[[Coroutine[Any, Any, Any]], Any]


class Tally:
    """A `Watch` that adds up spans by what became of them."""

    def __init__(self) -> None:
        self.kept: list[tuple[int, str]] = []
        self.lost: list[tuple[int, str]] = []

    def dead_letter_kept(self, spans: int, reason: str) -> None:
        """Remember it."""
        self.kept.append((spans, reason))

    def dead_letter_lost(self, spans: int, reason: str) -> None:
        """Remember it."""
        self.lost.append((spans, reason))


def refused(spans: int, message: str = "no\nsuch") -> Refused:
    return Refused(a_payload(spans), spans, "export_invalid", message)


def numbered() -> Callable[[], int]:
    """A clock of whole seconds since 2020, one further with each look."""
    seconds = iter(range(1_577_836_800, 1_600_000_000))
    return lambda: next(seconds) * 10**9


def size_on_disk(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.iterdir())


def test_a_letter_says_why_and_holds_what_was_sent(tmp_path: Path) -> None:
    """Beside the request, byte for byte, stands reason, message, time, spans and events; nobody else may read them."""
    path = write_letter(tmp_path, refused(3), 1_700_000_000_123_456_789)
    assert path.read_bytes() == a_payload(3)
    assert json.loads(path.with_suffix(".json").read_text()) == {
        "reason": "export_invalid",
        "message": "no\nsuch",
        "time": "2023-11-14T22:13:20.123+00:00",
        "spans": 3,
        "events": 3,
    }
    assert {each.stat().st_mode & 0o777 for each in tmp_path.iterdir()} == {0o600}
    assert sorted(each.suffix for each in tmp_path.iterdir()) == [".json", ".pb"]


def test_letters_are_found_by_age(run: Run, tmp_path: Path) -> None:
    """The oldest comes first, and each gives back what was refused."""
    letters = DeadLetters(tmp_path / "new" / "folder", 1 << 20, Tally(), now_ns=numbered())
    for spans in (5, 1, 3):
        run(letters.keep(refused(spans)))
    found = list(letters_in(tmp_path / "new" / "folder"))
    assert [(each.spans, count_spans(each.read())) for each in found] == [(5, 5), (1, 1), (3, 3)]
    assert letters.size_bytes == size_on_disk(tmp_path / "new" / "folder") == sum(each.size_bytes for each in found)


@settings(max_examples=30, deadline=None)
@given(spans=st.lists(st.integers(1, 20), min_size=1, max_size=20), room=st.integers(500, 5_000), restart=st.integers(0, 20))
def test_the_oldest_go_when_there_is_no_room(
    tmp_path_factory: pytest.TempPathFactory, spans: list[int], room: int, restart: int
) -> None:
    """Never more bytes than allowed, each refused span kept or counted as lost, and the newest kept; also after a restart."""
    directory, tally, clock = tmp_path_factory.mktemp("letters"), Tally(), numbered()
    letters = DeadLetters(directory, room, tally, now_ns=clock)
    expected, lost = list[tuple[int, int]](), list[int]()
    for number, count in enumerate(spans):
        if number == restart:
            letters = DeadLetters(directory, room, tally, now_ns=clock)
        letters._keep(refused(count))
        size = len(a_payload(count)) + len(about(refused(count), 0))
        while size <= room < sum(each for _, each in expected) + size:
            lost.append(expected.pop(0)[0])
        if size <= room:
            expected.append((count, size))
        else:
            lost.append(count)
        assert size_on_disk(directory) <= room
    assert [(each.spans, each.size_bytes) for each in letters_in(directory)] == expected
    assert tally.lost == [(count, "full") for count in lost]


def test_the_last_of_a_disk_is_not_for_letters(run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Where no more than the reserve would stay free a letter is lost and counted: the spool needs the rest to go on."""
    tally, disk = Tally(), os.statvfs(tmp_path)
    letters = DeadLetters(tmp_path, 1 << 20, tally, reserve_bytes=disk.f_blocks * disk.f_frsize)
    run(letters.keep(refused(3)))
    assert (tally.lost, letters.size_bytes, list(tmp_path.iterdir())) == ([(3, "disk")], 0, [])
    assert "reserve" in caplog.text


def test_what_others_took_out_makes_room(run: Run, tmp_path: Path) -> None:
    """Letters that a replay has removed are not counted when room is needed, so none goes without need."""
    tally = Tally()
    one = len(a_payload(5)) + 250
    letters = DeadLetters(tmp_path, 2 * one, tally, now_ns=numbered())
    run(letters.keep(refused(5)))
    run(letters.keep(refused(5)))
    next(letters_in(tmp_path)).remove()
    run(letters.keep(refused(5)))
    assert (tally.lost, len(list(letters_in(tmp_path)))) == ([], 2)


def test_letters_are_bounded_in_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However small they are, there is a bound on their number."""
    monkeypatch.setattr("otel_bridge.export.dead_letters.MAX_LETTERS", 3)
    tally = Tally()
    letters = DeadLetters(tmp_path, 1 << 30, tally, now_ns=numbered())
    for spans in (1, 2, 3, 4):
        letters._keep(refused(spans))
    assert ([each.spans for each in letters_in(tmp_path)], tally.lost) == ([2, 3, 4], [(1, "full")])


def test_a_letter_larger_than_all_room(run: Run, tmp_path: Path) -> None:
    """It is counted as lost, and costs no other."""
    tally = Tally()
    letters = DeadLetters(tmp_path, 1_000, tally)
    run(letters.keep(refused(2)))
    run(letters.keep(refused(100)))
    assert (tally.kept, tally.lost) == ([(2, "export_invalid")], [(100, "full")])
    assert [each.spans for each in letters_in(tmp_path)] == [2]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_disk_that_fails(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """What cannot be written is counted and leaves nothing half-written; the next one is kept."""
    tally = Tally()
    letters = DeadLetters(tmp_path, 1 << 20, tally)
    with monkeypatch.context() as broken:

        def fail(*_: object) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        broken.setattr(os if call == "fsync" else Path, call, fail)
        run(letters.keep(refused(2)))
    assert list(tmp_path.iterdir()) == []
    run(letters.keep(refused(1)))
    assert (tally.kept, tally.lost) == ([(1, "export_invalid")], [(2, "disk")])


def test_what_a_crash_left_is_swept(tmp_path: Path) -> None:
    """At the start parts of letters go; whole ones stay, also one whose description is lost."""
    whole = write_letter(tmp_path, refused(1), 1)
    lonely = write_letter(tmp_path, refused(2), 2)
    lonely.with_suffix(".json").unlink()
    (tmp_path / "3-x.json").write_text("{}")
    (tmp_path / "3-x.pb.part").write_text("half")
    DeadLetters(tmp_path, 1 << 20, Tally())
    assert [each.path for each in letters_in(tmp_path)] == [whole, lonely]
    assert [(each.reason, each.spans) for each in letters_in(tmp_path)] == [("export_invalid", 1), ("", 0)]
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.parametrize("about", ["", "[1]", '{"spans": "many", "reason": 5}', "\udcff"])
def test_a_description_that_makes_no_sense(tmp_path: Path, about: str) -> None:
    """A letter can be listed and sent whatever its description has become."""
    path = write_letter(tmp_path, refused(1), 1)
    path.with_suffix(".json").write_bytes(about.encode("utf-8", "surrogateescape"))
    (found,) = letters_in(tmp_path)
    assert (found.spans, found.read()) == (0, a_payload(1))


def test_a_letter_shrinks_to_what_is_left(tmp_path: Path) -> None:
    """After some of its spans were taken it holds the others, as one request."""
    write_letter(tmp_path, refused(9), 1)
    (found,) = letters_in(tmp_path)
    found.keep_only([refused(1, "first"), refused(2, "second")], 2 * 10**9)
    (left,) = letters_in(tmp_path)
    assert (left.path, left.spans, left.message, count_spans(left.read())) == (found.path, 3, "first", 3)


def test_a_directory_that_cannot_be(tmp_path: Path) -> None:
    """Where the directory cannot be made the bridge does not start, and says which."""
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"the directory of dead letters .*file/x cannot be used: Not a directory"):
        DeadLetters(tmp_path / "file" / "x", 1, Tally())


def test_nothing_to_list(tmp_path: Path) -> None:
    """A bridge that never refused anything has no letters, and needs no directory for that."""
    assert list(letters_in(tmp_path / "absent")) == []
