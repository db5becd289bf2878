"""What every registry of mappings must do: one function a law, each on an empty registry of its own."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.mappings import mapping_of

from otel_bridge.errors import MalformedMapping, MalformedRequest, MappingConflict, MappingNotFound, QuotaMet
from otel_bridge.mapping.document import canonical, digest, encode
from otel_bridge.mapping.quota import Quota
from otel_bridge.mapping.registry import Put, Registry
from otel_bridge.v1 import mapping_pb2 as pb

ONE, TWO = mapping_of({"conv": [1, 2], 7: [3]}), mapping_of({"conv": [2]})


def described(mapping: pb.Mapping) -> pb.Mapping:
    """The same resolution with an operator named."""
    better = pb.Mapping()
    better.CopyFrom(mapping)
    handle = better.methods[0].instructions[0].handles[0]
    better.methods[0].instructions[0].operators.add(handle=handle, operators=[pb.Operator(name="aten.relu.default")])
    return better


def file_of(mapping: pb.Mapping, build_id: str = "", name: str = "", version: str = "") -> pb.MappingFile:
    """A file to put."""
    return pb.MappingFile(mapping=mapping, build_id=build_id, name=name, version=version)


def digest_of(mapping: pb.Mapping) -> str:
    """The digest of a mapping's document."""
    return digest(encode(mapping))


def puts_and_gets(registry: Registry) -> None:
    """What was put comes back canonical, with counts and size, and putting it again changes nothing."""
    assert registry.put("", file_of(ONE, "b1", "net", "1")) == Put(digest_of(ONE), "b1", created=True)
    entry = registry.get("", "b1")
    assert entry.mapping == canonical(ONE)
    info = entry.info
    assert (info.digest, info.build_id, list(info.aliases)) == (digest_of(ONE), "b1", ["net@1"])
    assert (info.methods, info.delegates, info.entries, info.bytes) == (1, 1, 2, len(encode(ONE)))
    assert info.created_unix_ns > 1_600_000_000 * 10**9
    assert registry.document("", "b1") == (digest_of(ONE), encode(ONE))
    before = registry.revision
    assert registry.put("", file_of(ONE, "b1", "net", "1")) == Put(digest_of(ONE), "b1", created=False)
    assert registry.get("", "b1").info == info
    assert registry.revision == before


def names_builds_itself(registry: Registry) -> None:
    """A file without a build id goes by the start of its digest."""
    put = registry.put("", file_of(ONE))
    assert put.build_id == f"sha256:{digest_of(ONE)[:16]}"
    assert registry.get("", put.build_id).mapping == canonical(ONE)


def refuses_conflicts(registry: Registry) -> None:
    """A build keeps its resolution unless it is replaced on purpose; a refusal changes nothing, the alias included."""
    registry.put("", file_of(ONE, "b1"))
    before = registry.revision
    with pytest.raises(MappingConflict) as caught:
        registry.put("", file_of(TWO, "b1", "net"))
    for part in ('build "b1"', digest_of(ONE), digest_of(TWO), "first at methods[forward].instructions[0]", "`replace`"):
        assert part in str(caught.value)
    assert registry.document("", "b1") == (digest_of(ONE), encode(ONE))
    assert registry.build_of("", "net", "") is None
    assert registry.revision == before
    assert registry.put("", file_of(TWO, "b1"), replace=True).created
    assert registry.document("", "b1") == (digest_of(TWO), encode(TWO))
    assert registry.revision != before
    with pytest.raises(MappingNotFound):
        registry.get("", f"sha256:{digest_of(ONE)}")


def takes_improvements(registry: Registry) -> None:
    """What only describes may be improved without being asked; the build then points to the new document."""
    registry.put("", file_of(ONE, "b1", "net"))
    better = described(ONE)
    assert registry.put("", file_of(better, "b1")) == Put(digest_of(better), "b1", created=True)
    assert registry.get("", "net@").mapping == canonical(better)


def keeps_the_better_description(registry: Registry) -> None:
    """A mapping that names fewer operators is no improvement: what is kept stays, unless the caller insists."""
    better = described(ONE)
    registry.put("", file_of(better, "b1"))
    assert registry.put("", file_of(ONE, "b1", "net")) == Put(digest_of(better), "b1", created=False)
    assert registry.get("", "net@").mapping == canonical(better)
    assert registry.put("", file_of(ONE, "b1"), replace=True) == Put(digest_of(ONE), "b1", created=True)


def refuses_what_is_malformed(registry: Registry) -> None:
    """A file that cannot be used is refused before anything is kept."""
    with pytest.raises(MalformedMapping):
        registry.put("", file_of(pb.Mapping(format=3), "b1"))
    with pytest.raises(MalformedMapping):
        registry.put("", file_of(ONE, "b1", "a@b"))
    assert registry.page("", "", 10) == []


def finds_by_reference(registry: Registry) -> None:
    """A reference is a build id, the start of a digest, or an alias; a build id wins."""
    registry.put("", file_of(ONE, "b1", "net", "2@rc"))
    registry.put("", file_of(TWO, "net@2@rc"))
    assert registry.get("", "net@2@rc").info.build_id == "net@2@rc"
    registry.delete("", "net@2@rc")
    assert registry.get("", "net@2@rc").info.build_id == "b1"
    for length in (8, 16, 64):
        assert registry.get("", f"sha256:{digest_of(ONE)[:length]}").info.build_id == "b1"
        assert registry.get("", f"SHA256:{digest_of(ONE)[:length].upper()}").info.build_id == "b1"
    for ref in (f"sha256:{digest_of(ONE)[:7]}", digest_of(ONE), "b", "B1", "b1%", "net", "net@2", "@", ""):
        with pytest.raises(MappingNotFound):
            registry.get("", ref)


def tells_what_is_near(registry: Registry) -> None:
    """A reference that names nothing is told with what there is, its foreign characters escaped."""
    with pytest.raises(MappingNotFound, match="no mappings yet"):
        registry.get("", "x")
    registry.put("", file_of(ONE, "b1", "net", "1"))
    with pytest.raises(MappingNotFound, match='"net@2": not found; there are "net@1"'):
        registry.get("", "net@2")
    with pytest.raises(MappingNotFound, match=r'"\\u001b": not found; there are "b1".*NAME@VERSION'):
        registry.get("", "\x1b")


def refuses_what_is_ambiguous(registry: Registry) -> None:
    """A digest that several builds share may be read, never changed by; the refusal names the builds."""
    registry.put("", file_of(ONE, "b2"))
    registry.put("", file_of(ONE, "b1"))
    ref = f"sha256:{digest_of(ONE)}"
    assert registry.get("", ref).info.build_id == "b1"
    with pytest.raises(MalformedRequest, match='names more than one, such as "b1", "b2"'):
        registry.delete("", ref)
    with pytest.raises(MalformedRequest, match="names more than one"):
        registry.set_alias("", "net", "", ref)
    assert registry.delete("", "b1") == "b1"
    assert registry.delete("", ref) == "b2"


def pages(registry: Registry) -> None:
    """Pages ascend by build id as UTF-8 bytes, each build once, and end."""
    ids = ["\U0001f600", "\uffee", "a", "B", "b", "a1", "\u00e4"]
    for index, build_id in enumerate(ids):
        registry.put("", file_of(ONE if index % 2 else TWO, build_id, f"n{index}", "1"))
    registry.set_alias("", "alpha", "", "a")
    found: list[pb.MappingInfo] = []
    while page := registry.page("", found[-1].build_id if found else "", 3):
        assert len(page) <= 3
        found += page
    assert [info.build_id for info in found] == sorted(ids, key=str.encode)
    assert {info.build_id: list(info.aliases) for info in found}["a"] == ["alpha@", "n2@1"]
    assert all(registry.get("", info.build_id).info == info for info in found)


def deletes(registry: Registry) -> None:
    """A deleted build is gone with its aliases; its document stays while another build uses it."""
    registry.put("", file_of(ONE, "b1", "net", "1"))
    registry.put("", file_of(ONE, "b2", "net", "2"))
    assert registry.delete("", "net@1") == "b1"
    assert registry.document("", "b1") is None
    assert registry.build_of("", "net", "1") is None
    assert registry.build_of("", "net", "2") == "b2"
    assert registry.get("", f"sha256:{digest_of(ONE)}").info.build_id == "b2"
    assert registry.delete("", "b2") == "b2"
    with pytest.raises(MappingNotFound):
        registry.get("", f"sha256:{digest_of(ONE)}")
    with pytest.raises(MappingNotFound):
        registry.delete("", "b2")


def moves_aliases(registry: Registry) -> None:
    """An alias names one build and moves when told to, by itself or with a put; the revision tells."""
    registry.put("", file_of(ONE, "b1"))
    registry.put("", file_of(TWO, "b2"))
    seen = {registry.revision}
    assert registry.set_alias("", "net", "1", "b1") == ("b1", None)
    seen.add(registry.revision)
    assert registry.set_alias("", "net", "1", "b2") == ("b2", "b1")
    seen.add(registry.revision)
    assert registry.build_of("", "net", "1") == "b2"
    assert registry.put("", file_of(ONE, "b1", "net", "1")).created is False
    assert registry.build_of("", "net", "1") == "b1"
    seen.add(registry.revision)
    assert len(seen) == 4
    assert registry.set_alias("", "net", "1", "net@1") == ("b1", "b1")
    assert registry.revision in seen
    with pytest.raises(MappingNotFound):
        registry.set_alias("", "net", "1", "b3")
    with pytest.raises(MalformedMapping, match="name: an empty string"):
        registry.set_alias("", "", "1", "b1")
    assert registry.build_of("", "net", "1") == "b1"


def keeps_tenants_apart(registry: Registry) -> None:
    """Nothing of one tenant is seen, changed or hidden by another."""
    registry.put("a", file_of(ONE, "b1", "net"))
    registry.put("b", file_of(TWO, "b1", "net"))
    registry.put("b", file_of(ONE, "b2"))
    assert registry.document("a", "b1") == (digest_of(ONE), encode(ONE))
    assert registry.document("b", "b1") == (digest_of(TWO), encode(TWO))
    assert registry.document("", "b1") is None
    assert registry.build_of("", "net", "") is None
    assert [info.build_id for info in registry.page("a", "", 10)] == ["b1"]
    with pytest.raises(MappingNotFound):
        registry.get("a", "b2")
    registry.delete("a", "net@")
    assert registry.get("b", "net@").mapping == canonical(TWO)
    assert registry.get("b", f"sha256:{digest_of(ONE)}").info.build_id == "b2"


def survives_races(registry: Registry) -> None:
    """Of threads that put different mappings for one build exactly one wins; all else stays whole."""
    start = threading.Barrier(8)

    def race(number: int) -> bool:
        start.wait()
        won = True
        try:
            registry.put("", file_of(mapping_of({"x": [number + 1]}), "contested", "net", str(number)))
        except MappingConflict:
            won = False
        for turn in range(5):
            build = f"own-{number}-{turn}"
            registry.put("", file_of(ONE, build))
            assert registry.get("", build).mapping == canonical(ONE)
            registry.delete("", build)
        return won

    with ThreadPoolExecutor(8) as pool:
        wins = list(pool.map(race, range(8)))
    assert wins.count(True) == 1
    winner = wins.index(True)
    assert registry.get("", "contested").mapping == canonical(mapping_of({"x": [winner + 1]}))
    assert [registry.build_of("", "net", str(number)) for number in range(8)].count("contested") == 1
    assert [info.build_id for info in registry.page("", "", 100)] == ["contested"]


def keeps_quotas(registry: Registry) -> None:
    """A write that would go beyond a quota is refused and undone; one that adds nothing, and one of another tenant, is not."""

    def put(build: str, handle: int, quota: Quota, tenant: str = "t", name: str = "") -> Put:
        file = pb.MappingFile(mapping=mapping_of({1: [handle]}), build_id=build, name=name)
        return registry.put(tenant, file, replace=True, quota=quota)

    two = Quota(builds=2)
    put("b1", 1, two, name="n1")
    put("b2", 2, two, name="n2")
    before, revision = registry.page("t", "", 9), registry.revision
    for attempt in (
        lambda: put("b3", 3, two),
        lambda: put("b2", 2, two, name="n3"),
        lambda: registry.set_alias("t", "n3", "", "b1", quota=two),
        lambda: put("b1", 10**6, Quota(size_bytes=1), name="n2"),
        lambda: put("b3", 3, Quota(size_bytes=sum(info.bytes for info in before))),
    ):
        with pytest.raises(QuotaMet, match=r"and may have \d+; delete what is no longer in use"):
            attempt()
        assert (registry.page("t", "", 9), registry.revision) == (before, revision)
    lowered = Quota(builds=1, size_bytes=1)
    assert not put("b1", 1, lowered, name="n1").created
    assert registry.set_alias("t", "n2", "", "b1", quota=lowered) == ("b1", "b2")
    assert put("b3", 3, two, tenant="other").created
    registry.delete("t", "b2")
    assert put("b3", 3, two).created


LAWS: tuple[Callable[[Registry], None], ...] = (
    puts_and_gets,
    names_builds_itself,
    refuses_conflicts,
    takes_improvements,
    keeps_the_better_description,
    refuses_what_is_malformed,
    finds_by_reference,
    tells_what_is_near,
    refuses_what_is_ambiguous,
    pages,
    deletes,
    moves_aliases,
    keeps_tenants_apart,
    keeps_quotas,
    survives_races,
)
