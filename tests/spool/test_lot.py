"""The lot keeps its bounds and loses nothing."""

from collections.abc import Sequence

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from support.scenes import batch_of, execute, runtime

from otel_bridge.spool.lot import Lot, LotLimits
from otel_bridge.spool.protocol import Awaited, Record

REFS = st.sampled_from(["a1", "b1", "c1", "d1", "a2", "b2", "c2", "d2"])
"""Builds a to d of two tenants."""


def awaited(ref: str) -> Awaited:
    """The thing that is awaited."""
    return Awaited(ref[0], tenant=ref[1])


class LotAgainstModel(RuleBasedStateMachine):
    """Against a list."""

    def __init__(self) -> None:
        """An empty lot of small bounds."""
        super().__init__()
        self.sizes: dict[int, int] = {}
        self.limits = LotLimits(10.0, 1000, 40, 400, 16, max_builds=3, bytes_per_tenant={"1": 600.0, "2": 500.0}.__getitem__)
        self.lot = Lot(self.limits)
        self.model: list[tuple[str, int, int, float]] = []
        self.now_s = 0.0
        self.next = 0

    @rule(ref=REFS, events=st.integers(1, 12), size=st.integers(1, 300))
    def offer(self, ref: str, events: int, size: int) -> None:
        """Refused exactly where a bound would be broken."""
        record = Record(self.next, batch_of((execute(), [runtime("e", 0, 1)] * events)))
        mine = [each for each in self.model if each[0] == ref]
        of_tenant = [each for each in self.model if each[0][1] == ref[1]]
        refs = {each[0] for each in of_tenant} | {ref}
        fits = (
            len(refs) <= self.limits.max_builds
            and sum(e for _, _, e, _ in self._sized(self.model)) + events <= self.limits.max_events
            and sum(e for _, _, e, _ in self._sized(mine)) + events <= self.limits.max_events_per_build
            and sum(s for _, s, _, _ in self._sized(self.model)) + size <= self.limits.max_bytes
            and sum(s for _, s, _, _ in self._sized(mine)) + size <= self.limits.max_bytes_per_build
            and sum(s for _, s, _, _ in self._sized(of_tenant)) + size <= self.limits.bytes_per_tenant(ref[1])
        )
        assert fits == (self.lot.offer(awaited(ref), record, size, self.now_s) is None)
        if fits:
            self.model.append((ref, self.next, events, self.now_s + self.limits.max_age_s))
            self.sizes[self.next] = size
            self.next += 1

    @rule(ref=REFS)
    def take(self, ref: str) -> None:
        """All of a ref, in order."""
        assert [n for r, n, _, _ in self.model if r == ref] == [record.number for record in self.lot.take(awaited(ref))]
        self.model = [each for each in self.model if each[0] != ref]

    @rule(seconds=st.floats(0, 12))
    def expire(self, seconds: float) -> None:
        """All whose time is up."""
        self.now_s += seconds
        due = {n for _, n, _, until in self.model if until <= self.now_s}
        assert due == {record.number for record in self.lot.take_expired(self.now_s)}
        self.model = [each for each in self.model if each[1] not in due]

    @precondition(lambda self: self.model)
    @invariant()
    def counts(self) -> None:
        """Events and bytes are those of what is held."""
        assert sum(e for _, _, e, _ in self.model) == self.lot.tally.events
        assert sum(self.sizes[n] for _, n, _, _ in self.model) == self.lot.tally.size_bytes

    def _sized(self, entries: Sequence[tuple[str, int, int, float]]) -> list[tuple[str, int, int, float]]:
        return [(ref, self.sizes[number], events, until) for ref, number, events, until in entries]


TestLot = LotAgainstModel.TestCase
