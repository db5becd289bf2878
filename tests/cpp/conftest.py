"""Programs of tests/cpp/src, each built once a session."""

import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from support.cpp import SOURCES, build, build_example
from support.engines import require

MEMORY = ("address", "undefined")
"""Sanitizers under which a program may touch no byte that is not its own."""

Built = Callable[..., Path]


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """`built(NAME, *SANITIZERS, libraries=())`: the program of src/NAME.cpp."""
    folder = tmp_path_factory.mktemp("programs")

    @cache
    def program(name: str, *sanitize: str, libraries: tuple[str, ...] = ()) -> Path:
        return build(folder, [SOURCES / f"{name}.cpp"], sanitize=sanitize, libraries=libraries)

    return program


@pytest.fixture(scope="session")
def send_grpc(built: Built) -> Path:
    """The program that sends by gRPC, watched by sanitizers."""
    return built("send_grpc", *MEMORY)


@pytest.fixture(scope="session")
def send_curl(built: Built) -> Path:
    """The program that sends by libcurl, watched by sanitizers."""
    done = subprocess.run([require("libcurl"), "--libs"], capture_output=True, text=True, check=True)
    return built("send_curl", *MEMORY, libraries=tuple(done.stdout.split()))


@pytest.fixture(scope="session")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example program, with the wheel's libraries."""
    return build_example(tmp_path_factory.mktemp("example"))
