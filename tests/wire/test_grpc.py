"""The gRPC door, over a real channel."""

from collections.abc import Callable
from typing import Any, cast

import grpc
import pytest
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_status import rpc_status
from support.mappings import mapping_of
from support.requests import a_request, is_clear
from support.scenes import delegated

from otel_bridge.errors import ConfigError
from otel_bridge.v1 import mapping_pb2, mapping_pb2_grpc, profiling_pb2_grpc
from otel_bridge.wire.call import Arrivals
from otel_bridge.wire.connections import ConnectionLimits
from otel_bridge.wire.grpc_door import GrpcDoor
from otel_bridge.wire.http_door import HttpDoor
from otel_bridge.wire.intake import SENT_KEY
from otel_bridge.wire.servicers import MAPPING, PROFILING

EXPORT = f"/{PROFILING}/ExportEvents"
UPLOAD = f"/{PROFILING}/UploadETDump"


def mappings(channel: grpc.aio.Channel) -> "mapping_pb2_grpc.MappingServiceAsyncStub":
    """The stub, by its type for asynchronous channels."""
    return cast("mapping_pb2_grpc.MappingServiceAsyncStub", mapping_pb2_grpc.MappingServiceStub(channel))


def profiling(channel: grpc.aio.Channel) -> "profiling_pb2_grpc.ProfilingServiceAsyncStub":
    """The stub, by its type for asynchronous channels."""
    return cast("profiling_pb2_grpc.ProfilingServiceAsyncStub", profiling_pb2_grpc.ProfilingServiceStub(channel))


async def refused(call: Any) -> grpc.aio.AioRpcError:
    """The error of a call that must fail; its message is clear."""
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await call
    assert is_clear(raised.value.details() or "")
    return raised.value


def details_of(error: grpc.aio.AioRpcError) -> tuple[str | None, float | None]:
    """Reason and seconds to wait, from `grpc-status-details-bin`."""
    reason = wait_s = None
    status = rpc_status.from_call(error)
    for packed in status.details if status else ():
        info, retry = ErrorInfo(), RetryInfo()
        if packed.Unpack(info):
            reason = info.reason
        if packed.Unpack(retry):
            wait_s = retry.retry_delay.seconds + retry.retry_delay.nanos / 1e9
    return reason, wait_s


def test_events_are_taken(opened: Callable[..., Any], run: Callable[..., Any]) -> None:
    """An answer tells what is in the spool and what was rejected, by reason; the time of sending is read beside the body."""

    async def main() -> None:
        async with opened() as doors:
            request = a_request(delegated("x", 0, 1, 2), delegated("", 0, 1, 2), delegated("", 0, 1, 2))
            answer = await profiling(doors.channel).ExportEvents(request, metadata=((SENT_KEY, "1"),))
            assert (answer.accepted, {each.reason: each.events for each in answer.rejected}) == (1, {"unnamed": 2})
            assert answer.first_rejection == "identifiers[1], used by event 1: has 0 bytes; 1 to 4096 are allowed"
            stream = (await doors.batch()).streams[0]
            assert stream.correction_ns == stream.received_ns - 1
            assert (doors.tally.taken, doors.tally.outcomes) == (1, {"ok": 1})

    run(main())


@pytest.mark.parametrize(
    ("method", "body", "told"),
    [
        (EXPORT, b"\xff\xff", "2 bytes is no otel_bridge.v1.ExportEventsRequest"),
        (UPLOAD, b"\x0a\x05x", "3 bytes is no otel_bridge.v1.UploadETDumpRequest"),
        (f"/{MAPPING}/PutMapping", b"\x0a\x03\x12\x01\xff", "5 bytes is no otel_bridge.v1.PutMappingRequest"),
        (f"/{MAPPING}/GetMapping", b"\x0a\x01\xff", "3 bytes is no otel_bridge.v1.GetMappingRequest"),
        (f"/{MAPPING}/ListMappings", b"\xff", "1 bytes is no otel_bridge.v1.ListMappingsRequest"),
        (f"/{MAPPING}/DeleteMapping", b"\xff", "1 bytes is no otel_bridge.v1.DeleteMappingRequest"),
        (f"/{MAPPING}/SetAlias", b"\xff", "1 bytes is no otel_bridge.v1.SetAliasRequest"),
    ],
)
def test_an_undecodable_request(
    method: str, body: bytes, told: str, opened: Callable[..., Any], run: Callable[..., Any]
) -> None:
    """Bytes that are no request of the method are INVALID_ARGUMENT, named as what they should be: the fault is the sender's."""

    async def main() -> None:
        async with opened() as doors:
            error = await refused(doors.channel.unary_unary(method)(body))
            assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert told in (error.details() or "")
            assert details_of(error) == ("UNDECODABLE", None)
            assert doors.tally.outcomes == {"undecodable": 1}

    run(main())


def test_a_full_spool(opened: Callable[..., Any], run: Callable[..., Any]) -> None:
    """When the spool is full the sender is told UNAVAILABLE and when to come back; once there is room the request is taken."""

    async def main() -> None:
        async with opened(spool_bytes=1, duplicates=0) as doors:
            request = a_request(delegated("x", 0, 1, 2))
            await profiling(doors.channel).ExportEvents(request)
            error = await refused(profiling(doors.channel).ExportEvents(request))
            assert error.code() is grpc.StatusCode.UNAVAILABLE
            reason, wait_s = details_of(error)
            assert reason == "SPOOL_FULL"
            assert wait_s is not None
            assert 1.0 <= wait_s <= 1.5
            await doors.take()
            assert (await profiling(doors.channel).ExportEvents(request)).accepted == 1
            doors.spool.close()
            reason, wait_s = details_of(await refused(profiling(doors.channel).ExportEvents(request)))
            assert reason == "DRAINING"
            assert wait_s is not None
            assert doors.tally.outcomes == {"ok": 2, "spool_full": 1, "draining": 1}

    run(main())


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
def test_a_request_over_the_limit(compression: grpc.Compression, opened: Callable[..., Any], run: Callable[..., Any]) -> None:
    """A request over the limit, counted after decompression, is RESOURCE_EXHAUSTED; the next one is taken."""

    async def main() -> None:
        async with opened(limit_bytes=100_000) as doors:
            request = a_request(delegated("x", 0, 1, 2))
            request.metadata.append(bytes(50_000_000 if compression is grpc.Compression.Gzip else 100_000))
            error = await refused(profiling(doors.channel).ExportEvents(request, compression=compression))
            assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert details_of(error) == (None, None)
            del request.metadata[:]
            assert (await profiling(doors.channel).ExportEvents(request, compression=compression)).accepted == 1

    run(main())


def test_a_fault_inside(opened: Callable[..., Any], run: Callable[..., Any], caplog: pytest.LogCaptureFixture) -> None:
    """A fault of the bridge is INTERNAL without its particulars, which go to the log; the next request is served."""

    def build_of(_tenant: str, _name: str, version: str) -> str | None:
        if version == "bad":
            raise RuntimeError("secret")
        return None

    async def main() -> None:
        async with opened(build_of=build_of) as doors:
            request = a_request(delegated("x", 0, 1, 2))
            request.stream.model.version = b"bad"
            error = await refused(profiling(doors.channel).ExportEvents(request))
            assert (error.code(), details_of(error)) == (grpc.StatusCode.INTERNAL, (None, None))
            assert "secret" not in (error.details() or "")
            request.stream.model.version = b"good"
            assert (await profiling(doors.channel).ExportEvents(request)).accepted == 1

    run(main())
    assert "secret" in caplog.text


def test_mappings(opened: Callable[..., Any], run: Callable[..., Any]) -> None:
    """The life of mappings: put, put again, refuse another for the build, move an alias, list by pages, delete, not found."""

    async def main() -> None:
        async with opened() as doors:
            stub = mappings(doors.channel)
            file = mapping_pb2.MappingFile(mapping=mapping_of({1: [1]}), build_id="b1", name="net", version="1")
            first = await stub.PutMapping(mapping_pb2.PutMappingRequest(file=file))
            again = await stub.PutMapping(mapping_pb2.PutMappingRequest(file=file))
            assert (first.created, again.created, again.digest) == (True, False, first.digest)
            file.mapping.CopyFrom(mapping_of({1: [2]}))
            error = await refused(stub.PutMapping(mapping_pb2.PutMappingRequest(file=file)))
            assert (error.code(), details_of(error)[0]) == (grpc.StatusCode.ALREADY_EXISTS, "MAPPING_CONFLICT")
            assert first.digest in (error.details() or "")
            assert (await stub.PutMapping(mapping_pb2.PutMappingRequest(file=file, replace=True))).created
            file.build_id = "b2"
            await stub.PutMapping(mapping_pb2.PutMappingRequest(file=file))
            done = await stub.SetAlias(mapping_pb2.SetAliasRequest(name="net", version="1", ref="b1"))
            assert (done.build_id, done.previous_build_id) == ("b1", "b2")
            done = await stub.SetAlias(mapping_pb2.SetAliasRequest(name="new", ref="b1"))
            assert done.previous_build_id == ""
            found = await stub.GetMapping(mapping_pb2.GetMappingRequest(ref="net@1"))
            assert (found.info.build_id, list(found.info.aliases)) == ("b1", ["net@1", "new@"])
            page = await stub.ListMappings(mapping_pb2.ListMappingsRequest(page_size=1))
            rest = await stub.ListMappings(mapping_pb2.ListMappingsRequest(page_size=1, page_token=page.next_page_token))
            assert [info.build_id for info in (*page.mappings, *rest.mappings)] == ["b1", "b2"]
            assert (page.next_page_token != "", rest.next_page_token) == (True, "")
            assert (await stub.DeleteMapping(mapping_pb2.DeleteMappingRequest(ref="net@1"))).build_id == "b1"
            error = await refused(stub.GetMapping(mapping_pb2.GetMappingRequest(ref="net@1")))
            assert (error.code(), details_of(error)[0]) == (grpc.StatusCode.NOT_FOUND, "MAPPING_NOT_FOUND")

    run(main())


@pytest.mark.parametrize(
    ("method", "request_", "told"),
    [
        ("PutMapping", mapping_pb2.PutMappingRequest(), "mapping"),
        ("PutMapping", mapping_pb2.PutMappingRequest(file=mapping_pb2.MappingFile(build_id="b")), "mapping"),
        ("ListMappings", mapping_pb2.ListMappingsRequest(page_size=1001), "page_size: is 1001; at most 1000"),
        ("SetAlias", mapping_pb2.SetAliasRequest(ref="b"), "name"),
        ("SetAlias", mapping_pb2.SetAliasRequest(name="\x1b[31m" * 9999, ref="b"), "name"),
        ("GetMapping", mapping_pb2.GetMappingRequest(), "mapping"),
        ("GetMapping", mapping_pb2.GetMappingRequest(ref="\x1b[31m" * 9999), "mapping"),
        ("GetMapping", mapping_pb2.GetMappingRequest(ref="é@" * 9999), "mapping"),
        ("DeleteMapping", mapping_pb2.DeleteMappingRequest(ref="sha256:" + "0" * 8), "not found"),
    ],
)
def test_bad_words_about_mappings(
    method: str, request_: Any, told: str, opened: Callable[..., Any], run: Callable[..., Any]
) -> None:
    """What cannot be obeyed is refused with its field, in a message that fits into trailers however long the input was."""

    async def main() -> None:
        async with opened() as doors:
            await mappings(doors.channel).PutMapping(
                mapping_pb2.PutMappingRequest(file=mapping_pb2.MappingFile(mapping=mapping_of({1: [1]}), build_id="b"))
            )
            error = await refused(getattr(mappings(doors.channel), method)(request_))
            assert error.code() in {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND}
            assert told in (error.details() or "")
            assert details_of(error)[1] is None

    run(main())


def test_health_turns_before_the_door_does(opened: Callable[..., Any], run: Callable[..., Any]) -> None:
    """Health says what the door is told, for the whole and each service; turning away is said while requests are taken."""

    async def main() -> None:
        async with opened() as doors:
            health = health_pb2_grpc.HealthStub(doors.channel)
            ask = [health_pb2.HealthCheckRequest(service=service) for service in ("", PROFILING, MAPPING)]
            for is_ready in (False, True):
                if is_ready:
                    await doors.grpc.tell(is_ready=True)
                expected = health_pb2.HealthCheckResponse.SERVING if is_ready else health_pb2.HealthCheckResponse.NOT_SERVING
                assert [(await health.Check(each)).status for each in ask] == [expected] * 3
            with pytest.raises(grpc.aio.AioRpcError, match="NOT_FOUND"):
                await health.Check(health_pb2.HealthCheckRequest(service="nobody"))
            await doors.grpc.turn_away()
            assert [(await health.Check(each)).status for each in ask] == [health_pb2.HealthCheckResponse.NOT_SERVING] * 3
            assert (await profiling(doors.channel).ExportEvents(a_request(delegated("x", 0, 1, 2)))).accepted == 1

    run(main())


def test_a_port_in_use(opened: Callable[..., Any], run: Callable[..., Any]) -> None:
    """A second bridge on a port is refused in the words of the settings, by both doors."""

    async def main() -> None:
        async with opened() as doors:
            limits = ConnectionLimits()
            twins = {
                "grpc_address": GrpcDoor((), 4096, limits, Arrivals(1, doors.turnstile, doors.tally.request)),
                "http_address": HttpDoor(doors.app, 1, limits, doors.tally.turned_away),
            }
            for door, (setting, twin) in zip((doors.grpc, doors.http), twins.items(), strict=True):
                address = door.address
                with pytest.raises(ConfigError, match=rf"^server\.{setting} \({address}\) cannot be listened on: "):
                    twin.bind(address)

    run(main())
