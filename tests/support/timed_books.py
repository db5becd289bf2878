"""What became of events, and when, on a virtual clock."""

from collections import Counter, defaultdict

from support.virtual_time import VirtualLoop


class Books:
    """
    Whoever is told of events: how many, and when.

    It stands for the pipeline's ledger, whose destination is the one, and is that of the others: `told`.
    """

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self.counts: Counter[str] = Counter()
        self.times: dict[str, list[tuple[float, int]]] = defaultdict(list)
        self.told = _Told(self)

    def note(self, what: str, events: int) -> None:
        """Something became of so many events."""
        self.counts[what] += events
        self.times[what].append((self._loop.time(), events))

    @property
    def dropped_events(self) -> dict[str, int]:
        """Events that were given up, by reason."""
        return {what.removeprefix("dropped "): events for what, events in self.counts.items() if what.startswith("dropped ")}

    def accepted(self, events: int) -> None:
        """A request was acknowledged."""
        self.note("accepted", events)

    def emitted(self, events: int, spans: int) -> None:
        """The back end took them."""
        assert events == spans
        self.note("emitted", events)

    def dropped(self, events: int, reason: str, spans: int = 0) -> None:
        """They were given up on the way."""
        assert not spans
        self.note(f"dropped {reason}", events)

    def resolved(self, events: int, status: str, delegate: str) -> None:  # noqa: ARG002 - as the protocol says
        """They were looked up."""
        self.note(f"resolved {status}", events)


class _Told:
    """The watch of the spool, and the ledger of parking."""

    def __init__(self, books: Books) -> None:
        self._books = books

    def dropped(self, destination: str, events: int, reason: str) -> None:  # noqa: ARG002 - there is one
        """They were given up."""
        self._books.note(f"dropped {reason}", events)

    def parked(self, destination: str, events: int) -> None:  # noqa: ARG002 - as above
        """They began to wait for their mapping."""
        self._books.note("parked", events)

    def unparked(self, destination: str, events: int, reason: str) -> None:  # noqa: ARG002 - as above
        """They go on."""
        self._books.note(f"unparked {reason}", events)
