"""Requests into a file whose disk is full for a while."""

from pathlib import Path

import pytest
from support.cpp import SOURCES, build, run
from support.cpp_scripts import undelimited

pytestmark = pytest.mark.timeout(300)  # compilers take their time on machines that have other work


@pytest.fixture(scope="module")
def full_disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """tests/cpp/src/full_disk.cpp, under AddressSanitizer and UBSan."""
    return build(tmp_path_factory.mktemp("disk"), [SOURCES / "full_disk.cpp"], sanitize=("address", "undefined"))


@pytest.mark.parametrize("mode", ["wb", "ab", "r+b"])
@pytest.mark.parametrize("size", [3_000, 20_000])
def test_a_full_disk_leaves_no_half_request(mode: str, size: int, full_disk: Path, tmp_path: Path) -> None:
    """However the file was opened: once there is room again each request stands in it once, whole, and nothing else does."""
    path = tmp_path / "requests"
    path.touch()
    attempts = int(run(full_disk, path, mode, size * 7 // 2, 6, size))
    assert attempts == 6 + 3
    assert undelimited(path.read_bytes()) == [bytes([ord("a") + number]) * size for number in range(6)]
