"""The address of a bridge, as a user writes it."""

import ipaddress
import re
from dataclasses import dataclass

from otel_bridge.errors import ConfigError

_ADDRESS = re.compile(r"(?:(?P<scheme>https?)://)?(?P<target>(?:\[[^\]\s/]+\]|[^:/\s\[\]]+):(?P<port>\d{1,5}))/?")
_LAST_PORT = 65_535


@dataclass(frozen=True, slots=True)
class Address:
    """
    Where a bridge listens for gRPC.

    target    `host:port`, for gRPC
    is_tls    True: `https://` was written; False: `http://` was; None: neither
    is_local  the host is this machine, by its name or number
    """

    target: str
    is_tls: bool | None
    is_local: bool


def read_address(text: str) -> Address:
    """`HOST:PORT`, `http://HOST:PORT` or `https://HOST:PORT`. Raises ConfigError for anything else."""
    match = _ADDRESS.fullmatch(text)
    if match is None or not 0 < int(match["port"]) <= _LAST_PORT:
        raise ConfigError(f"server: {text!r} must be HOST:PORT, http://HOST:PORT or https://HOST:PORT; the bridge's is 4417")
    target = match["target"]
    return Address(target, {None: None, "http": False, "https": True}[match["scheme"]], _is_local(target.rpartition(":")[0]))


def _is_local(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
