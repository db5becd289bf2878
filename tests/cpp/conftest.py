"""Programs of tests/cpp/src, each built once a session."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from support.cpp import SOURCES, build

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
