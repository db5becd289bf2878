"""Compression of what leaves by HTTP. gRPC has its own."""

import sys
from collections.abc import Callable

from isal import isal_zlib

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_GZIP_LEVEL = 2  # of ISA-L's 0 to 3: for spans the fastest but 0, and level 3 takes six times as long for a twentieth less
_GZIP_BITS = 16 | isal_zlib.MAX_WBITS  # 16: with the header of gzip
_ZSTD_LEVEL = 1  # spans of one template differ in 24 bytes: higher levels cost time and gain little

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda payload: isal_zlib.compress(payload, _GZIP_LEVEL, _GZIP_BITS),
    "zstd": lambda payload: zstd.compress(payload, _ZSTD_LEVEL),
}
"""Content-Encoding -> how a body gets it."""
