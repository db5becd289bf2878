"""Every setting of a client that is not about the connection, once: name, default, unit, meaning."""

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from otel_bridge.errors import ConfigError

MIB = 1 << 20


def _about(unit: str, meaning: str, *, least: float = 0) -> dict[str, Any]:
    return {"unit": unit, "meaning": meaning, "least": least}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """How a client gathers, keeps and sends. Raises ConfigError for a value that cannot be obeyed."""

    batch_events: int = field(default=8_192, metadata=_about("events", "a request is made when so many events wait", least=1))
    batch_bytes: int = field(default=1 * MIB, metadata=_about("bytes", "or when they take so much memory", least=1))
    batch_age_s: float = field(default=5.0, metadata=_about("seconds", "or when the first of them has waited so long"))
    request_bytes: int = field(
        default=4 * MIB, metadata=_about("bytes", "no request is larger before compression; more is split", least=1_024)
    )
    queue_bytes: int = field(
        default=64 * MIB, metadata=_about("bytes", "memory for events that are in no request yet; more are dropped", least=1)
    )
    buffer: Path | None = field(
        default=None, metadata=_about("path", "file that keeps requests until they are answered, over restarts; None: memory")
    )
    buffer_bytes: int = field(
        default=64 * MIB, metadata=_about("bytes", "requests that are kept until they are answered; more are not made", least=1)
    )
    gzip: bool = field(default=True, metadata=_about("-", "compress requests"))
    timeout_s: float = field(
        default=10.0, metadata=_about("seconds", "deadline of one attempt, connecting included", least=0.001)
    )
    retry_initial_s: float = field(
        default=1.0, metadata=_about("seconds", "bound of the first wait between attempts; it doubles", least=0.001)
    )
    retry_max_s: float = field(
        default=30.0, metadata=_about("seconds", "bound of any wait that the bridge did not ask for", least=0.001)
    )
    close_timeout_s: float = field(
        default=5.0, metadata=_about("seconds", "how long `close`, and the end of the process, wait for the last answers")
    )

    def __post_init__(self) -> None:
        if self.buffer is not None and not isinstance(self.buffer, Path):
            raise ConfigError(f"buffer: is {self.buffer!r}; it must be a Path, or None")
        for each in fields(self):
            value, least = getattr(self, each.name), each.metadata["least"]
            if isinstance(each.default, (int, float)) and not isinstance(each.default, bool):
                is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
                if not is_number or not least <= value < float("inf"):
                    raise ConfigError(
                        f"{each.name}: is {value!r}; it must be a number of {each.metadata['unit']}, at least {least}"
                    )
