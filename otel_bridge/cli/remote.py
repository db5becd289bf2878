"""Calls of a running bridge, with its errors as one clear line."""

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TypeVar, cast

import click
import grpc
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from otel_bridge.telemetry.logs import escape
from otel_bridge.v1 import mapping_pb2_grpc, profiling_pb2_grpc
from otel_bridge.wire.intake import SENT_KEY

CALL_TIMEOUT_S = 60.0
_PATIENCE = 5

T = TypeVar("T")

server_option = click.option(
    "--server", default="127.0.0.1:4417", show_default=True, metavar="ADDR", help="gRPC address of the bridge."
)


@contextmanager
def channel_to(server: str) -> Generator[grpc.Channel, None, None]:
    """A channel to a bridge; an error of a call inside the block ends the command with its message."""
    limit = 2**31 - 1  # the bridge has its own limit and says so
    options = [("grpc.max_send_message_length", limit), ("grpc.max_receive_message_length", limit)]
    with grpc.insecure_channel(server, options) as channel:
        try:
            yield channel
        except grpc.RpcError as error:
            raise click.ClickException(explain(server, error)) from error


def profiling(channel: grpc.Channel) -> profiling_pb2_grpc.ProfilingServiceStub:
    """Stub of the profiling service."""
    return profiling_pb2_grpc.ProfilingServiceStub(channel)


def mappings(channel: grpc.Channel) -> mapping_pb2_grpc.MappingServiceStub:
    """Stub of the mapping service."""
    return mapping_pb2_grpc.MappingServiceStub(channel)


def sent_now() -> tuple[tuple[str, str], ...]:
    """Metadata that tells when this attempt is sent."""
    return ((SENT_KEY, str(time.time_ns())),)


def patiently(call: Callable[[], T], sleep: Callable[[float], None] = time.sleep) -> T:
    """The call's answer; where the bridge asks for patience (its spool is full), the call is made again, up to five times."""
    for _ in range(_PATIENCE):
        try:
            return call()
        except grpc.RpcError as error:
            wait_s = _retry_delay_s(error)
            if wait_s is None:
                raise
            sleep(wait_s)
    return call()


def _retry_delay_s(error: grpc.RpcError) -> float | None:
    status = rpc_status.from_call(cast("grpc.Call", error))  # an error of a call is one
    for detail in status.details if status is not None else ():
        info = error_details_pb2.RetryInfo()
        if detail.Unpack(info):
            return float(info.retry_delay.seconds + info.retry_delay.nanos / 1e9)
    return None


def explain(server: str, error: grpc.RpcError) -> str:
    """An error of a call, on one line."""
    code, details = error.code(), escape(error.details() or "")
    if code is grpc.StatusCode.UNAVAILABLE and any(word in details.lower() for word in ("connect", "resol")):
        return f"no bridge answers at {server}: start one with `otel-bridge serve`, or name another with --server"
    return f"the bridge at {server} answered {code.name}: {details}"
