"""
Copies of the registry's file, and the file of an earlier version.

format_1/ was made by the code of commit 706e8ce: the mappings of the fixtures toy_backend_int and multi_method, each under its
own build id, and the alias fleet@stable for the first by id.
"""

import gzip
import hashlib
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.mappings import mapping_of
from support.registries import file_of

from otel_bridge.errors import ConfigError
from otel_bridge.mapping.backup import Contents, back_up, check, restore
from otel_bridge.mapping.sqlite import FILE_NAME, open_registry

BEFORE = gzip.decompress((Path(__file__).parent / "format_1" / "mappings.db.gz").read_bytes())
OLD_BUILDS = ["sha256:2232c873901076fa", "sha256:3c24880179cddc0d"]


def listed(folder: Path, tenant: str = "") -> list[bytes]:
    """What a registry tells of its builds, aliases included."""
    registry = open_registry(folder)
    try:
        return [info.SerializeToString(deterministic=True) for info in registry.page(tenant, "", 1000)]
    finally:
        registry.close()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A data directory whose registry is open, as that of a bridge that runs, and has a log beside it."""
    registry = open_registry(tmp_path / "data")
    for number in range(3):
        registry.put("", file_of(mapping_of({"x": [number + 1]}), build_id=f"b{number}", name="net", version=str(number)))
    registry.put("other", file_of(mapping_of({"x": [9]}), build_id="b0"))
    yield tmp_path / "data"
    registry.close()


def files_in(folder: Path) -> dict[str, bytes]:
    """Every file of a folder."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.endswith("-shm")}


def test_an_earlier_registry_is_opened(tmp_path: Path) -> None:
    """What an earlier version kept is there, by build, digest and alias, and can be added to."""
    (tmp_path / FILE_NAME).write_bytes(BEFORE)
    registry = open_registry(tmp_path)
    assert [info.build_id for info in registry.page("", "", 10)] == OLD_BUILDS
    assert registry.build_of("", "fleet", "stable") == OLD_BUILDS[0]
    for build in OLD_BUILDS:
        entry = registry.get("", build)
        assert entry.mapping.methods
        assert registry.get("", f"sha256:{entry.info.digest}").info.build_id == build
    registry.put("", file_of(mapping_of({"x": [1]}), build_id="new"))
    assert [info.build_id for info in registry.page("", "", 10)] == ["new", *OLD_BUILDS]
    registry.close()
    assert check(tmp_path / FILE_NAME) == Contents(3, 1, 3)


def test_a_copy_is_the_registry(folder: Path, tmp_path: Path) -> None:
    """A copy of an open registry, with what its log has, becomes the same registry elsewhere: every tenant's, as one file."""
    before = files_in(folder)
    assert str(back_up(folder, tmp_path / "copy")) == "4 builds, 3 aliases, 4 mappings"
    assert files_in(folder) == before
    assert {path.name for path in tmp_path.iterdir()} == {"data", "copy"}
    assert (tmp_path / "copy").stat().st_mode & 0o777 == 0o600
    assert restore(tmp_path / "new", tmp_path / "copy") == Contents(4, 3, 4) if (tmp_path / "new").mkdir() is None else False
    for tenant in ("", "other"):
        assert listed(tmp_path / "new", tenant) == listed(folder, tenant) != []


def test_a_closed_registry_is_left_as_it_is(folder: Path, tmp_path: Path) -> None:
    """Copying a registry that nobody has open makes no file beside it, which the next bridge might not be allowed to open."""
    (tmp_path / "closed").mkdir()
    restore(tmp_path / "closed", _copy(folder, tmp_path))
    back_up(tmp_path / "closed", tmp_path / "again")
    assert {path.name for path in (tmp_path / "closed").iterdir()} == {FILE_NAME}


def _copy(folder: Path, tmp_path: Path) -> Path:
    back_up(folder, tmp_path / "copy")
    return tmp_path / "copy"


def test_nothing_is_lost_by_mistake(folder: Path, tmp_path: Path) -> None:
    """A copy never replaces a file; a registry is replaced only where that is said, log and all."""
    copy = _copy(folder, tmp_path)
    with pytest.raises(ConfigError, match="exists; name a file that does not"):
        back_up(folder, copy)
    with pytest.raises(ConfigError, match="exists; name a file that does not"):
        back_up(folder, folder / FILE_NAME)
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / FILE_NAME).write_bytes(BEFORE)
    with pytest.raises(ConfigError, match="holds mappings, which the copy would replace"):
        restore(tmp_path / "old", copy)
    assert (tmp_path / "old" / FILE_NAME).read_bytes() == BEFORE
    registry = open_registry(tmp_path / "old")  # its log holds a build that the new registry does not have
    registry.put("", file_of(mapping_of({"x": [77]}), build_id="b77"))
    saved = files_in(tmp_path / "old")
    registry.close()
    for name, content in saved.items():
        (tmp_path / "old" / name).write_bytes(content)
    restore(tmp_path / "old", copy, replace=True)
    assert listed(tmp_path / "old") == listed(folder)


def test_an_empty_registry_may_be_replaced(folder: Path, tmp_path: Path) -> None:
    """A bridge that was started once, and never given a mapping, has nothing to lose."""
    open_registry(tmp_path / "fresh").close()
    restore(tmp_path / "fresh", _copy(folder, tmp_path))
    assert listed(tmp_path / "fresh") == listed(folder)


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        ("UPDATE documents SET body = x'00ff' WHERE rowid = 1", "has another digest"),
        ("UPDATE documents SET digest = 'x' || substr(digest, 2) WHERE rowid = 2", "a row of builds names what is not there"),
        ("DELETE FROM builds WHERE rowid = 1", "a row of aliases names what is not there"),
        ("UPDATE state SET value = 2 WHERE key = 'format'", "format 2, and this version reads format 1"),
        ("DELETE FROM state", "format unknown"),
        ("DROP TABLE aliases", "it has no table aliases"),
    ],
)
def test_a_copy_that_does_not_pass(folder: Path, tmp_path: Path, damage: str, told: str) -> None:
    """A copy in which a mapping is not what its digest says, or that names what is not there, is refused; nothing is left."""
    copy = _copy(folder, tmp_path)
    with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
        connection.execute(damage).close()
    (tmp_path / "new").mkdir()
    with pytest.raises(ConfigError, match=f"{told}.*; use another copy"):
        restore(tmp_path / "new", copy)
    assert list((tmp_path / "new").iterdir()) == []


@pytest.mark.parametrize(("content", "told"), [(b"", "has no table"), (b"not a database at all" * 99, "cannot be read")])
def test_what_is_no_copy(tmp_path: Path, content: bytes, told: str) -> None:
    """Neither any other file nor none is taken for a copy; where there is no registry there is nothing to copy."""
    (tmp_path / "copy").write_bytes(content)
    with pytest.raises(ConfigError, match=told):
        restore(tmp_path, tmp_path / "copy")
    with pytest.raises(ConfigError, match="is no file"):
        restore(tmp_path, tmp_path / "nothing")
    with pytest.raises(ConfigError, match="there is no registry of mappings"):
        back_up(tmp_path, tmp_path / "other")
    assert {path.name for path in tmp_path.iterdir()} == {"copy"}


@given(at=st.integers(0, len(BEFORE) - 1), bit=st.integers(0, 7))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_a_fallen_bit_is_found_or_harmless(tmp_path: Path, at: int, bit: int) -> None:
    """A copy with one bit wrong is refused, or every mapping in it is still the one that its digest names."""
    damaged = bytearray(BEFORE)
    damaged[at] ^= 1 << bit
    copy = tmp_path / "copy"
    copy.write_bytes(damaged)
    with suppress(ConfigError):
        check(copy)
        with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
            for digest, body in connection.execute("SELECT digest, body FROM documents"):
                assert hashlib.sha256(body).hexdigest() == digest
