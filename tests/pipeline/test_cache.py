"""What is known of mappings is kept as long as it is true."""

from support.mappings import mapping_of
from support.scenes import batch_of, call, delegated, execute, runtime

from otel_bridge.mapping.cache import CompiledMappings
from otel_bridge.mapping.memory import MemoryRegistry
from otel_bridge.metadata.table import Decoders
from otel_bridge.pipeline.stages import Stages, count_by_status
from otel_bridge.v1 import mapping_pb2

EVENTS = [delegated(1, 0, 2, 3), call("DELEGATE_CALL", 0, 1, 4), runtime("Method::execute", 0, 5)]


def file(build: str, *handles: int) -> mapping_pb2.MappingFile:
    """A mapping that gives identifier 1 these handles."""
    return mapping_pb2.MappingFile(mapping=mapping_of({1: list(handles)}), build_id=build)


def test_a_mapping_that_arrives_later_is_used_at_once() -> None:
    """A miss is not remembered past an upload, and a replaced mapping is not used any more."""
    registry = MemoryRegistry()
    stages = Stages(CompiledMappings(registry, 1 << 20), Decoders(), 1 << 20)
    batch = batch_of((execute(), EVENTS))

    def seen() -> tuple[list[str], tuple[int, ...]]:
        scene = stages.run(batch)
        (resolution,) = [t.face.resolution for t in scene.templates if t.face.resolution.status]
        return [status for status, _ in count_by_status(scene)], resolution.handles

    assert seen() == (["no_mapping"], ())
    registry.put("", file("build", 7))
    assert seen() == (["exact"], (7,))
    registry.put("", file("build", 8), replace=True)
    assert seen() == (["exact"], (8,))
    registry.delete("", "build")
    assert seen() == (["no_mapping"], ())


def test_memory_is_bounded_by_the_number_of_mappings() -> None:
    """The least used is compiled again when it is needed: same answer, another object."""
    registry = MemoryRegistry()
    for number in range(3):
        registry.put("", file(f"build {number}", number + 1))
    mappings = CompiledMappings(registry, 10_000)
    first = mappings.get("", "build 0")
    assert first is mappings.get("", "build 0")
    for number in (1, 2):
        assert mappings.get("", f"build {number}") is not None
    again = mappings.get("", "build 0")
    assert again is not first
    assert again == first


def test_builds_that_devices_make_up_do_not_pile_up() -> None:
    """Misses are remembered within a bound."""
    mappings = CompiledMappings(MemoryRegistry(), 10_000)
    for number in range(25_000):
        assert mappings.get("", f"made up {number}") is None
    assert len(mappings._digest_of) <= 10_000


def test_two_builds_with_one_content_share_what_is_compiled() -> None:
    """Documents are named by content, within a tenant."""
    registry = MemoryRegistry()
    for tenant in ("", "acme"):
        registry.put(tenant, file("a", 1))
        registry.put(tenant, file("b", 1))
    mappings = CompiledMappings(registry, 1 << 20)
    assert mappings.get("", "a") is mappings.get("", "b") is not mappings.get("acme", "a")
    assert mappings.get("acme", "a") is mappings.get("acme", "b")
    assert mappings.get("globex", "a") is None
