"""The directory that a bridge claims."""

import stat
from pathlib import Path

from otel_bridge.app.data_dir import Claim


def test_a_new_directory_is_its_owners(tmp_path: Path) -> None:
    """What devices sent is for nobody else to read; a directory that was there keeps the mode that it was given."""
    (shared := tmp_path / "shared").mkdir(mode=0o750)
    for directory, mode in ((tmp_path / "new", 0o700), (shared, 0o750)):
        Claim(directory).release()
        assert stat.S_IMODE(directory.stat().st_mode) == mode
