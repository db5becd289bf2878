"""Draining while a model runs: no event is torn, lost or sent twice."""

import subprocess
from pathlib import Path

import pytest
from support.cpp import SOURCES, build
from support.cpp_scripts import received, undelimited

pytestmark = pytest.mark.timeout(300)  # compilers take their time on machines that have other work

BLOCKS = 800


@pytest.fixture(scope="module")
def threads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """tests/cpp/src/threads.cpp, under ThreadSanitizer."""
    return build(tmp_path_factory.mktemp("threads"), [SOURCES / "threads.cpp"], sanitize=("thread",), flags=("-O1", "-g1"))


@pytest.mark.parametrize("producers", [1, 2])
def test_events_are_whole_however_threads_meet(producers: int, threads: Path) -> None:
    """
    With one producer, and with two at once (which ExecuTorch forbids), ThreadSanitizer finds nothing; each event that arrives
    is one that was logged, as it was logged, and arrives once; with those that are counted as dropped they are all.
    """
    done = subprocess.run([threads, str(producers), str(BLOCKS)], capture_output=True, timeout=50, check=False)
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    ended, sent, dropped = map(int, done.stderr.split())
    heard = received(undelimited(done.stdout))
    assert len(heard.rows) == sent
    assert heard.drops.total() == dropped
    assert sent + dropped == ended == producers * BLOCKS * 25
    numbers = [start for _, _, _, _, start, _, _ in heard.rows]
    assert len(set(numbers)) == len(numbers)
    for _, identifier, _, _, start, duration, metadata in heard.rows:
        assert (identifier, duration, metadata) == (start % 50, start % 1000, str(start).encode())
    if producers == 1:
        assert numbers == sorted(numbers)
        assert all(row[4] // 25 == position for position, block in heard.blocks.items() for row in block.rows)
