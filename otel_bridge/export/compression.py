"""Compression of what leaves by HTTP. gRPC has its own."""

import gzip
import sys
from collections.abc import Callable

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_GZIP_LEVEL = 1  # spans of one template differ in 24 bytes: higher levels cost time and gain little
_ZSTD_LEVEL = 1  # see above

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda payload: gzip.compress(payload, _GZIP_LEVEL),
    "zstd": lambda payload: zstd.compress(payload, _ZSTD_LEVEL),
}
"""Content-Encoding -> how a body gets it."""
