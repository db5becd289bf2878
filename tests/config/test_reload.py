"""What is read again when files change."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from otel_bridge.config.reload import Reloaded
from otel_bridge.errors import ConfigError
from otel_bridge.export.token import open_token


def number_in(path: Path) -> Callable[[], int]:
    """A reading of a file that must hold a number."""

    def read() -> int:
        try:
            return int(path.read_text())
        except (OSError, ValueError) as error:
            raise ConfigError(f"{path.name} holds no number") from error

    return read


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "number"
    path.write_text("1")
    return path


def test_a_change_is_read_once(file: Path) -> None:
    """A file is read at the start and after a change, not for each question."""
    readings: list[int] = []
    read = number_in(file)

    def count() -> int:
        readings.append(read())
        return readings[-1]

    reloaded = Reloaded([file], count)
    for text in ("1", "22", "22"):
        if file.read_text() != text:
            file.write_text(text)
        assert reloaded.refresh() == int(text) == reloaded.value
    assert readings == [1, 22]


def test_a_file_that_is_replaced(file: Path) -> None:
    """A file of the same length and time that took the place of the old one is noticed."""
    reloaded = Reloaded([file], number_in(file))
    other = file.with_name("other")
    other.write_text("2")
    times = file.stat()
    os.utime(other, ns=(times.st_atime_ns, times.st_mtime_ns))
    other.replace(file)
    assert reloaded.refresh() == 2


def test_a_link_that_leads_elsewhere(tmp_path: Path) -> None:
    """As Kubernetes updates a secret: the path stays, a link on the way to it is replaced."""
    for number in ("1", "2"):
        (tmp_path / number).mkdir()
        (tmp_path / number / "number").write_text(number)
    link, new = tmp_path / "data", tmp_path / "new"
    link.symlink_to("1")
    path = link / "number"
    reloaded = Reloaded([path], number_in(path))
    new.symlink_to("2")
    new.replace(link)
    assert reloaded.refresh() == 2


def test_what_cannot_be_used_is_passed_over(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    """While a file is gone or wrong the last good value holds, told once an outage; then the new one counts."""
    caplog.set_level("INFO", logger="otel_bridge")
    reloaded = Reloaded([file], number_in(file))
    for text in ("half of a num", None, "half"):
        file.unlink(missing_ok=True)
        if text is not None:
            file.write_text(text)
        assert reloaded.refresh() == 1
        assert reloaded.refresh() == 1
    file.write_text("333")
    assert reloaded.refresh() == 333
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert "number holds no number; what was read before is used" in caplog.text


def test_the_first_reading_raises(tmp_path: Path) -> None:
    """What is wrong at the start is the user's to know."""
    path = tmp_path / "absent"
    with pytest.raises(ConfigError, match="holds no number"):
        Reloaded([path], number_in(path))


def test_a_token_of_a_file(tmp_path: Path) -> None:
    """A token is what the file holds now, without white space around; errors name the setting and never show it."""
    path = tmp_path / "token"
    path.write_text("  s3cret\n")
    token = open_token(path, name="export.token_file")
    assert token() == "s3cret"
    path.write_text("an0ther\n")
    assert token() == "an0ther"
    path.write_text("two words of s3cret")
    assert token() == "an0ther"
    with pytest.raises(ConfigError, match=r"^export.token_file: the file .* must hold one token") as caught:
        open_token(path, name="export.token_file")
    assert "s3cret" not in str(caught.value)
