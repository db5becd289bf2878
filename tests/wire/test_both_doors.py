"""The two doors are one: what gRPC takes or refuses, HTTP takes or refuses, in the same words and under the same counters."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import grpc
import httpx
import pytest
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status
from grpc_status import rpc_status
from support.batches import differences, timeless
from support.http import DUMP
from support.mappings import mapping_of
from support.requests import a_request
from support.scenes import delegated

from otel_bridge.mapping.source import write_file
from otel_bridge.v1 import mapping_pb2 as mp
from otel_bridge.v1 import profiling_pb2 as pb
from otel_bridge.wire.status import CODES

PROFILING, MAPPING = "/otel_bridge.v1.ProfilingService/", "/otel_bridge.v1.MappingService/"
LIMIT = 100_000


@dataclass(frozen=True)
class Row:
    """One request, as each door takes it."""

    method: str
    message: Message | bytes
    answer: type[Message]
    verb: str
    path: str
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def rpc(self) -> str:
        """Name of the gRPC method."""
        return (PROFILING if self.method in {"ExportEvents", "UploadETDump"} else MAPPING) + self.method


def events(message: pb.ExportEventsRequest | bytes) -> Row:
    """Columns."""
    body = message if isinstance(message, bytes) else message.SerializeToString()
    return Row("ExportEvents", message, pb.ExportEventsResponse, "POST", "/v1/events", body)


def dump(etdump: bytes, query: str = "", **fields: Any) -> Row:
    """A file."""
    message = pb.UploadETDumpRequest(etdump=etdump, **fields)
    return Row("UploadETDump", message, pb.UploadETDumpResponse, "POST", f"/v1/etdump{query}", etdump)


def put(handles: int, build: str, alias: tuple[str, str] = ("", ""), *, replace: bool = False, as_json: bool = False) -> Row:
    """A mapping for a build, whose handles tell it from others."""
    file = mp.MappingFile(mapping=mapping_of({1: [handles]}), build_id=build, name=alias[0], version=alias[1])
    message = mp.PutMappingRequest(file=file, replace=replace)
    document = write_file(mp.MappingFile(mapping=file.mapping), ".json" if as_json else "")
    query = f"?replace={str(replace).lower()}" + (f"&model={quote('@'.join(alias))}" if any(alias) else "")
    path = f"/v1/mappings/{quote(build, safe='')}" if build else "/v1/mappings"
    return Row("PutMapping", message, mp.PutMappingResponse, "PUT", path + query, document)


def page(size: int, token: str = "", method: str = "ListMappings", path: str = "/v1/mappings") -> Row:
    """A page of a list."""
    kinds = {"ListMappings": (mp.ListMappingsRequest, mp.ListMappingsResponse)}
    asked, answer = kinds.get(method, (mp.ListMissingRequest, mp.ListMissingResponse))
    query = f"{path}?page_size={size}&page_token={quote(token)}"
    return Row(method, asked(page_size=size, page_token=token), answer, "GET", query)


def get(ref: str) -> Row:
    """A document."""
    return Row("GetMapping", mp.GetMappingRequest(ref=ref), mp.GetMappingResponse, "GET", f"/v1/mappings/{quote(ref, safe='')}")


def delete(ref: str) -> Row:
    """Forget a build."""
    path = f"/v1/mappings/{quote(ref, safe='')}"
    return Row("DeleteMapping", mp.DeleteMappingRequest(ref=ref), mp.DeleteMappingResponse, "DELETE", path)


def alias(name: str, version: str, ref: str) -> Row:
    """Move an alias."""
    message = mp.SetAliasRequest(name=name, version=version, ref=ref)
    path = f"/v1/aliases/{quote(f'{name}@{version}', safe='')}?ref={quote(ref, safe='')}"
    return Row("SetAlias", message, mp.SetAliasResponse, "PUT", path)


def told_of(**stream: Any) -> pb.ExportEventsRequest:
    """Columns with this said of their stream."""
    request = a_request(delegated("x", 0, 1, 2))
    request.stream.MergeFrom(pb.Stream(**stream))
    return request


WALK = [
    events(a_request(delegated("x", 0, 1, 2), delegated("", 0, 1, 2))),
    events(pb.ExportEventsRequest(stream=pb.Stream())),
    events(pb.ExportEventsRequest()),
    events(b"\xff\xff"),
    events(told_of(model=pb.ModelRef(build_id=b"x" * 129))),
    events(told_of(clocks=[pb.Clock(counter_bits=65)])),
    dump(DUMP),
    dump(DUMP, "?method=forward&first_position=7", method=b"forward", first_position=7),
    dump(b"no dump"),
    dump(DUMP[:-9]),
    dump(DUMP, "?stream=" + "00" * 16, stream=pb.Stream(stream_id=bytes(16))),
    page(10),
    put(1, "b/1", ("net", "1")),
    put(1, "b/1", ("net", "1"), as_json=True),
    put(2, "b/1"),
    put(2, "b/1", replace=True),
    put(3, ""),
    put(3, "é b", ("net", "ü")),
    put(3, "x" * 129),
    put(3, "b2", ("", "1")),
    page(1),
    page(1, "b/1"),
    page(1001),
    get("b/1"),
    get("net@1"),
    get("sha256:00000000"),
    alias("net", "latest", "b/1"),
    alias("net", "latest", "é b"),
    alias("net", "latest", "nowhere"),
    alias("", "1", "b/1"),
    page(10),
    page(1, "", "ListMissing", "/v1/missing"),
    page(1, "a@1", "ListMissing", "/v1/missing"),
    page(2, "a@1", "ListMissing", "/v1/missing"),
    page(0, "z", "ListMissing", "/v1/missing"),
    page(5000, "", "ListMissing", "/v1/missing"),
    delete("net@1"),
    delete("net@1"),
    delete("é b"),
    page(10),
]


MISSING = [mp.MissingMapping(ref=ref, devices=2, first_seen_unix_ns=7, parked_events=9) for ref in ("a@1", "b", "ü")]


@dataclass
class Outcome:
    """What came of a request: an answer, or a code with its reason, message and whether there is a wait."""

    answer: dict[str, Any] | None = None
    code: str = "OK"
    reason: str = ""
    message: str = ""
    waits: bool = False


async def over_grpc(channel: grpc.aio.Channel, row: Row) -> Outcome:
    """The outcome of a row by gRPC."""
    body = row.message if isinstance(row.message, bytes) else row.message.SerializeToString()
    try:
        answer = row.answer.FromString(await channel.unary_unary(row.rpc)(body))
    except grpc.aio.AioRpcError as error:
        return of_status(rpc_status.from_call(error))
    return Outcome(told(answer))


def told(answer: Message) -> dict[str, Any]:
    """An answer without what differs with the moment; of a mapping its document, which is all that HTTP gives."""
    if isinstance(answer, mp.GetMappingResponse):
        return MessageToDict(mp.MappingFile(mapping=answer.mapping, build_id=answer.info.build_id))
    for info in answer.mappings if isinstance(answer, mp.ListMappingsResponse) else ():
        info.created_unix_ns = 0
    return MessageToDict(answer)


async def over_http(client: httpx.AsyncClient, row: Row) -> Outcome:
    """The outcome of a row by HTTP, in the terms of gRPC."""
    response = await client.request(row.verb, row.path, content=row.body, headers=row.headers)
    fits = {code.grpc.name for code in CODES.values() if code.http == response.status_code}
    if response.is_success:
        return Outcome(told(of_body(row, response)))
    if response.headers["content-type"] == "application/x-protobuf":
        outcome = of_status(Status.FromString(response.content))
    else:
        fault = response.json()
        outcome = Outcome(None, fault["code"], fault["reason"], fault["message"], "retry-after" in response.headers)
    assert outcome.code in fits
    assert outcome.waits == ("retry-after" in response.headers)
    return outcome


def of_body(row: Row, response: httpx.Response) -> Message:
    """The body of an answer as the message that it stands for."""
    if row.verb == "POST" and row.method == "ExportEvents":
        assert response.headers["content-type"] == "application/x-protobuf"
        return row.answer.FromString(response.content)
    value = response.json()
    if row.method == "GetMapping":
        file = ParseDict(value, mp.MappingFile())
        return mp.GetMappingResponse(mapping=file.mapping, info=mp.MappingInfo(build_id=file.build_id))
    if row.method == "UploadETDump":
        value["rejected"] = [{"reason": reason, "events": count} for reason, count in value["rejected"].items()]
    return ParseDict(value, row.answer())


def of_status(status: Status) -> Outcome:
    """A `google.rpc.Status` as an outcome."""
    names = {code.value[0]: code.name for code in grpc.StatusCode}
    outcome = Outcome(None, names[status.code], "internal", status.message)
    for packed in status.details:
        info, retry = ErrorInfo(), RetryInfo()
        if packed.Unpack(info):
            outcome.reason = info.reason.lower()
        outcome.waits |= packed.Unpack(retry)
    return outcome


def test_the_doors_answer_alike(opened: Callable[..., Any], run: Callable[..., Any]) -> None:
    """Good and bad requests, one after the other, have the same outcomes by either door: answer or error, row by row."""

    async def main() -> None:
        async with opened(limit_bytes=LIMIT, missing=MISSING) as one, opened(limit_bytes=LIMIT, missing=MISSING) as other:
            for index, row in enumerate(WALK):
                expected = await over_grpc(one.channel, row)
                assert await over_http(other.client, row) == expected, f"{index}: {row.verb} {row.path}"
            first, second = (each.tally for each in (one, other))
            assert (first.taken, first.rejected, first.outcomes) == (second.taken, second.rejected, second.outcomes)
            kept = [[record.batch for record in await doors.outlet.read(1000)] for doors in (one, other)]
            assert len(kept[0]) == len(kept[1]) == 3
            for left, right in zip(*kept, strict=True):
                assert differences(timeless(left), timeless(right)) == []

    run(main())


def test_the_walk_shows_all_rows_of_the_table(opened: Callable[..., Any], run: Callable[..., Any]) -> None:
    """The requests above meet every code that a peer can cause without filling the spool or breaking the bridge."""

    async def main() -> set[str]:
        async with opened(limit_bytes=LIMIT) as doors:
            return {(await over_grpc(doors.channel, row)).code for row in WALK}

    assert run(main()) == {"OK", "INVALID_ARGUMENT", "ALREADY_EXISTS", "NOT_FOUND"}


GOOD = a_request(delegated("x", 0, 1, 2))
NAMED = told_of(model=pb.ModelRef(name=b"net"))


@pytest.mark.parametrize(
    ("row", "broken"),
    [(events(GOOD), events(NAMED)), (dump(DUMP), dump(DUMP, "?model=net", stream=pb.Stream(model=pb.ModelRef(name=b"net"))))],
    ids=["events", "etdump"],
)
def test_no_room_is_said_alike(row: Row, broken: Row, opened: Callable[..., Any], run: Callable[..., Any]) -> None:
    """A full spool, a closed one and a fault inside have the same outcomes by either door."""

    def build_of(_name: str, _version: str) -> str | None:
        raise RuntimeError("secret")

    async def main() -> list[Outcome]:
        outcomes = []
        async with opened(spool_bytes=1, duplicates=0) as one, opened(spool_bytes=1, duplicates=0) as other:
            for _ in range(3):
                outcomes.append(await over_grpc(one.channel, row))
                assert await over_http(other.client, row) == outcomes[-1]
                if outcomes[-1].waits:
                    one.spool.close()
                    other.spool.close()
            assert one.tally.outcomes == other.tally.outcomes == {"ok": 1, "spool_full": 1, "draining": 1}
        async with opened(build_of=build_of) as one, opened(build_of=build_of) as other:
            outcomes.append(await over_grpc(one.channel, broken))
            assert await over_http(other.client, broken) == outcomes[-1]
        return outcomes

    assert [outcome.code for outcome in run(main())] == ["OK", "UNAVAILABLE", "UNAVAILABLE", "INTERNAL"]
