"""Every row of the table of bad times in docs/bad-input.md: sent as a device would, and looked at as a back end does."""

from dataclasses import dataclass

import pytest
from support.etdump_writer import ProfileEvent, RunData, write_etdump
from support.jaeger import StoredSpan
from support.pages import table
from support.scenes import NOON_NS, stages_with
from support.spans import LIMIT_BYTES, decode

from otel_bridge.errors import MalformedRequest
from otel_bridge.spans import attributes as at
from otel_bridge.spans.assemble import assemble
from otel_bridge.v1 import profiling_pb2 as pb
from otel_bridge.wire.admission import Receipt, Rules, admit_etdump

MINUTE_NS, HOUR_NS = 60 * 10**9, 3600 * 10**9
YEAR_2100_NS = 4_102_444_800 * 10**9
HOUR_AGO_NS = NOON_NS - HOUR_NS
RULES = Rules(lambda _key: True, lambda _key: True, max_clock_error_ns=5 * MINUTE_NS)
START, LENGTH = 7000, 100


@dataclass(frozen=True)
class Sent:
    """What a device sends: its clocks, when it says it is, and an inference of 100 ticks from `start`, all else alike."""

    clocks: tuple[pb.Clock, ...]
    sent_ns: int | None = None
    ended_at_ns: int = 0
    start: int = START
    delegate_ticks: int = START


def anchored(unix_ns: int, ticks: int = START, **more: int) -> tuple[pb.Clock, ...]:
    """A host clock with an anchor."""
    return (pb.Clock(anchor_ticks=ticks, anchor_unix_ns=unix_ns, **more),)


NPU = pb.Clock(name=b"npu")

SENT = {
    "an anchor": Sent(anchored(HOUR_AGO_NS)),
    "no anchor": Sent(()),
    "an anchor in 1970": Sent(anchored(1)),
    "an anchor in ticks where nanoseconds are expected": Sent(anchored(START)),
    "an anchor in 2100": Sent(anchored(YEAR_2100_NS)),
    "an anchor in 2100 from a device whose clock says 2100": Sent(anchored(YEAR_2100_NS), sent_ns=YEAR_2100_NS + LENGTH),
    "an anchor in 1970 from a device whose clock says 1970": Sent(anchored(HOUR_NS), sent_ns=HOUR_NS + LENGTH),
    "an anchor of the past with ticks that run far ahead of it": Sent(anchored(HOUR_AGO_NS), start=START + 10 * HOUR_NS),
    "an anchor a minute ahead": Sent(anchored(NOON_NS + MINUTE_NS)),
    "ended_at in 1970": Sent((), ended_at_ns=1),
    "ended_at in 2100": Sent((), ended_at_ns=YEAR_2100_NS),
    "ended_at an hour ago": Sent((), ended_at_ns=HOUR_AGO_NS),
    "a ratio of 0 / 0": Sent(anchored(HOUR_AGO_NS, numerator=0, denominator=0)),
    "two clocks of one name": Sent((*anchored(HOUR_AGO_NS), NPU, NPU)),
    "a counter of 65 bits": Sent(anchored(HOUR_AGO_NS, counter_bits=65)),
    "a 32-bit counter that wrapped since the anchor": Sent(anchored(HOUR_AGO_NS, 2**32 - 50, counter_bits=32), start=30),
    "a 32-bit counter that wraps within the inference": Sent(
        anchored(HOUR_AGO_NS, 2**32 - 50, counter_bits=32), start=2**32 - 50
    ),
    "a delegate's event in the year 2100": Sent(anchored(HOUR_AGO_NS), delegate_ticks=YEAR_2100_NS - HOUR_AGO_NS),
}


def root_and_call(sent: Sent) -> tuple[StoredSpan, StoredSpan]:
    """The spans of the inference and of its delegate call, from tick 10 to 40 of it."""
    bits = sent.clocks[0].counter_bits if sent.clocks else 0
    width = 2 ** (bits or 64)

    def tick(number: int) -> int:
        return (sent.start + number) % width

    event = ProfileEvent(chain=0, instruction=0, id_int=1, start=sent.delegate_ticks, end=sent.delegate_ticks + 1)
    call = ProfileEvent(name="DELEGATE_CALL", chain=0, instruction=0, start=tick(10), end=tick(40))
    whole = ProfileEvent(name="Method::execute", chain=-1, instruction=0, start=tick(0), end=tick(LENGTH))
    dump = write_etdump([RunData("Execute", [event, call, whole])])
    request = pb.UploadETDumpRequest(
        stream=pb.Stream(clocks=sent.clocks), etdump=dump, ended_at_unix_ns=sent.ended_at_ns
    )  # fmt: skip
    admitted = admit_etdump(request, Receipt(NOON_NS, sent.sent_ns), RULES, lambda _name, _version: None)
    payloads = assemble(stages_with().run(admitted.batch), LIMIT_BYTES)
    spans = {span.name: span for payload in payloads for span in decode(payload.data)}
    return spans["execute"], spans["delegate"]


def anchored_end_ns(sent: Sent) -> int:
    """When the inference ended by the anchor, the shorter way around the counter."""
    (clock, *_) = sent.clocks
    distance = (sent.start - clock.anchor_ticks) % 2 ** (clock.counter_bits or 64)
    return int(clock.anchor_unix_ns + distance + LENGTH)


def rows() -> dict[str, dict[str, str]]:
    """The table of the page, by what was sent."""
    return {row["sent"]: row for row in table("docs/bad-input.md", "sent", "ends", at.CLOCK_SOURCE, at.CLOCK_FAULT)}


def test_every_row_is_sent() -> None:
    """What the page lists and what is sent here are the same."""
    assert rows().keys() == SENT.keys()


@pytest.mark.parametrize("name", SENT)
def test_the_outcome_is_as_the_page_says(name: str) -> None:
    """The inference ends when the page says, the root says so, and order and distances are as they were sent."""
    row, sent = rows()[name], SENT[name]
    if row["ends"] == "refused":
        with pytest.raises(MalformedRequest, match="clocks"):
            root_and_call(sent)
        return
    root, call = root_and_call(sent)
    expected_ns = {"receipt": NOON_NS, "ended_at": sent.ended_at_ns}.get(row["ends"]) or anchored_end_ns(sent)
    assert root.end_ns == expected_ns
    assert (root.end_ns - root.start_ns, call.start_ns - root.start_ns, call.end_ns - call.start_ns) == (LENGTH, 10, 30)
    assert root.attributes.get(at.CLOCK_SOURCE, "") == row[at.CLOCK_SOURCE]
    assert root.attributes.get(at.CLOCK_FAULT, "") == row[at.CLOCK_FAULT]
    moved = expected_ns != anchored_end_ns(sent) if sent.clocks and row[at.CLOCK_FAULT] != "implausible" else False
    if row[at.CLOCK_SOURCE] == "" and moved:
        assert root.attributes[at.CLOCK_CORRECTION_NS] == NOON_NS - (sent.sent_ns or 0)
