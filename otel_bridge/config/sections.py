"""The sections of the configuration that have no file of their own. Each setting is declared once."""

from pathlib import Path
from typing import Annotated, Literal

from otel_bridge.config.setting import Number, Section, setting
from otel_bridge.config.values import (
    Address,
    AllowList,
    Converters,
    DataDirectory,
    LowerCase,
    Parsers,
    ReadableFile,
)

MIB = 1 << 20
_LARGEST_MESSAGE_BYTES = (1 << 31) - 1  # gRPC counts a message's length in an int32

MAX_WORKERS = 256

RESOURCE_KEYS = (
    "service.*",
    "!service.instance.id",
    "app.*",
    "!app.installation.id",
    "os.*",
    "android.os.api_level",
    "device.manufacturer",
    "device.model.*",
    "host.arch",
    "process.runtime.*",
    "deployment.environment.name",
    "telemetry.*",
)
"""Which software, on which kind of hardware. Nothing that tells one device from another: no device.id, host.id or host.name,
and no service.instance.id, which an app draws once for an installation or a start."""

INFERENCE_KEYS = (
    "executorch.inference.*",
    "device.thermal.*",
    "device.power.*",
    "device.battery.*",
    "thread.*",
)
"""The state a device was in. Not hw.*: it holds hw.id and hw.serial_number."""


class ServerConfig(Section):
    """Where the bridge listens and what it keeps."""

    grpc_address: Address = setting(
        "127.0.0.1:4417", "Address of the gRPC door.", rule="HOST:PORT or [IPV6]:PORT; port 0 is any free one"
    )
    http_address: Address = setting(
        "127.0.0.1:4418",
        "Address of the HTTP door, health and metrics.",
        rule="HOST:PORT or [IPV6]:PORT; port 0 is any free one",
    )
    tls_certificate: ReadableFile = setting(
        None,
        "PEM file of this bridge's certificate chain, with which both doors speak TLS; read again when it changes.",
        rule="a file that can be read; needs tls_key",
    )
    tls_key: ReadableFile = setting(
        None, "PEM file of its private key, not encrypted.", rule="a file that can be read; needs tls_certificate"
    )
    tls_client_ca: ReadableFile = setting(
        None,
        "PEM file of the authorities that vouch for clients, who must then show a certificate.",
        rule="a file that can be read; needs tls_certificate",
    )
    insecure: bool = setting(
        False, "Listen on other addresses than loopback even without TLS and auth, because something in front has both."
    )
    max_request_bytes: int = setting(
        64 * MIB,
        "Largest request that is taken, after decompression; OTLP recommends 64 MiB.",
        unit="bytes",
        least=4096,
        most=_LARGEST_MESSAGE_BYTES,
    )
    read_timeout_s: Number = setting(
        30.0, "How long the HTTP door waits for the next bytes of a body.", unit="seconds", above=0
    )
    drain_s: Number = setting(10.0, "How long a stop waits for accepted events to leave.", unit="seconds", least=0)
    turn_away_s: Number = setting(
        0.0,
        "How long a stop goes on taking requests after health and /readyz have turned, so that balancers can notice.",
        unit="seconds",
        least=0,
    )
    ready_needs_egress: bool = setting(
        False,
        "Whether health and /readyz say no while a back end is away; without it, events are taken while there is room.",
    )
    workers: int = setting(
        1,
        "Processes that share the doors, each with a spool of its own; more than one only on Linux. Bounds hold for each.",
        unit="processes",
        least=1,
        most=MAX_WORKERS,
    )
    data_dir: DataDirectory = setting(
        Path("otel-bridge-data"),
        'Directory of mappings and other state, made if missing, relative to where the bridge starts; with ":memory:" nothing '
        "outlives the bridge.",
        rule='a path, or ":memory:"',
    )


class AdmissionConfig(Section):
    """What is believed of what devices say. In lists of keys, `prefix.*` stands for every key below it and `!` takes away."""

    resource_keys: AllowList = setting(
        RESOURCE_KEYS,
        "Resource attributes that are kept; hardware and installation ids are not among them.",
        rule="keys, PREFIX.* or !KEY",
    )
    inference_keys: AllowList = setting(
        INFERENCE_KEYS,
        "Attributes of an inference that are kept, under the names the sender gives.",
        rule="keys, PREFIX.* or !KEY",
    )
    max_clock_error_s: Number = setting(
        300.0,
        "A device's wall clock is corrected only if it is wrong by more than this, and no event may lie further in the future.",
        unit="seconds",
        least=0,
    )


class ClockConfig(Section):
    """How the times of delegates are read, where their ticks are no clock that the bridge knows."""

    converters: Converters = setting(
        (),
        "Time scale converters as ExecuTorch's Inspector takes them, for one backend or all: converter(event_name, time) gives "
        "milliseconds; with three parameters converter(backend, identifier, ticks) gives nanoseconds.",
        rule="[BACKEND=]module:function[@UNIT], UNIT one of ns, us, ms, s",
    )


class SpoolConfig(Section):
    """Where accepted events wait: in server.data_dir, so that they outlive the bridge, or in memory."""

    durability: Annotated[Literal["full", "normal", "memory"], LowerCase] = setting(
        "full",
        "What accepted events survive: a power cut; the end of the process, whatever ends it; or nothing, as with data_dir "
        '":memory:".',
    )
    max_bytes: int = setting(
        256 * MIB, "Events that wait; when full, senders are told to come back later.", unit="bytes", least=MIB
    )
    memory_bytes: int = setting(
        64 * MIB, "Of these, what is kept in memory too; what comes when that is full is read from disk.", unit="bytes", least=0
    )
    max_age_s: Number = setting(
        7 * 86_400.0,
        "Events that have waited longer for their turn are dropped; not with durability memory.",
        unit="seconds",
        above=0,
    )


class ParkingConfig(Section):
    """Events whose build or alias has no mapping yet. At a bound they go on without one, as `no_mapping`."""

    policy: Annotated[Literal["park", "pass"], LowerCase] = setting(
        "park", "Whether events wait for their mapping, or go on without it at once."
    )
    max_age_s: Number = setting(3600.0, "Longest wait.", unit="seconds", above=0)
    max_bytes: int = setting(64 * MIB, "Events that wait, in all.", unit="bytes", least=0)
    max_events: int = setting(1_000_000, "Events that wait, in all.", unit="events", least=0)
    max_bytes_per_build: int = setting(16 * MIB, "Events that wait for one build or alias.", unit="bytes", least=0)
    max_events_per_build: int = setting(250_000, "Events that wait for one build or alias.", unit="events", least=0)


class MetadataConfig(Section):
    """How delegate debug metadata is decoded."""

    parsers: Parsers = setting(
        (),
        "Parsers of delegate debug metadata, for one backend or all; else what the mapping or the backend says.",
        rule="[BACKEND=]module:function, or json, utf8, raw, auto in place of module:function",
    )
    time_limit_s: Number = setting(1.0, "A parser that takes longer for one call is switched off.", unit="seconds", above=0)
    max_bytes: int = setting(MIB, "Longest metadata of one event that is decoded; longer stays raw.", unit="bytes", least=1)
    cache_bytes: int = setting(16 * MIB, "Decoded metadata that is remembered, about.", unit="bytes", least=0)


class MappingConfig(Section):
    """Mappings and the span templates made from them."""

    template_cache_bytes: int = setting(
        64 * MIB, "Compiled span templates kept in memory; the least used go first.", unit="bytes", least=64 * 1024
    )
