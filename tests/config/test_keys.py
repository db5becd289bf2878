"""Allow-lists."""

import pytest

from otel_bridge.config.keys import allow
from otel_bridge.config.sections import INFERENCE_KEYS, RESOURCE_KEYS


@pytest.mark.parametrize(
    ("entries", "kept", "dropped"),
    [
        (["os.name"], ["os.name"], ["os.name.x", "os", "os.version"]),
        (["os.*"], ["os.name", "os.name.x", "os."], ["os", "osx.name"]),
        (["!os.name", "os.*"], ["os.version"], ["os.name"]),
        (["*", "!os.*"], ["host.name", ""], ["os.name"]),
        ([], [], ["os.name", ""]),
    ],
)
def test_entries(entries: list[str], kept: list[str], dropped: list[str]) -> None:
    """An entry is an exact key, a prefix of keys or all; `!` takes away, whatever the order."""
    allowed = allow(entries)
    assert [key for key in kept + dropped if allowed(key)] == kept


def test_defaults_tell_no_device_from_another() -> None:
    """By default no identifier of a device, host or installation is kept, on the resource or on an inference."""
    identifiers = [
        "device.id",
        "host.id",
        "host.name",
        "host.mac",
        "app.installation.id",
        "hw.id",
        "hw.serial_number",
        "enduser.id",
    ]
    resource, inference = allow(RESOURCE_KEYS), allow(INFERENCE_KEYS)
    assert [key for key in identifiers if resource(key) or inference(key)] == []
    assert all(
        map(resource, ["service.name", "app.build_id", "os.version", "device.model.identifier", "telemetry.sdk.version"])
    )
    assert all(map(inference, ["executorch.inference.input_shape", "device.thermal.state", "thread.count"]))
