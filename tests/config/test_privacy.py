"""What the defaults let through, and the rules of the section `privacy`."""

import importlib
import pkgutil
import re
from pathlib import Path

import pytest
from opentelemetry.semconv._incubating import attributes as conventions
from pydantic import ValidationError
from support.pages import table

from otel_bridge.config.bridge import BridgeConfig
from otel_bridge.config.keys import allow
from otel_bridge.config.sections import INFERENCE_KEYS, RESOURCE_KEYS

PAGE = "docs/privacy.md"

LOOKS_LIKE_AN_ID = re.compile(
    r"(^|[._])(id|uid|uuid|ip|mac|address|serial_number|user|email|full_name|hash|token|instance|previous_id|login)$"
)
NAMES_NO_DEVICE = {
    "app.build_id": "one for each release",
    "app.crash.id": "one for each crash, on log records",
    "app.screen.id": "part of an app",
    "app.widget.id": "part of an app",
    "os.build_id": "one for each release of the system",
    "thread.id": "of a process",
}
"""What the defaults let through although its name ends like that of an identifier, and why."""


def convention_keys() -> set[str]:
    """Every attribute key of the semantic conventions that are installed."""
    modules = [
        importlib.import_module(f"{conventions.__name__}.{each.name}") for each in pkgutil.iter_modules(conventions.__path__)
    ]
    return {value for module in modules for name, value in vars(module).items() if name.isupper() and isinstance(value, str)}


def is_kept(key: str) -> bool:
    """Whether the defaults keep it, on the resource or on an inference."""
    return allow(RESOURCE_KEYS)(key) or allow(INFERENCE_KEYS)(key)


def test_defaults_keep_nothing_that_looks_like_an_identifier() -> None:
    """Of all keys of the conventions those that are kept and end like an identifier are known to name no device or person."""
    keys = convention_keys()
    assert len(keys) > 500
    assert {key for key in keys if is_kept(key) and LOOKS_LIKE_AN_ID.search(key)} == NAMES_NO_DEVICE.keys()


def test_the_page_lists_what_is_left_out() -> None:
    """The identifiers that docs/privacy.md lists are keys of the conventions, and are left out."""
    rows = table(PAGE, "left out by default", "because it names")
    listed = [key for row in rows for key in row["left out by default"].replace("`", "").split(", ")]
    assert len(listed) > 10
    assert [key for key in listed if is_kept(key)] == []
    assert set(listed) <= convention_keys()


def test_defaults_keep_what_is_asked_for() -> None:
    """Software, kind of hardware and the state of a device are kept."""
    told = ["service.name", "app.build_id", "os.version", "device.model.identifier", "telemetry.sdk.version"]
    told += ["executorch.inference.input_shape", "device.thermal.state", "thread.count"]
    assert [key for key in told if not is_kept(key)] == []


@pytest.mark.parametrize(
    ("section", "says"),
    [
        ({"hash_keys": ["device id"]}, "must be an attribute key"),
        ({"metadata_keys": ["a.b"]}, "must be a key of"),
        ({"source_paths": "hide"}, "'keep', 'strip' or 'basename'"),
        ({"hash_keys": ["device.id"], "salt_file": "/nowhere/salt"}, "salt_file"),
    ],
)
def test_a_setting_that_cannot_be_obeyed_is_told(section: dict[str, object], says: str) -> None:
    """Each setting is held to its rule."""
    with pytest.raises(ValidationError, match=says):
        BridgeConfig.model_validate({"privacy": section})


def test_a_salt_without_use_is_told(tmp_path: Path) -> None:
    """A salt with nothing to hash is a slip: somebody believes that something is hashed."""
    (tmp_path / "salt").write_bytes(bytes(32))
    with pytest.raises(ValidationError, match=r"privacy\.hash_keys is not: nothing is hashed"):
        BridgeConfig.model_validate({"privacy": {"salt_file": str(tmp_path / "salt")}})
