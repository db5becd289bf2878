"""A short run of each target under a fuzzer that sees which lines an input reaches; longer ones: `make fuzz`."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fuzz.session import AT_ONCE, fuzz
from fuzz.targets import TARGETS
from support.engines import require

SECONDS = 10  # from one seed, so that a change is judged by much the same inputs as the one before
_NAMES = list(TARGETS)
TURNS = [tuple(_NAMES[first : first + AT_ONCE]) for first in range(0, len(_NAMES), AT_ONCE)]


@pytest.fixture(scope="module")
def pool() -> Iterator[ThreadPoolExecutor]:
    """As many threads as targets run at a time."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield pool


@pytest.mark.timeout(200)
@pytest.mark.parametrize("names", TURNS, ids="+".join)
def test_nothing_is_found(names: tuple[str, ...], pool: ThreadPoolExecutor, tmp_path: Path) -> None:
    """No input makes a parser raise what it does not document, accept what breaks a law, hang, or take more than a gigabyte."""
    require("atheris")
    found = list(pool.map(lambda name: fuzz(name, SECONDS, tmp_path, "-seed=1"), names))
    inputs = [f"{path.name}: {path.read_bytes().hex()}" for path in tmp_path.glob("*-*") if path.is_file()]
    assert not any(found), "\n".join([*found, *inputs])
