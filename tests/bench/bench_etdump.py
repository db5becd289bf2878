"""What reading an ETDump costs: the fast reader against the reference reader, in one run, as a ratio."""

from pathlib import Path

from rounds import USUAL, Effort, Figure, ratio, spread, take_turns

from otel_bridge.etdump.read import read
from otel_bridge.etdump.reference import read_reference
from otel_bridge.model.stream import Stream

XNNPACK = Path(__file__).parents[1] / "fixtures" / "xnnpack"
STREAM = Stream(stream_id=bytes(range(16)))


def main(effort: Effort = USUAL) -> list[Figure]:
    """Measure one large capture and one of a single inference."""
    figures = []
    print("  ns per event, median (min..max)")
    for capture in ("run100.etdp", "run.etdp"):
        data = (XNNPACK / capture).read_bytes()
        events = len(read(data, STREAM).batch)
        readers = {"fast": lambda data=data: read(data, STREAM), "reference": lambda data=data: read_reference(data, STREAM)}
        took = take_turns(readers, events, effort.rounds(15))
        print(
            f"  {capture:12} {events:5} events   fast {spread(took['fast'])}   reference {spread(took['reference'])}"
            f"   fast reader {ratio(took['reference'], took['fast']):.1f}x faster"
        )
        figures += [Figure(f"{capture}/{name}", "ns/event", values) for name, values in took.items()]
    return figures
