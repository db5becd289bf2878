"""The directory that a bridge claims."""

import fcntl
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from otel_bridge.app.data_dir import FILE_NAME, Claim
from otel_bridge.errors import ConfigError


def test_a_new_directory_is_its_owners(tmp_path: Path) -> None:
    """What devices sent is for nobody else to read; a directory that was there keeps the mode that it was given."""
    (shared := tmp_path / "shared").mkdir(mode=0o750)
    for directory, mode in ((tmp_path / "new", 0o700), (shared, 0o750)):
        Claim(directory).release()
        assert stat.S_IMODE(directory.stat().st_mode) == mode


def test_a_claim_is_of_all_that_inherited_it(tmp_path: Path) -> None:
    """Workers keep the directory when their supervisor is gone; whoever comes is told, and has it once they are."""
    program = "import os; os.read(0, 1)"
    claim = Claim(tmp_path)
    worker = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, pass_fds=[claim.fileno()])
    claim.release()
    try:
        with pytest.raises(ConfigError, match=f"in use by process {os.getpid()}; stop"):
            Claim(tmp_path)
    finally:
        worker.communicate(b"x")
    Claim(tmp_path).release()


def test_whoever_made_the_claim_may_be_gone(tmp_path: Path) -> None:
    """The number in the file is then of nobody, and the words say who has the directory."""
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True, check=True)
    with (tmp_path / FILE_NAME).open("w") as file:
        file.write(gone.stdout)
        file.flush()
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(ConfigError, match=f"by workers of process {gone.stdout.strip()}, which is gone; they end once"):
            Claim(tmp_path)
