"""The secret of the hashes: made once, and never another in its place."""

import errno
import os
from pathlib import Path

import pytest

from otel_bridge.app.privacy import SALT, rules_of
from otel_bridge.config.bridge import BridgeConfig
from otel_bridge.errors import ConfigError


def settings(directory: Path) -> BridgeConfig:
    """Those of a bridge that hashes."""
    return BridgeConfig.model_validate({"server": {"data_dir": str(directory)}, "privacy": {"hash_keys": ["device.id"]}})


def test_a_link_to_a_salt_that_is_not_there(tmp_path: Path) -> None:
    """A salt on a disk that is not there yet is told; with another one in its place all devices would look new."""
    (tmp_path / SALT).symlink_to(tmp_path / "not mounted" / SALT)
    with pytest.raises(ConfigError, match="cannot be read: No such file or directory"):
        rules_of(settings(tmp_path))
    assert (tmp_path / SALT).is_symlink()


def test_starts_that_fail_leave_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a salt cannot be kept nothing starts, and however often that is tried no more files are left; then one is made."""

    def full(_handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        for _ in range(3):
            with pytest.raises(ConfigError, match="cannot be kept"):
                rules_of(settings(tmp_path))
    assert len(list(tmp_path.iterdir())) <= 1
    rules_of(settings(tmp_path))
    salt = (tmp_path / SALT).read_bytes()
    rules_of(settings(tmp_path))
    assert [each.name for each in tmp_path.iterdir()] == [SALT]
    assert (tmp_path / SALT).read_bytes() == salt
