"""Taking the port of a door, in the words of its setting."""

import socket

from otel_bridge.config.values import split_address
from otel_bridge.errors import ConfigError


def bound(setting: str, address: str, *, shares: bool = False) -> socket.socket:
    """
    A socket that has the port, and does not listen yet. Raises `ConfigError`.

    shares   with all others that say so (SO_REUSEPORT): whoever connects is given to one of those that listen
    """
    host, port = split_address(address)
    taken = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if shares:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        taken.bind((host, port))
    except OSError as error:
        taken.close()
        raise ConfigError(f"{setting} ({address}) cannot be listened on: {error.strerror or error}") from error
    return taken


def with_port(address: str, port: int) -> str:
    """The address with the port that was taken."""
    host, _ = split_address(address)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
