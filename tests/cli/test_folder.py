"""Which files of a folder are whole, and where the done ones go."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from otel_bridge.cli.folder import REFUSED, SENT, Folder
from otel_bridge.cli.parcel import sidecar_of


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    """A folder that is watched by this test."""
    watched = Folder(tmp_path, ("*.etdp",))
    with watched.owned():
        yield watched


def names(folder: Folder) -> tuple[list[str], int]:
    """What a look gives, by name."""
    whole, unfinished = folder.look()
    return [path.name for path in whole], unfinished


def test_a_file_is_whole_when_it_stays(folder: Folder) -> None:
    """A file is whole at the second look that sees it the same; while it grows, or is written anew, it is not."""
    file = folder.path / "run.etdp"
    file.write_bytes(b"a")
    assert names(folder) == ([], 1)
    with file.open("ab") as stream:
        stream.write(b"b")
    assert names(folder) == ([], 1)
    assert names(folder) == (["run.etdp"], 0)
    os.utime(file, ns=(1, 1))
    assert not folder.is_as_seen(file)
    assert names(folder) == ([], 1)
    (folder.path / "other").write_bytes(b"ab")
    os.utime(folder.path / "other", ns=(1, 1))
    (folder.path / "other").rename(file)
    assert names(folder) == ([], 1)
    assert names(folder) == (["run.etdp"], 0)
    file.unlink()
    assert names(folder) == ([], 0)


def test_only_files_that_match(folder: Folder) -> None:
    """Folders, hidden files, other names and what lies deeper are not looked at; the oldest file comes first."""
    for name in ("b.etdp", "a.etdp", ".hidden.etdp", "a.etdp.part", "notes.txt", "sent/done.etdp"):
        (folder.path / name).write_bytes(b"")
    (folder.path / "folder.etdp").mkdir()
    os.utime(folder.path / "b.etdp", ns=(1, 1))
    assert names(folder) == ([], 2)
    assert names(folder) == (["b.etdp", "a.etdp"], 0)


def test_a_sidecar_is_no_file_of_its_own(folder: Folder) -> None:
    """Whatever the pattern, what lies beside a file as its sidecar goes with it alone; other JSON is a file like any."""
    everything = Folder(folder.path, ("*",))
    for name in ("run.etdp", "run.etdp.json", "other.json"):
        (folder.path / name).write_bytes(b"")
    everything.look()
    assert {path.name for path in everything.look()[0]} == {"run.etdp", "other.json"}


def test_names_as_long_as_they_can_be(folder: Folder) -> None:
    """A name that leaves no room for a sidecar's, or for a number, is moved all the same, beside those that are there."""
    for name in ("n" * 250 + ".etdp", "\u00e9" * 125 + ".etdp"):
        for number in range(3):
            (folder.path / name).write_bytes(b"%d" % number)
            folder.move(folder.path / name, SENT)
    moved = sorted(path.name for path in (folder.path / SENT).iterdir())
    assert len(moved) == 6
    assert all(name.endswith(".etdp") for name in moved)


def test_done_files_are_never_written_over(folder: Folder) -> None:
    """A file takes its sidecar along, and a name that is free: devices call every file the same."""
    for number in range(3):
        file = folder.path / "run.etdp"
        file.write_bytes(b"%d" % number)
        sidecar_of(file).write_bytes(b"said of %d" % number)
        folder.move(file, SENT)
        assert not file.exists()
        assert not sidecar_of(file).exists()
    moved = [folder.path / SENT / name for name in ("run.etdp", "run.2.etdp", "run.3.etdp")]
    assert [file.read_bytes() for file in moved] == [b"0", b"1", b"2"]
    assert [sidecar_of(file).read_bytes() for file in moved] == [b"said of 0", b"said of 1", b"said of 2"]


def test_a_file_that_is_gone_needs_no_move(folder: Folder) -> None:
    """Whoever took a file has done what the watcher wanted."""
    folder.move(folder.path / "gone.etdp", REFUSED)
    assert list((folder.path / REFUSED).iterdir()) == []


def test_a_file_that_cannot_be_moved(folder: Folder) -> None:
    """Where the move fails the watcher ends, and says from where to where: to go on would send the file at each look."""
    file = folder.path / "run.etdp"
    file.write_bytes(b"")
    (folder.path / SENT).rmdir()
    (folder.path / SENT).write_bytes(b"")
    with pytest.raises(click.ClickException, match=r"run\.etdp: cannot be moved to .*sent/run\.etdp: Not a directory"):
        folder.move(file, SENT)


def test_one_watcher_at_a_time(folder: Folder) -> None:
    """A second watcher of a folder is told of the first, by its process; when that has ended, the folder is free."""
    with (
        pytest.raises(click.ClickException, match=rf"another otel-bridge watch follows it \(process {os.getpid()}\)"),
        Folder(folder.path, ()).owned(),
    ):
        pytest.fail("two watchers")


def test_the_lock_ends_with_its_holder(tmp_path: Path) -> None:
    """A folder that was watched can be watched again."""
    for _ in range(2):
        with Folder(tmp_path, ()).owned():
            pass


@pytest.mark.parametrize("spoil", [lambda path: (path / SENT).write_bytes(b""), lambda path: (path / SENT).symlink_to("gone")])
def test_a_folder_that_cannot_hold_what_is_done(spoil: Callable[[Path], object], tmp_path: Path) -> None:
    """Where sent files could not be moved to, nothing is sent: the watcher does not start, and says what it needs."""
    spoil(tmp_path)
    told = r"cannot be written to: File exists \(.*sent\); what was sent is moved to"
    with pytest.raises(click.ClickException, match=told), Folder(tmp_path, ()).owned():
        pytest.fail("nothing to move to")


def test_a_read_only_folder(tmp_path: Path) -> None:
    """In a folder that may not be written to the watcher does not start, and says why."""
    tmp_path.chmod(0o555)
    user = os.geteuid()
    if user == 0:  # who may do anything would not be refused
        for parent in (tmp_path, *tmp_path.parents):
            if parent.stat().st_uid == 0 and parent.stat().st_mode & 0o055 != 0o055:
                parent.chmod(parent.stat().st_mode | 0o055)
        os.seteuid(65534)
    try:
        with (
            pytest.raises(click.ClickException, match=r"cannot be written to: Permission denied"),
            Folder(tmp_path, ()).owned(),
        ):
            pytest.fail("read-only")
    finally:
        os.seteuid(user)
        tmp_path.chmod(0o755)


def test_a_folder_that_goes_away(folder: Folder) -> None:
    """A folder that is gone ends the watcher, by name."""
    for each in (SENT, REFUSED):
        (folder.path / each).rmdir()
    (folder.path / ".otel-bridge-watch.lock").unlink()
    folder.path.rmdir()
    with pytest.raises(click.ClickException, match="cannot be read: No such file or directory"):
        folder.look()
