"""What requests and connections may take of the bridge, all together; `server.max_request_bytes` is for one alone."""

from otel_bridge.config.setting import Number, Section, setting

MIB = 1 << 20


class IngressConfig(Section):
    """What requests and connections may take of the bridge, all together. At a bound senders are told to come again."""

    max_requests: int = setting(
        1024, "Requests that are in the bridge at a time: being read, checked or kept.", unit="requests", least=1
    )
    max_bytes: int = setting(
        256 * MIB, "Bytes of these requests, after decompression. One request alone may have more.", unit="bytes", least=MIB
    )
    max_waiting: int = setting(1024, "Requests that wait, unread, until others are done.", unit="requests", least=0)
    max_wait_s: Number = setting(5.0, "Longest wait.", unit="seconds", above=0)
    memory_bytes: int = setting(
        2048 * MIB,
        "Physical memory of the process above which no request is read until it has fallen; 0 is no limit.",
        unit="bytes",
        least=0,
    )
    body_timeout_s: Number = setting(
        120.0,
        "Longest time from the first to the last byte of the body of a request, and for a client over HTTP to read its answer.",
        unit="seconds",
        above=0,
    )
    max_connections: int = setting(4096, "Open connections of one door; further ones are closed.", unit="connections", least=1)
    handshake_timeout_s: Number = setting(
        10.0,
        "Longest time for a TLS handshake, for the settings of HTTP/2, and for the headers of a request over HTTP.",
        unit="seconds",
        above=0,
    )
    idle_timeout_s: Number = setting(120.0, "A connection without a request is closed after this.", unit="seconds", least=1)
    connection_age_s: Number = setting(
        3600.0, "A gRPC connection is asked to end after this, so that balancers can move it.", unit="seconds", least=1
    )
    duplicate_entries: int = setting(
        100_000, "Requests that are remembered, so that one that is sent again is not emitted again.", unit="requests", least=0
    )
    duplicate_s: Number = setting(3600.0, "How long they are.", unit="seconds", least=0)
