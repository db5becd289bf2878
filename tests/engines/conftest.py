"""What the tests against ExecuTorch share: models exported by it, and its Inspector's answers."""

import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from support.engines import SOURCES, require
from support.inspections import Answer, Job

Ask = Callable[[Sequence[Job]], list[Answer]]


def _execute(program: str, *arguments: Path) -> None:
    command = [require("executorch"), SOURCES / "executorch" / program, *arguments]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the models of executorch/make_models.py, each a folder."""
    folder = tmp_path_factory.mktemp("models")
    _execute("make_models.py", folder)
    return folder


@pytest.fixture(scope="session")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Ask:
    """Asks the Inspector about many dumps at once: starting it takes seconds."""

    def asked(jobs: Sequence[Job]) -> list[Answer]:
        folder = tmp_path_factory.mktemp("inspector")
        (folder / "jobs.json").write_text(json.dumps([job.as_json() for job in jobs]))
        _execute("inspect_dumps.py", folder / "jobs.json", folder / "answers.json")
        return [Answer(**answer) for answer in json.loads((folder / "answers.json").read_text())]

    return asked
