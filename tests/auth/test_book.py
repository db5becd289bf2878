"""Files of tokens, and what a running bridge knows of them."""

import logging
import os
import stat
import tempfile
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from support.tokens import NOON, Issuer

from otel_bridge.auth.book import REMEMBERED, change_tokens, read_tokens
from otel_bridge.auth.keyring import Keyring
from otel_bridge.auth.token import State, id_in
from otel_bridge.errors import ConfigError
from otel_bridge.model.identity import Scope


@pytest.fixture
def issuer(tmp_path: Path) -> Issuer:
    return Issuer(tmp_path / "tokens.json")


def key_of(whole: str) -> str:
    """The id of a token."""
    key = id_in(whole)
    assert key is not None
    return key


def test_a_file_keeps_tokens(issuer: Issuer) -> None:
    """What is written is read again, in order; where there is no file, there are no tokens."""
    assert read_tokens(issuer.file) == ()
    drawn = [issuer.issue(*scopes, name=f"n{index}") for index, scopes in enumerate([[Scope.ADMIN], list(Scope)])]
    read = read_tokens(issuer.file)
    assert [each.id for each in read] == [key_of(each) for each in drawn]
    assert [each.scopes for each in read] == [(Scope.ADMIN,), tuple(Scope)]
    assert not any(each.split("_", 2)[2] in issuer.file.read_text() for each in drawn)


def test_the_file_is_its_owners(issuer: Issuer) -> None:
    """Nobody but the owner may read the file, and writing leaves nothing else in the folder."""
    issuer.issue(Scope.ADMIN)
    issuer.issue(Scope.ADMIN)
    assert stat.S_IMODE(issuer.file.stat().st_mode) == 0o600
    assert list(issuer.file.parent.iterdir()) == [issuer.file]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_root_writes_for_the_owner_of_the_folder(issuer: Issuer) -> None:
    """A file that root writes belongs to the folder's owner, who runs the bridge."""
    os.chown(issuer.file.parent, 10001, 10002)
    issuer.issue(Scope.ADMIN)
    assert (issuer.file.stat().st_uid, issuer.file.stat().st_gid) == (10001, 10002)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_root_gives_away_nothing_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The folder's owner may put a link to anything in the place of the file that root writes: root does not give that away."""
    (folder := tmp_path / "theirs").mkdir()
    os.chown(folder, 10001, 10002)
    (of_root := tmp_path / "of_root").touch()
    draw = tempfile.mkstemp

    def drawn(**told: Any) -> tuple[int, str]:
        handle, name = draw(**told)
        Path(name).unlink()
        Path(name).symlink_to(of_root)
        return handle, name

    monkeypatch.setattr(tempfile, "mkstemp", drawn)
    Issuer(folder / "tokens.json").issue(Scope.ADMIN)
    assert of_root.stat().st_uid == 0


def test_a_change_is_on_disk_before_it_is_told(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The new file first, then its name in the folder: a token that was revoked stays so when the power fails."""
    whole = issuer.issue(Scope.ADMIN)
    done: list[str] = []
    sync, replace = os.fsync, Path.replace

    def synced(handle: int) -> None:
        sync(handle)
        done.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")

    def replaced(part: Path, target: Path) -> Path:
        done.append("replace")
        return replace(part, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", replaced)
    issuer.revoke(whole)
    assert done == ["file", "replace", "folder"]


def test_writers_take_turns(issuer: Issuer) -> None:
    """Of tokens that several create at once none is lost."""
    threads = [threading.Thread(target=lambda: [issuer.issue(Scope.ADMIN) for _ in range(5)]) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len({each.id for each in read_tokens(issuer.file)}) == 40


def test_a_change_that_fails_changes_nothing(issuer: Issuer) -> None:
    """Where a change raises, the file stays as it was, and nothing else is left."""
    issuer.issue(Scope.ADMIN)
    before = issuer.file.read_bytes()
    with pytest.raises(ZeroDivisionError):
        change_tokens(issuer.file, lambda tokens: [tokens[0 // 0]], NOON)
    assert issuer.file.read_bytes() == before
    assert list(issuer.file.parent.iterdir()) == [issuer.file]


def test_what_ended_long_ago_is_forgotten(issuer: Issuer) -> None:
    """A token is listed for 90 days after it was revoked or has expired, and not for ever."""
    revoked, live = issuer.issue(Scope.ADMIN), issuer.issue(Scope.ADMIN)
    expired = issuer.issue(Scope.ADMIN, lifetime=timedelta(hours=1))
    issuer.revoke(revoked)
    issuer.now = NOON + REMEMBERED - timedelta(seconds=1)
    last = issuer.issue(Scope.ADMIN)
    assert [each.id for each in read_tokens(issuer.file)] == [key_of(each) for each in (revoked, live, expired, last)]
    issuer.now = NOON + REMEMBERED + timedelta(hours=1)
    latest = issuer.issue(Scope.ADMIN)
    assert [each.id for each in read_tokens(issuer.file)] == [key_of(each) for each in (live, last, latest)]


BAD = {
    "{": "at the start: Invalid JSON",
    "[]": "at the start: ",
    '{"format": 2, "tokens": []}': "at format: ",
    '{"tokens": [{"id": "x"}]}': "at tokens.0.id: ",
    '{"tokens": [], "more": 1}': "at more: ",
}


@pytest.mark.parametrize("text", BAD)
def test_a_file_that_holds_something_else(text: str, issuer: Issuer) -> None:
    """A file that was not written for this is refused, with the place in it; also a directory."""
    issuer.file.write_text(text)
    for attempt in (lambda: read_tokens(issuer.file), lambda: Keyring([issuer.file]), lambda: issuer.issue(Scope.ADMIN)):
        with pytest.raises(ConfigError, match=BAD[text]):
            attempt()
    assert issuer.file.read_text() == text
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        read_tokens(issuer.file.parent)


def test_a_running_bridge_notices(issuer: Issuer) -> None:
    """`refresh` brings what was created and revoked since; a file that is gone holds no tokens."""
    keyring = Keyring([issuer.file])
    assert len(keyring) == 0
    whole = issuer.issue(Scope.ADMIN)
    assert keyring.find(key_of(whole)) is None
    keyring.refresh()
    found = keyring.find(key_of(whole))
    assert found is not None
    issuer.revoke(whole)
    keyring.refresh()
    found = keyring.find(key_of(whole))
    assert found is not None
    assert found.state(NOON) is State.REVOKED
    issuer.file.unlink()
    keyring.refresh()
    assert len(keyring) == 0


def test_a_file_that_breaks_changes_nothing(issuer: Issuer, caplog: pytest.LogCaptureFixture) -> None:
    """While a file cannot be understood, its last tokens go on, and that is logged once; other files are read all the same."""
    other = Issuer(issuer.file.with_name("other.json"))
    keyring = Keyring([issuer.file, other.file])
    whole = issuer.issue(Scope.ADMIN)
    keyring.refresh()
    good = issuer.file.read_bytes()
    issuer.file.write_bytes(good[:-20])
    later = other.issue(Scope.ADMIN)
    with caplog.at_level(logging.WARNING, "otel_bridge"):
        for _ in range(3):
            keyring.refresh()
    assert keyring.find(key_of(whole)) is not None
    assert keyring.find(key_of(later)) is not None
    assert len(caplog.records) == 1
    assert "what was read before is used" in caplog.text
    issuer.file.write_bytes(good.replace(key_of(whole).encode(), b"aaaaaaaaaa"))
    keyring.refresh()
    assert keyring.find(key_of(whole)) is None
    assert keyring.find("aaaaaaaaaa") is not None
