"""Blocks of a serial log, as devices print them."""

import base64
import textwrap
import zlib


def armoured(data: bytes, kind: str = "OTEL BRIDGE EVENTS", *, width: int = 76) -> list[str]:
    """The lines of a block of this project's armour."""
    lines = textwrap.wrap(base64.b64encode(data).decode(), width)
    return [f"-----BEGIN {kind}-----", *lines, f"={zlib.crc32(data):08x}", f"-----END {kind}-----"]


def printed_by_runner(etdump: bytes) -> list[str]:
    """What ExecuTorch's bare-metal runner prints of an ETDump and a debug buffer (`write_etdump`)."""
    return [
        "#[RUN THIS]",
        "# Writing debug_buffer.bin [base64]",
        f'echo "{base64.b64encode(bytes(64)).decode()}" | base64 -d >debug_buffer.bin',
        "# Writing etdump.bin [base64]",
        f'echo "{base64.b64encode(etdump).decode()}" | base64 -d >etdump.bin',
        "# Generate cpu cycle table with:",
        "python3 -m devtools.inspector.inspector_cli --etdump_path etdump.bin --source_time_scale cycles",
        "#[END]",
    ]
