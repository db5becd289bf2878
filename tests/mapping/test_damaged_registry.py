"""A registry's file that a disk has changed: a mapping is whole, or is not there; never another one."""

import random
from pathlib import Path

import pytest
from support.mappings import mapping_of

from otel_bridge.errors import ConfigError, MappingNotFound, Unavailable
from otel_bridge.mapping.sqlite import FILE_NAME, open_registry
from otel_bridge.v1 import mapping_pb2 as pb

BUILDS = [f"build-{number}" for number in range(8)]


def file_of(build: str) -> pb.MappingFile:
    """A mapping of some kilobytes, unlike those of other builds."""
    return pb.MappingFile(build_id=build, mapping=mapping_of({f"{build} conv #{n}": [n + 1] for n in range(200)}))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, dict[str, bytes]]:
    """The file of a registry, and the documents in it."""
    folder = tmp_path_factory.mktemp("registry")
    registry = open_registry(folder)
    for build in BUILDS:
        registry.put("", file_of(build))
    documents = {build: found[1] for build in BUILDS if (found := registry.document("", build))}
    registry.close()
    return (folder / FILE_NAME).read_bytes(), documents


@pytest.mark.parametrize("seed", range(60))
def test_a_mapping_is_whole_or_not_there(seed: int, whole: tuple[bytes, dict[str, bytes]], tmp_path: Path) -> None:
    """Bits that fall over, or an end that is missing; what is not there says so, and an upload puts it right."""
    chance = random.Random(seed)  # noqa: S311 - to be the same in every run
    data = bytearray(whole[0])
    if seed % 3:
        for _ in range(seed % 5):
            data[chance.randrange(100, len(data))] ^= 1 << chance.randrange(8)
    else:
        data = data[: chance.randrange(len(data))]
    (tmp_path / FILE_NAME).write_bytes(data)
    try:
        registry = open_registry(tmp_path)
    except ConfigError as error:
        told = str(error)
    else:
        for build in BUILDS:
            try:
                found = registry.document("", build)
            except Unavailable:
                continue
            assert found is None or found[1] == whole[1][build]
        registry.close()
        return
    assert str(tmp_path) in told


def test_an_upload_puts_a_damaged_mapping_right(
    whole: tuple[bytes, dict[str, bytes]], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Until then it is as if it had never come, and the log says which it is."""
    data = bytearray(whole[0])
    data[data.index(b"build-3 conv #77")] ^= 2
    (tmp_path / FILE_NAME).write_bytes(data)
    registry = open_registry(tmp_path)
    assert registry.document("", "build-3") is None
    with pytest.raises(MappingNotFound):
        registry.get("", "build-3")
    assert 'the mapping of build "build-3" is damaged in the registry, and is not used; upload it again' in caplog.text
    before = registry.revision
    assert registry.put("", file_of("build-3")).created
    assert registry.revision > before
    assert registry.document("", "build-3") is not None
    assert registry.get("", "build-3").mapping == pb.Mapping.FromString(whole[1]["build-3"])
    registry.close()
