"""
What is kept and shown of devices and developers, as the settings describe it.

Invariant: a salt is made once and never replaced: with another one all hashes would be others.
"""

import os
import secrets
from pathlib import Path

from otel_bridge.config.bridge import BridgeConfig
from otel_bridge.config.keys import allow
from otel_bridge.config.privacy import ALL
from otel_bridge.errors import ConfigError
from otel_bridge.files import replace_file, sync_folder
from otel_bridge.spans.withholding import SHOW_PATH, Withhold, withhold
from otel_bridge.wire.admission import Rules
from otel_bridge.wire.pseudonyms import LEAST_SALT_BYTES, Pseudonyms

SALT = "salt"
"""The file's name in the data directory."""


def rules_of(config: BridgeConfig) -> Rules:
    """What is believed and kept of what devices say. Raises `ConfigError` where there is no usable salt."""
    said = config.admission
    keys = config.privacy.hash_keys
    return Rules(
        allow(said.resource_keys),
        allow(said.inference_keys),
        int(said.max_clock_error_s * 1e9),
        pseudonyms=Pseudonyms(allow(keys), _salt_of(config)) if keys else None,
    )


def withheld_by(config: BridgeConfig) -> Withhold:
    """What of mappings and metadata is shown."""
    said = config.privacy
    return withhold(None if said.metadata_keys == ALL else allow(said.metadata_keys), SHOW_PATH[said.source_paths])


def _salt_of(config: BridgeConfig) -> bytes:
    """The secret of the hashes; without a data directory it ends with the process."""
    given, directory = config.privacy.salt_file, config.server.data_dir
    if given is not None:
        return _read(given, "privacy.salt_file")
    if directory is None:
        return secrets.token_bytes(LEAST_SALT_BYTES)
    path = directory / SALT
    # Also a link to what is not there now: on a disk that comes later there may be a salt.
    return _read(path, "the salt of privacy.hash_keys") if os.path.lexists(path) else _made(path)


def _read(path: Path, what: str) -> bytes:
    try:
        salt = path.read_bytes().strip()
    except OSError as error:
        raise ConfigError(f"{what} ({path}) cannot be read: {error.strerror}") from error
    if len(salt) < LEAST_SALT_BYTES:
        raise ConfigError(
            f"{what} ({path}) holds {len(salt)} bytes, and at least {LEAST_SALT_BYTES} are needed: put the one back that was "
            "there, or make one with `openssl rand -hex 32`; hashes of before have no equal then"
        )
    return salt


def _made(path: Path) -> bytes:
    """A new salt, on disk before it is used."""
    salt = secrets.token_hex(LEAST_SALT_BYTES)
    try:
        replace_file(path, f"{salt}\n".encode())
        sync_folder(path.parent)
    except OSError as error:
        raise ConfigError(f"the salt of privacy.hash_keys cannot be kept in {path}: {error.strerror}") from error
    return salt.encode()
