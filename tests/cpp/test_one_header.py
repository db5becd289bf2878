"""The one header that `otel-bridge header` writes: it builds where the folder builds, and does the same."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support.cpp import SOURCES, STRICT, build, executorch_flags, run
from support.cpp_scripts import Line, script_of
from support.engines import require
from support.events_peer import EventsPeer, counts
from support.otlp_sink import OtlpSink
from support.senders import Sender
from support.service import otel_bridge

pytestmark = pytest.mark.timeout(300)  # compilers take their time on machines that have other work

TRANSPORTS = {"grpc": "GrpcTransport", "curl": "HttpTransport"}
Folder = Callable[..., Path]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """`folder(*TRANSPORTS)`: a folder with the one header as otel_bridge.h, which the names of the transports lead to."""

    def write(*transports: str) -> Path:
        options = [word for name in transports for word in ("--with", name)]
        done = otel_bridge("header", *options, "-o", tmp_path / "otel_bridge.h")
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        for name in transports:
            (tmp_path / f"otel_bridge_{name}.h").write_text('#include "otel_bridge.h"\n')
        return tmp_path

    return write


def where_curl_is(folder: Path) -> Path:
    """A folder that has the host's `curl/curl.h` and nothing else of the host's, for another processor's compiler."""
    include = folder / "include"
    include.mkdir()
    command = [require("cxx"), "-M", "-x", "c++", "-"]
    done = subprocess.run(command, input="#include <curl/curl.h>\n", capture_output=True, text=True, check=True)
    (found,) = set(re.findall(r"\S+/curl/curl\.h", done.stdout))
    (include / "curl").symlink_to(Path(found).parent)
    return include


@pytest.mark.parametrize("engine", ["cxx", "cross_cxx"])
@pytest.mark.parametrize("transports", [(), ("grpc",), ("curl",), ("grpc", "curl")], ids="+".join)
def test_it_compiles(folder: Folder, transports: tuple[str, ...], engine: str) -> None:
    """It compiles under every warning, included twice, with the transports asked for and without the others."""
    includes = folder(*transports)
    unit = includes / "unit.cpp"
    present = [f"sizeof(otel_bridge::{TRANSPORTS[name]}) != 0" for name in transports]
    absent = [f"using {TRANSPORTS[name]} = int;" for name in TRANSPORTS if name not in transports]
    unit.write_text(
        "#include <otel_bridge.h>\n#include <otel_bridge.h>\n"
        f"namespace otel_bridge {{ {' '.join(absent)} }}\n"  # an error, were it there
        f"static_assert({' && '.join(['sizeof(otel_bridge::Uploader) != 0', *present])});\n"
    )
    if "curl" in transports:
        require("libcurl")
    foreign = ["-isystem", where_curl_is(includes)] if "curl" in transports and engine == "cross_cxx" else []
    command = [require(engine), *STRICT, f"-I{includes}", *executorch_flags(), *foreign, "-fsyntax-only", unit]
    done = subprocess.run([*map(str, command)], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


def test_it_writes_the_same_bytes(folder: Folder, tmp_path: Path) -> None:
    """A program of two translation units links, and encodes a script, parts and all, as one made from the folder does."""
    lines: list[Line] = [("M", "forward"), ("B", "Execute"), ("H", 0, 2)]
    for number in range(200):
        lines += [("S", 0, "DELEGATE_CALL", -1, 0), ("L", f"op {number % 9}", -1, 2**63, number, b"m"), ("E", 0)]
    sizes = (3000, 1024, 64, 4096, 4096, 256, 64)
    sources = [SOURCES / "play.cpp", SOURCES / "another_unit.cpp"]
    of_folder, of_one = tmp_path / "of_folder", tmp_path / "of_one"
    of_folder.mkdir()
    of_one.mkdir()
    made = [build(of_folder, sources), build(of_one, sources, headers=folder())]
    written = [run(program, *sizes, stdin=script_of(lines)) for program in made]
    assert len(written[0]) > 1000
    assert written[0] == written[1]


def test_it_sends_by_grpc(folder: Folder, tmp_path: Path) -> None:
    """A program of two translation units, made with its gRPC transport alone, is heard by a server."""
    program = build(tmp_path, [SOURCES / "send_grpc.cpp", SOURCES / "another_unit.cpp"], headers=folder("grpc"))
    with EventsPeer() as peer, Sender(program, peer.target) as send:
        assert send(b"request").status == "OK"
    assert [one.payload for one in peer.calls] == [b"request"]


def test_it_sends_by_curl(folder: Folder, tmp_path: Path) -> None:
    """So is one that has both transports, over HTTP."""
    libraries = subprocess.run([require("libcurl"), "--libs"], capture_output=True, text=True, check=True).stdout.split()
    sources = [SOURCES / "send_curl.cpp", SOURCES / "another_unit.cpp"]
    program = build(tmp_path, sources, headers=folder("grpc", "curl"), libraries=libraries)
    with OtlpSink() as sink:
        sink.answers.append(counts(3))
        with Sender(program, sink.http_endpoint.replace("/v1/traces", "/v1/events")) as send:
            assert send(b"request").accepted == 3
    assert [one.payload for one in sink.received] == [b"request"]
