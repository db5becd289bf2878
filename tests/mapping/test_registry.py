import multiprocessing
import resource
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from support.mappings import mapping_of
from support.registries import LAWS, ONE, TWO, described, digest_of, file_of

from otel_bridge.errors import BridgeError, ConfigError, MappingConflict, Unavailable
from otel_bridge.mapping.document import canonical, default_build_id
from otel_bridge.mapping.memory import MemoryRegistry
from otel_bridge.mapping.registry import Registry
from otel_bridge.mapping.sqlite import FILE_NAME, open_registry
from otel_bridge.v1 import mapping_pb2 as pb


@pytest.fixture(params=["memory", "sqlite memory", "sqlite file"])
def registry(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Registry]:
    """An empty registry of each kind."""
    kept: Registry
    if request.param == "memory":
        kept = MemoryRegistry()
    else:
        kept = open_registry(tmp_path / "data" if request.param == "sqlite file" else None)
    yield kept
    kept.close()


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_law(registry: Registry, law: Callable[[Registry], None]) -> None:
    """Every registry keeps every law of the contract: its docstring says which."""
    law(registry)


def test_ambiguous_digest(registry: Registry) -> None:
    """The start of a digest that two documents share is refused, with their digests."""
    by_start: dict[str, int] = {}
    number = 0
    while True:
        number += 1
        start = digest_of(mapping_of({"x": [number]}))[:1]
        if start in by_start:
            break
        by_start[start] = number
    for each in (by_start[start], number):
        registry.put("", file_of(mapping_of({"x": [each]})))
    # No two known documents share eight digits, so the shortest reference is made shorter for once.
    with pytest.MonkeyPatch.context() as patch:
        for module in ("memory", "sql"):
            patch.setattr(f"otel_bridge.mapping.{module}.digest_prefix", lambda ref: ref.removeprefix("sha256:"))
        with pytest.raises(BridgeError, match=f'names more than one, such as "sha256:{start}'):
            registry.get("", f"sha256:{start}")


def test_persists(tmp_path: Path) -> None:
    """What a file holds is there after it was closed: mappings, aliases, and the revision that keys caches."""
    with closing(open_registry(tmp_path, now_ns=lambda: 42)) as registry:
        registry.put("t", file_of(ONE, "b1", "net", "1"))
        info, revision = registry.get("t", "b1").info, registry.revision
    with closing(open_registry(tmp_path)) as registry:
        assert registry.build_of("t", "net", "1") == "b1"
        assert registry.get("t", "net@1").info == info
        assert info.created_unix_ns == 42
        assert registry.revision == revision


def test_leaves_nothing_behind(tmp_path: Path) -> None:
    """A document that no build points to any more takes no room: replaced, improved or deleted."""
    with closing(open_registry(tmp_path)) as registry, closing(sqlite3.connect(tmp_path / FILE_NAME)) as other:

        def kept() -> list[str]:
            return [digest for (digest,) in other.execute("SELECT digest FROM documents")]

        registry.put("", file_of(ONE, "b1"))
        registry.put("", file_of(described(ONE), "b1"))
        assert kept() == [digest_of(described(ONE))]
        registry.put("", file_of(TWO, "b1"), replace=True)
        assert kept() == [digest_of(TWO)]
        registry.delete("", "b1")
        assert kept() == []


def test_memory_is_its_own() -> None:
    """Two registries in memory share nothing."""
    with closing(open_registry(None)) as one, closing(open_registry(None)) as two:
        one.put("", file_of(ONE, "b1"))
        assert two.page("", "", 10) == []


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("UPDATE state SET value = 2 WHERE key = 'format'", "format 2, and this version reads format 1"),
        ("DELETE FROM state WHERE key = 'format'", "format unknown"),
        ("DROP TABLE state", "format unknown"),
    ],
)
def test_unknown_format(tmp_path: Path, statement: str, found: str) -> None:
    """A file of another format is refused with the way out, and left as it is."""
    open_registry(tmp_path).close()
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as connection:
        connection.execute(statement)
        connection.commit()
        before = list(connection.iterdump())
    with pytest.raises(ConfigError, match=f"{found}.*data directory"):
        open_registry(tmp_path)
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as connection:
        assert list(connection.iterdump()) == before


def test_foreign_file(tmp_path: Path) -> None:
    """What is no database, and a directory that cannot be made, are refused at the start in the user's words."""
    (tmp_path / FILE_NAME).write_bytes(b"not a database" * 100)
    with pytest.raises(ConfigError, match=r"cannot be opened.*directory that can be written"):
        open_registry(tmp_path)
    with pytest.raises(ConfigError, match="cannot be opened"):
        open_registry(tmp_path / FILE_NAME / "below")


def test_two_connections(tmp_path: Path) -> None:
    """Two registries on one file see each other's writes at their next call, aliases and revision included."""
    with closing(open_registry(tmp_path)) as one, closing(open_registry(tmp_path)) as two:
        before = two.revision
        one.put("", file_of(ONE, "b1", "net"))
        assert two.document("", "b1") == one.document("", "b1")
        assert two.build_of("", "net", "") == "b1"
        assert two.revision == one.revision != before
        with pytest.raises(MappingConflict):
            two.put("", file_of(TWO, "b1"))


def test_busy(tmp_path: Path) -> None:
    """While another process holds the write lock for too long, a write is told to come again; a read is answered."""
    with closing(open_registry(tmp_path, busy_timeout_s=0.05)) as registry:
        registry.put("", file_of(ONE, "b1"))
        with closing(sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            with pytest.raises(Unavailable, match=r"locked.*try again") as caught:
                registry.put("", file_of(TWO, "b2"))
            assert caught.value.retry_after_s
            assert registry.get("", "b1").mapping == canonical(ONE)
        assert registry.put("", file_of(TWO, "b2")).created


def test_a_full_disk(tmp_path: Path) -> None:
    """Where the file cannot grow, a write is told to come again, and nothing of it stays; reads and later writes go on."""
    large = mapping_of({f"an identifier of some length, number {n}": [n + 1] for n in range(20_000)})
    with closing(open_registry(tmp_path)) as registry:
        registry.put("", file_of(ONE, "b1"))
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (256 << 10, limits[1]))
        try:
            with pytest.raises(Unavailable, match="its disk is full, gone or damaged; try again"):
                registry.put("", file_of(large, "b2"))
            assert registry.get("", "b1").mapping == canonical(ONE)
            assert [info.build_id for info in registry.page("", "", 10)] == ["b1"]
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert registry.put("", file_of(large, "b2")).created


def _work(directory: Path, number: int) -> None:
    with closing(open_registry(directory)) as registry:
        for turn in range(10):
            registry.put("", file_of(ONE, f"{number}-{turn}", "net", str(turn)))
            with suppress(MappingConflict):
                registry.put("", file_of(mapping_of({"x": [number + 1]}), "contested"))


def test_processes(tmp_path: Path) -> None:
    """Processes that open and write one file at once lose nothing, and agree on who came first."""
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_work, args=(tmp_path, number)) for number in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    with closing(open_registry(tmp_path)) as registry:
        builds = {info.build_id for info in registry.page("", "", 100)}
        assert builds == {f"{number}-{turn}" for number in range(3) for turn in range(10)} | {"contested"}
        assert registry.build_of("", "net", "9") in {"0-9", "1-9", "2-9"}


BODIES = [ONE, TWO, described(ONE), mapping_of({"conv": [1]}, method="other")]
BUILDS = ["b1", "b2", ""]
REFS = ["b1", "b2", "n@1", "n@", "m@1", *(f"sha256:{digest_of(body)[:9]}" for body in BODIES), default_build_id(digest_of(ONE))]

tenants = st.sampled_from(["", "t"])
versions = st.sampled_from(["", "1"])


class Comparison(RuleBasedStateMachine):
    """Whatever is done in whatever order, the database answers as the dicts do, errors included."""

    def __init__(self) -> None:
        super().__init__()
        self.model, self.real = MemoryRegistry(now_ns=lambda: 7), open_registry(None, now_ns=lambda: 7)

    def teardown(self) -> None:
        """Closes the database."""
        self.real.close()

    def both(self, call: Callable[[Registry], object]) -> None:
        """The same call on both, with the same answer."""
        answers = []
        for registry in (self.model, self.real):
            try:
                answers.append(call(registry))
            except BridgeError as error:
                answers.append((type(error), str(error)))
        assert answers[0] == answers[1]

    @rule(
        tenant=tenants,
        body=st.sampled_from(BODIES),
        build=st.sampled_from(BUILDS),
        version=versions | st.none(),
        replace=st.booleans(),
    )
    def put(self, tenant: str, body: pb.Mapping, build: str, version: str | None, replace: bool) -> None:  # noqa: FBT001  # drawn by name
        """See `Registry`, here and below."""
        file = file_of(body, build) if version is None else file_of(body, build, "n", version)
        self.both(lambda registry: registry.put(tenant, file, replace=replace))

    @rule(tenant=tenants, ref=st.sampled_from(REFS))
    def delete(self, tenant: str, ref: str) -> None:
        """Any reference."""
        self.both(lambda registry: registry.delete(tenant, ref))

    @rule(tenant=tenants, name=st.sampled_from(["n", "m"]), version=versions, ref=st.sampled_from(REFS))
    def set_alias(self, tenant: str, name: str, version: str, ref: str) -> None:
        """Any reference."""
        self.both(lambda registry: registry.set_alias(tenant, name, version, ref))

    @rule(tenant=tenants, ref=st.sampled_from(REFS))
    def get(self, tenant: str, ref: str) -> None:
        """Any reference."""
        self.both(lambda registry: registry.get(tenant, ref))

    @invariant()
    def same(self) -> None:
        """All that can be listed is equal at any time."""
        for tenant in ("", "t"):
            self.both(lambda registry, tenant=tenant: registry.page(tenant, "", 10))
            self.both(lambda registry, tenant=tenant: [registry.document(tenant, build) for build in BUILDS])
            self.both(lambda registry, tenant=tenant: [registry.build_of(tenant, n, v) for n in "nm" for v in ("", "1")])


Comparison.TestCase.settings = settings(max_examples=15, stateful_step_count=20, deadline=None)
TestComparison = Comparison.TestCase
