"""Every input that was ever worth keeping, through the target that it is of: no fuzzer needed."""

from pathlib import Path

import pytest
from fuzz.seeds import SEEDS
from fuzz.targets import TARGETS

CORPUS = Path(__file__).parent / "corpus"
MAX_CORPUS_BYTES = 1 << 20


def test_every_target_has_seeds_and_a_corpus() -> None:
    """A parser that is added has something to start from, and a folder is of no parser that is gone."""
    assert SEEDS.keys() == TARGETS.keys()
    assert {folder.name for folder in CORPUS.iterdir()} == TARGETS.keys()


@pytest.mark.parametrize("name", TARGETS)
def test_what_was_found_stays_found(name: str) -> None:
    """Seeds and corpus are refused in the documented way, or accepted and hold what is relied on."""
    for each in SEEDS[name]:
        TARGETS[name](each)
    for path in sorted((CORPUS / name).iterdir()):
        TARGETS[name](path.read_bytes())


def test_the_corpus_is_small() -> None:
    """It is of the minimised kind: a megabyte in all."""
    assert sum(path.stat().st_size for path in CORPUS.glob("*/*")) < MAX_CORPUS_BYTES
