"""Mappings over HTTP, where they are more than gRPC's messages by another way: documents, their forms, what stays out."""

import gzip
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.http import GZIP, ZSTD, sent, the_fault, zstd
from support.mappings import mapping_of

from otel_bridge.mapping.source import read_document, read_source, write_file
from otel_bridge.v1 import mapping_pb2 as pb
from otel_bridge.wire import mapping_routes

FILE = pb.MappingFile(mapping=mapping_of({1: [1], "conv": [2, 3]}), build_id="b1", name="net", version="1")
BINARY, JSON = "application/octet-stream", "application/json"
WAY_OUT = "send what `otel-bridge mapping build` writes"


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        (None, JSON),
        ("*/*", JSON),
        (JSON, JSON),
        ("text/html", JSON),
        (BINARY, BINARY),
        ("Application/Octet-Stream", BINARY),
        (f"{JSON};q=0.5, {BINARY}", BINARY),
        (f"{JSON}, {BINARY};q=0.5", JSON),
        (f"{BINARY}, */*;q=0.1", BINARY),
        (f"application/*, {BINARY}; q=0", JSON),
        (f"{BINARY};q=nonsense", BINARY),
        (";;,,q=", JSON),
    ],
)
def test_the_form_of_a_document(accept: str | None, form: str, opened: Callable[..., Any], run: Callable[..., Any]) -> None:
    """A document comes as JSON, or in its binary form where Accept prefers that; either can be put again as it came."""

    async def main() -> None:
        async with opened() as doors:
            await doors.client.put("/v1/mappings", content=write_file(FILE, "f.json"))
            headers = {"accept": accept} if accept else {}
            response = await doors.client.get("/v1/mappings/net@1", headers=headers)
            assert (response.status_code, response.headers["content-type"]) == (200, form)
            assert response.content.startswith(b"{" if form == JSON else b"otel-bridge mapping 1 ")
            file = read_document(response.content)
            assert (file.mapping, file.build_id) == (read_document(write_file(FILE, "")).mapping, "b1")
            again = await doors.client.put("/v1/mappings", content=response.content)
            assert (again.status_code, again.json()["created"]) == (200, False)

    run(main())


@pytest.mark.parametrize("form", [BINARY, JSON])
def test_a_document_is_written_off_the_loop(
    form: str, opened: Callable[..., Any], run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large document takes a second to write: no other request waits for it."""
    threads: list[int] = []

    def noting(real: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *arguments: threads.append(threading.get_ident()) or real(*arguments)

    for name in ("to_json", "write_file"):
        monkeypatch.setattr(mapping_routes, name, noting(getattr(mapping_routes, name)))

    async def main() -> None:
        async with opened() as doors:
            await doors.client.put("/v1/mappings", content=write_file(FILE, "f.json"))
            response = await doors.client.get("/v1/mappings/net@1", headers={"accept": form})
            assert response.headers["content-type"] == form
            assert len(threads) == 1
            assert threads[0] != threading.get_ident()

    run(main())


def test_what_the_address_says_counts(opened: Callable[..., Any], run: Callable[..., Any]) -> None:
    """Build and alias are those of the document, unless path and query give others; a new mapping is 201."""

    async def main() -> None:
        async with opened() as doors:
            for content, headers in ((write_file(FILE, ""), {}), (gzip.compress(write_file(FILE, "")), GZIP)):
                response = await doors.client.put("/v1/mappings", content=content, headers=headers)
                assert response.json()["build_id"] == "b1"
            document = zstd.compress(write_file(FILE, ""))
            response = await doors.client.put("/v1/mappings/a%2Fb%40c?model=other@2", content=document, headers=ZSTD)
            assert (response.status_code, response.json()["build_id"]) == (201, "a/b@c")
            listed = (await doors.client.get("/v1/mappings")).json()
            assert {info["build_id"]: info["aliases"] for info in listed["mappings"]} == {"a/b@c": ["other@2"], "b1": ["net@1"]}
            assert listed["next_page_token"] == ""
            assert (await doors.client.get("/v1/mappings/a/b@c")).json()["build_id"] == "a/b@c"
            assert (await doors.client.delete("/v1/mappings/a%2Fb%40c")).json() == {"build_id": "a/b@c"}

    run(main())


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("model.etrecord", "a zip, such as an ETRecord, which may hold the model's weights"),
        ("model.pte", "an ExecuTorch program (.pte), which holds the model's weights"),
        ("maps.json", "JSON with maps of which nothing is built yet"),
        ("run.etdp", "an ETDump, which holds events and no maps"),
    ],
)
def test_no_weights_come_in(
    source: str, found: str, fixtures: Path, opened: Callable[..., Any], run: Callable[..., Any]
) -> None:
    """What is no built document is refused with the command that makes one; `read_source` takes what has a mapping in it."""
    data = (fixtures / "toy_backend_int" / source).read_bytes()

    async def main() -> None:
        async with opened() as doors:
            for content, headers in ((data, {}), (gzip.compress(data), GZIP)):
                fault = the_fault(await doors.client.put("/v1/mappings/b", content=content, headers=headers), 400)
                assert fault["reason"] == "malformed_mapping"
                assert fault["message"].startswith(f"mapping document: {found}; {WAY_OUT}")
            assert (await doors.client.get("/v1/mappings")).json()["mappings"] == []

    run(main())
    if source != "run.etdp":
        assert read_source(data).mapping.methods


def test_weights_are_refused_before_they_are_sent(opened: Callable[..., Any], run: Callable[..., Any]) -> None:
    """Of an ETRecord the first bytes are enough: the answer does not wait for the rest."""

    async def main() -> None:
        async with opened() as doors:
            head = b"PUT /v1/mappings HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\nPK\x03\x04 and some"
            reader, writer = await sent(doors.http.address, head)
            assert await reader.readuntil(b"\r\n") == b"HTTP/1.1 400 Bad Request\r\n"
            writer.close()

    run(main())


@pytest.mark.parametrize(
    ("verb", "path", "told"),
    [
        ("PUT", "/v1/mappings?replace=yes", "query parameter replace: must be true or false"),
        ("PUT", "/v1/mappings?modell=a", "query parameter 'modell': is not known; known are model, replace"),
        ("PUT", "/v1/mappings?model=%ff", "query parameter model: must be UTF-8"),
        ("PUT", "/v1/mappings?model=a&model=a", "is given twice"),
        ("PUT", "/v1/aliases/net@1", "query parameter ref: is not given; name the build"),
        ("PUT", "/v1/aliases/net@1?ref=", "query parameter ref: is not given"),
        ("GET", "/v1/mappings?page_size=-1", "query parameter page_size: must be a number from 0 to 2^32-1"),
        ("GET", "/v1/mappings?page_token=%ff", "query parameter page_token: must be UTF-8"),
        ("GET", "/v1/mappings/b?replace=true", "query parameter 'replace': is not known; known are none"),
        ("GET", "/v1/missing?ref=x", "query parameter 'ref': is not known; known are page_size, page_token"),
        ("DELETE", "/v1/mappings/b?force=true", "query parameter 'force': is not known"),
        ("POST", "/v1/events?model=x", "query parameter 'model': is not known"),
    ],
)
def test_bad_queries(verb: str, path: str, told: str, opened: Callable[..., Any], run: Callable[..., Any]) -> None:
    """A query that cannot be obeyed is refused by the name of its parameter, and nothing is stored."""

    async def main() -> None:
        async with opened() as doors:
            response = await doors.client.request(verb, path, content=write_file(FILE, ""))
            assert response.status_code == 400
            assert told.encode() in response.content
            assert doors.tally.outcomes == {"malformed_request": 1}
            assert (await doors.client.get("/v1/mappings")).json()["mappings"] == []

    run(main())


def test_verbs(opened: Callable[..., Any], run: Callable[..., Any]) -> None:
    """Each route takes its own verbs and HEAD where it takes GET; others are 405 and not counted."""

    async def main() -> None:
        async with opened() as doors:
            await doors.client.put("/v1/mappings", content=write_file(FILE, ""))
            assert (await doors.client.head("/v1/mappings/b1")).status_code == 200
            paths = ("/v1/mappings", "/v1/mappings/b1", "/v1/missing", "/v1/aliases/a@1")
            assert [(await doors.client.post(path)).status_code for path in paths] == [405] * 4
            assert (await doors.client.get("/v1/events")).headers["allow"] == "POST"
            assert doors.tally.outcomes == {"ok": 2}

    run(main())


def test_events_as_json_are_told_apart(opened: Callable[..., Any], run: Callable[..., Any]) -> None:
    """Columns are protobuf; a client that says JSON is told what to send."""

    async def main() -> None:
        async with opened() as doors:
            response = await doors.client.post("/v1/events", content=b"{}", headers={"content-type": f"{JSON}; charset=utf-8"})
            assert response.status_code == 400
            assert b"send an ExportEventsRequest as application/x-protobuf" in response.content

    run(main())
