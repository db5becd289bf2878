"""What admission makes of a sender's words about itself: defaults, stream ids, clocks, drops, attributes."""

import hashlib
import math
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.etdump_writer import ProfileEvent, RunData, write_etdump
from support.requests import ANYTHING, a_request, admitted, admitted_dump
from support.scenes import NOON_NS, batch_of, delegated

from otel_bridge.config.keys import allow
from otel_bridge.config.sections import INFERENCE_KEYS, RESOURCE_KEYS
from otel_bridge.model.events import BlockKind
from otel_bridge.model.stream import Anchor, Attributes, AttributeValue, Clock, ModelRef
from otel_bridge.v1 import profiling_pb2 as pb
from otel_bridge.wire.admission import Receipt, Rules
from otel_bridge.wire.blocks import attributes_of, text_of
from otel_bridge.wire.codec import request_of

DUMP = write_etdump(
    [
        RunData("Default", [ProfileEvent(name="Program::load_method", chain=-1, instruction=0, start=1, end=2)]),
        RunData("Execute", [ProfileEvent(name="Method::execute", chain=-1, instruction=0, start=3, end=9)]),
    ]
)
MINUTE_NS = 60 * 10**9


def test_unset_fields_of_columns() -> None:
    """All unset but the stream: no model, one clock of nanoseconds without an anchor, no events, nothing refused."""
    done = admitted(pb.ExportEventsRequest(stream=pb.Stream()))
    (stream,) = done.batch.streams
    assert (stream.model, stream.build, stream.resource, stream.runtime_version) == (ModelRef(), None, (), None)
    assert (stream.sequence, stream.clocks, stream.tenant, stream.content) == (0, (Clock(1, 1, 64, None),), "", None)
    assert (stream.received_ns, stream.ended_ns, stream.correction_ns) == (NOON_NS, NOON_NS, 0)
    assert (len(done.batch), len(done.batch.blocks), done.rejected, done.sender_dropped) == (0, 0, {}, {})


def test_unset_fields_of_an_upload() -> None:
    """An upload of nothing but a file is taken: nothing is known beyond it, methods are to be found from the events."""
    done = admitted_dump(pb.UploadETDumpRequest(etdump=DUMP))
    assert [(block.position, block.method, block.attributes) for block in done.batch.blocks] == [(0, None, ()), (1, None, ())]
    (stream,) = done.batch.streams
    assert (stream.model, stream.ended_ns, stream.clocks) == (ModelRef(), NOON_NS, (Clock(),))
    assert stream.content == hashlib.sha256(DUMP).digest()


@pytest.mark.parametrize(
    ("sent", "kind", "name"),
    [
        (pb.Block(name=b"Default"), BlockKind.LOAD, "Default"),
        (pb.Block(name=b"Execute"), BlockKind.EXECUTE, "Execute"),
        (pb.Block(name=b"warm-up"), BlockKind.OTHER, "warm-up"),
        (pb.Block(kind=pb.BLOCK_KIND_LOAD), BlockKind.LOAD, "Default"),
        (pb.Block(kind=pb.BLOCK_KIND_EXECUTE), BlockKind.EXECUTE, "Execute"),
        (pb.Block(kind=pb.BLOCK_KIND_LOAD, name=b"Execute"), BlockKind.LOAD, "Execute"),
    ],
)
def test_kind_and_name_stand_in_for_each_other(sent: pb.Block, kind: BlockKind, name: str) -> None:
    """An unset kind follows from the name and an unset name from the kind; where both are set, both count."""
    (block,) = admitted(pb.ExportEventsRequest(stream=pb.Stream(), blocks=[sent])).batch.blocks
    assert (block.kind, block.name) == (kind, name)
    assert (block.position, block.method, block.context, block.error, block.run_index, block.part) == (0, *[None] * 5)


def test_zero_is_not_unset_where_it_says_something() -> None:
    """An error of 0 (Ok) and a run index of 0 (the first) are not unset; an index that no span holds is not known."""
    blocks = [pb.Block(kind=2, error=0, run_index=0), pb.Block(kind=2, run_index=2**63)]
    first, second = admitted(pb.ExportEventsRequest(stream=pb.Stream(), blocks=blocks)).batch.blocks
    assert (first.error, first.run_index) == (0, 0)
    assert (second.error, second.run_index) == (None, None)


def test_unset_fields_of_a_clock() -> None:
    """A clock of zeros counts nanoseconds in 64 bits; ticks without a time are no anchor, a time at tick 0 is one."""
    clocks = [pb.Clock(), pb.Clock(anchor_ticks=5), pb.Clock(anchor_unix_ns=NOON_NS, counter_bits=24, denominator=3)]
    (stream,) = admitted(pb.ExportEventsRequest(stream=pb.Stream(clocks=clocks))).batch.streams
    assert stream.clocks == (Clock(1, 1, 64), Clock(1, 1, 64), Clock(1, 3, 24, Anchor(0, NOON_NS)))


def test_an_upload_says_method_and_attributes_of_inferences() -> None:
    """Method and attributes of an upload are those of its Execute blocks; positions count on, modulo 2^64."""
    request = pb.UploadETDumpRequest(etdump=DUMP, method=b"forward", first_position=2**64 - 1)
    request.attributes.add(key=b"threads").value.integer = 4
    load, inference = admitted_dump(request).batch.blocks
    assert (load.position, load.method, load.attributes) == (2**64 - 1, None, ())
    assert (inference.position, inference.method, inference.attributes) == (0, "forward", (("threads", 4),))


def test_a_stream_id_is_derived_from_the_content() -> None:
    """Without a stream id equal requests share a derived one, and any difference gives another: ids are never drawn."""
    request = a_request(delegated("x", 0, 1, 2))
    request.stream.ClearField("stream_id")
    ids = {admitted(request).batch.streams[0].stream_id for _ in range(2)}
    request.blocks[0].position += 1
    ids.add(admitted(request).batch.streams[0].stream_id)
    assert [len(one) for one in ids] == [16, 16]
    request.stream.stream_id = bytes(range(16))
    assert admitted(request).batch.streams[0].stream_id == bytes(range(16))


def test_a_stream_id_of_an_upload_is_derived_from_file_and_sender() -> None:
    """Without a stream id an upload gets one by its file and all that is said of it: of another device it is another stream."""

    def stream_id(etdump: bytes, app: bytes, **more: int) -> bytes:
        request = pb.UploadETDumpRequest(etdump=etdump, **more)  # type: ignore[arg-type]  # numbers only
        request.stream.resource.add(key=b"service.name").value.text = app
        return admitted_dump(request).batch.streams[0].stream_id

    assert stream_id(DUMP, b"a") == stream_id(DUMP, b"a")
    others = [stream_id(DUMP, b"b"), stream_id(DUMP + b"trailing", b"a"), stream_id(DUMP, b"a", ended_at_unix_ns=7)]
    assert len({stream_id(DUMP, b"a"), *others}) == 4


@pytest.mark.parametrize(
    ("model", "asked", "build"),
    [
        (pb.ModelRef(name=b"net", version=b"2"), [("net", "2")], "of net@2"),
        (pb.ModelRef(name=b"net"), [("net", "")], "of net@"),
        (pb.ModelRef(name=b"net", version=b"2", build_id=b"given"), [], "given"),
        (pb.ModelRef(build_id=b"given"), [], "given"),
        (pb.ModelRef(version=b"2"), [], None),
        (pb.ModelRef(), [], None),
    ],
)
def test_a_build_is_bound_at_admission(model: pb.ModelRef, asked: list[tuple[str, str]], build: str | None) -> None:
    """A build id wins over the alias, an alias is asked for once, and without a name nothing is asked."""
    calls: list[tuple[str, str]] = []

    def build_of(name: str, version: str) -> str:
        calls.append((name, version))
        return f"of {name}@{version}"

    assert admitted(pb.ExportEventsRequest(stream=pb.Stream(model=model)), build_of=build_of).batch.streams[0].build == build
    assert calls == asked


@pytest.mark.parametrize(
    ("error_ns", "corrected"),
    [(0, False), (5 * MINUTE_NS, False), (-5 * MINUTE_NS, False), (5 * MINUTE_NS + 1, True), (-5 * MINUTE_NS - 1, True)],
)
def test_a_wall_clock_is_corrected_beyond_the_bound(error_ns: int, *, corrected: bool) -> None:
    """The sender's wall clock is moved by its error, exactly and once for the request, only if that is over the bound."""
    request = a_request()
    anchored_ns = request.stream.clocks[0].anchor_unix_ns = NOON_NS - 60 * MINUTE_NS
    (stream,) = admitted(request, receipt=Receipt(NOON_NS, NOON_NS - error_ns)).batch.streams
    assert stream.correction_ns == (error_ns if corrected else 0)
    assert stream.clocks == (Clock(anchor=Anchor(0, anchored_ns)),)
    upload = pb.UploadETDumpRequest(etdump=DUMP, ended_at_unix_ns=NOON_NS - error_ns - 5)
    (stream,) = admitted_dump(upload, receipt=Receipt(NOON_NS, NOON_NS - error_ns)).batch.streams
    assert stream.ended_ns == NOON_NS - 5 - (0 if corrected else error_ns)


def test_no_word_of_sending_is_no_correction() -> None:
    """Without a time of sending nothing is corrected, however far the anchors are off."""
    request = request_of(batch_of())
    request.stream.clocks[0].anchor_unix_ns = 1
    assert admitted(request, receipt=Receipt(NOON_NS)).batch.streams[0].correction_ns == 0


def test_drops_of_the_sender() -> None:
    """Drops are told by reason, cut to 64 characters and escaped; unset reasons are "unknown"; beyond 16 nothing is read.

    A count is taken up to 2^32: counters are signed on their way out.
    """
    drops = [pb.SenderDrop(reason=b"ring_full", events=3), pb.SenderDrop(events=2**64 - 1), pb.SenderDrop(reason=b"ring_full")]
    drops += [pb.SenderDrop(reason=b"\xff" + b"x" * 99, events=1)]
    request = pb.ExportEventsRequest(stream=pb.Stream(dropped=drops + [pb.SenderDrop(reason=b"%d" % n) for n in range(99)]))
    told = admitted(request).sender_dropped
    assert {reason: told[reason] for reason in list(told)[:3]} == {"ring_full": 3, "unknown": 2**32, "\\xff" + "x" * 60: 1}
    assert len(told) == 15
    assert admitted_dump(pb.UploadETDumpRequest(etdump=DUMP, stream=request.stream)).sender_dropped == told


@pytest.mark.parametrize("key", [b"executorch.method.name", b"executorch.mapping.id", b"error.type", b"code.line.number"])
def test_the_bridges_own_attributes_are_not_taken_from_senders(key: bytes) -> None:
    """A key stands once on a span, and what the bridge says under it is checked: no allow-list lets a sender write it."""
    request = pb.ExportEventsRequest(
        stream=pb.Stream(resource=[an_attribute(key, text=b"x"), an_attribute(b"app.x", text=b"y")])
    )
    assert admitted(request).batch.streams[0].resource == (("app.x", "y"),)


def an_attribute(key: bytes, **value: object) -> pb.Attribute:
    """An attribute."""
    return pb.Attribute(key=key, value=pb.Value(**value))  # type: ignore[arg-type]  # of whichever type the key says


def everything(_key: str, value: AttributeValue) -> AttributeValue:
    """Keeps all as it is."""
    return value


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ([an_attribute(b"k", text=b"v")], (("k", "v"),)),
        ([an_attribute(b"k", text=b"")], (("k", ""),)),
        ([an_attribute(b"k", text=b"a\xffb")], (("k", "a\\xffb"),)),
        ([an_attribute(b"k\xff", text=b"v")], (("k\\xff", "v"),)),
        ([an_attribute(b"k", integer=-(2**63))], (("k", -(2**63)),)),
        ([an_attribute(b"k", flag=False)], (("k", False),)),
        ([an_attribute(b"k", number=1.5)], (("k", 1.5),)),
        ([an_attribute(b"k", number=math.nan)], ()),
        ([an_attribute(b"k", number=math.inf)], ()),
        ([an_attribute(b"k", number=-math.inf)], ()),
        ([pb.Attribute(key=b"k")], ()),
        ([pb.Attribute(key=b"k", value=pb.Value())], ()),
        ([an_attribute(b"", text=b"v")], ()),
        ([an_attribute(b"k" * 256, flag=True)], (("k" * 256, True),)),
        ([an_attribute(b"k" * 257, flag=True)], ()),
        ([an_attribute(b"k", integer=1), an_attribute(b"k", integer=2)], (("k", 1),)),
        ([an_attribute(b"k", number=math.nan), an_attribute(b"k", integer=2)], (("k", 2),)),
        ([an_attribute(b"%d" % n, flag=True) for n in range(200)], tuple((str(n), True) for n in range(128))),
    ],
)
def test_an_attribute_that_cannot_be_kept_is_left_out(sent: list[pb.Attribute], kept: Attributes) -> None:
    """Attributes keep their type and order; what has no key, value or finite number goes alone; of doubles the first stays."""
    found = attributes_of(sent, everything)
    assert found == kept
    assert [type(value) for _, value in found] == [type(value) for _, value in kept]


def test_only_allowed_attributes_stay() -> None:
    """Resource and inference have their own lists; by default what names one device or installation is left out."""
    kept = [b"service.name", b"service.version", b"os.name", b"device.model.identifier", b"device.manufacturer"]
    gone = [b"device.id", b"host.id", b"host.name", b"app.installation.id", b"user.id", b"service", b"hw.serial_number"]
    state = [b"executorch.inference.batch", b"device.thermal.state", b"thread.count"]
    request = pb.ExportEventsRequest(stream=pb.Stream(), blocks=[pb.Block(kind=2)])
    for key in kept + gone + state:
        request.stream.resource.append(an_attribute(key, flag=True))
        request.blocks[0].attributes.append(an_attribute(key, flag=True))
    rules = Rules(allow(RESOURCE_KEYS), allow(INFERENCE_KEYS), 0)
    batch = admitted(request, rules=rules).batch
    assert [key.encode() for key, _ in batch.streams[0].resource] == kept
    assert [key.encode() for key, _ in batch.blocks[0].attributes] == state


@given(st.integers(4090, 4096), st.text(st.characters(exclude_categories=["Cs"]), min_size=10, max_size=20))
def test_text_is_cut_at_a_character(before: int, text: str) -> None:
    """Text is kept to 4,096 bytes, and a character that does not fit whole is left out rather than torn."""
    long = "x" * before + text
    kept = text_of(long.encode())
    assert long.startswith(kept)
    assert 4093 <= len(kept.encode()) <= 4096


@given(st.binary(max_size=5000))
def test_text_is_text(data: bytes) -> None:
    """Whatever bytes come, text can be written as UTF-8, and what was not UTF-8 can be read from its escapes."""
    text = text_of(data)
    assert text.encode().decode() == text
    if len(data) <= 4096:
        assert text == data.decode("utf-8", "backslashreplace")


@pytest.mark.parametrize("read", [lambda path: path.read_bytes(), lambda path: path.read_bytes() + b"older dump"])
def test_the_content_of_an_upload_names_it(read: Callable[[Path], bytes], fixtures: Path) -> None:
    """The SHA-256 of the very bytes that were sent stands in the stream: it is the request's part of the trace ids."""
    data = read(fixtures / "xnnpack" / "run.etdp")
    done = admitted_dump(pb.UploadETDumpRequest(etdump=data), rules=ANYTHING)
    assert done.batch.streams[0].content == hashlib.sha256(data).digest()
    assert len(done.batch) > 0
