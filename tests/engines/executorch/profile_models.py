"""
Execute models as an app does whose programs are profiled, and write what the app saw.

Usage: profile_models.py SERVER NOWHERE FIXTURES ANSWER.json
SERVER is a bridge, NOWHERE an address at which nobody answers. ANSWER.json has an entry for each function of `SCENES`.

A program of its own, because the runtime aborts the process where something is wrong, and importing it takes seconds. Scenes
that end in a crash run in a child process.
"""

import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from executorch.runtime import Runtime
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider

from otel_bridge.client import BridgeClient, NothingToDrain, NotProfiled, profile_program

FIXTURES = Path(sys.argv[3])
APP = TracerProvider().get_tracer("app")


def load(model: str, **options: Any) -> Any:
    """A program of the fixtures."""
    return Runtime.get().load_program(FIXTURES / model / "model.pte", **{"enable_etdump": True, **options})


def ones(method: Any) -> list[torch.Tensor]:
    """Inputs of ones."""
    shapes = [method.metadata.input_tensor_meta(index).sizes() for index in range(method.metadata.num_inputs())]
    return [torch.ones(shape) for shape in shapes]


def client_of(server: str, app: str) -> BridgeClient:
    """A client whose spans are found by the name of the app."""
    return BridgeClient(server, resource={"service.name": app})


def told(span: ReadableSpan) -> dict[str, Any]:
    """What the app knows of its own span."""
    context = span.get_span_context()
    return {"trace": context.trace_id, "span": context.span_id, "start": span.start_time, "end": span.end_time}


def nested(server: str, _nowhere: str) -> Any:
    """Five executions, each in a span of the app, drained after two, two, and one when the client is closed."""
    spans = []
    with client_of(server, "nested") as client:
        method = profile_program(load("xnnpack"), client, model="xnnpack@1", every=2).load_method("forward")
        for _ in range(5):
            with APP.start_as_current_span("request") as span:
                method.execute(ones(method))
            spans.append(told(span))
    return {"spans": spans, "stats": stats_of(client)}


def two_methods(server: str, _nowhere: str) -> Any:
    """Two methods in turn, in one drain, without a span of the app; attributes that change."""
    heat = iter(("cool", "warm", "hot", "hot"))
    with client_of(server, "two_methods") as client:
        program = profile_program(
            load("multi_method"), client, model="multi_method@1", attributes=lambda: {"device.thermal.state": next(heat)}
        )
        for name in ("encode", "decode", "decode", "encode"):
            method = program.load_method(name)
            method.execute(ones(method))
        drained = program.drain()
        client.flush(20)
        return {"drained": drained, "stats": stats_of(client), "names": sorted(program.method_names)}


def failing(server: str, _nowhere: str) -> Any:
    """Executions that fail, before, between and after others: the app sees the runtime's errors, and the program goes on."""
    raw = load("xnnpack").load_method("forward")
    with client_of(server, "failing") as client:
        program = profile_program(load("xnnpack"), client, model="xnnpack@1", every=1)
        method = program.load_method("forward")
        good, bad = ones(method), [torch.ones(3)]
        errors = [[error_of(lambda method=each: method.execute(bad)) for each in (method, raw)]]
        drained = [program.drain()]
        for _ in range(2):
            method.execute(good)
            errors.append([error_of(lambda method=each: method.execute(bad)) for each in (method, raw)])
            drained.append(program.drain())
        client.flush(20)
        return {"errors": errors, "drained": drained, "stats": stats_of(client)}


def away(_server: str, nowhere: str) -> Any:
    """Nobody answers: the outputs are those of a program that is not profiled."""
    plain = load("mixed_ops", enable_etdump=False).load_method("forward")
    client = client_of(nowhere, "away")
    program = profile_program(load("mixed_ops"), client, every=3)
    method = program.load_method("forward")
    same = [
        all(torch.equal(*pair) for pair in zip(method.execute(ones(method)), plain.execute(ones(plain)), strict=True))
        for _ in range(7)
    ]
    program.drain()
    client.close(0.2)
    after = len(method.execute(ones(method)))  # a closed client is no hindrance
    return {"same": same, "after": after, "stats": stats_of(client)}


def drained_twice(_server: str, nowhere: str) -> Any:
    """A drain with nothing new, at the start, after a drain, and after the app's own; and a program without an ETDump."""
    with client_of(nowhere, "drained_twice") as client:
        program = profile_program(load("xnnpack"), client, every=100)
        method = program.load_method("forward")
        found: list[Any] = [program.drain()]
        method.execute(ones(method))
        found += [program.drain(), program.drain()]
        method.execute(ones(method))
        program.write_etdump_result_to_file("mine.etdp", "mine.dbg")
        found += [Path("mine.etdp").stat().st_size > 0, program.drain()]
        found.append(error_of(lambda: program.write_etdump_result_to_file("mine.etdp", "mine.dbg")).split(":")[0])
        found.append(error_of(lambda: profile_program(load("xnnpack", enable_etdump=False), client)).split(":")[0])
        client.close(0.0)
        return {"found": found}


def twice() -> None:
    """Drain the runtime alone, twice."""
    program = load("xnnpack")
    method = program.load_method("forward")
    method.execute(ones(method))
    for name in ("first", "second"):
        program.write_etdump_result_to_file(f"{name}.etdp", "any.dbg")


def after_a_failure() -> None:
    """Drain it again after an execution that failed before it had a block."""
    program = load("xnnpack")
    method = program.load_method("forward")
    method.execute(ones(method))
    program.write_etdump_result_to_file("first.etdp", "any.dbg")
    error_of(lambda: method.execute([torch.ones(3)]))
    program.write_etdump_result_to_file("second.etdp", "any.dbg")


def two_threads(server: str, _nowhere: str) -> Any:
    """Two threads execute one program while a third drains it."""
    with client_of(server, "two_threads") as client:
        program = profile_program(load("xnnpack"), client, model="xnnpack@1", every=3)
        method = program.load_method("forward")
        inputs, over = ones(method), threading.Event()

        def execute() -> None:
            for _ in range(50):
                method.execute(inputs)

        def drain() -> None:
            while not over.is_set():
                program.drain()

        drainer, executors = threading.Thread(target=drain), [threading.Thread(target=execute) for _ in range(2)]
        for thread in (drainer, *executors):
            thread.start()
        for thread in executors:
            thread.join()
        over.set()
        drainer.join()
        program.drain()
        client.flush(30)
        return {"stats": stats_of(client)}


def at_exit(server: str) -> Any:
    """One execution of an app that ends without a word; what it returns must live until then."""
    program = profile_program(load("xnnpack"), client_of(server, "at_exit"), model="xnnpack@1")
    method = program.load_method("forward")
    method.execute(ones(method))
    return program


def error_of(call: Callable[[], Any]) -> str:
    """The error that a call raises, with its type."""
    try:
        call()
    except (RuntimeError, NothingToDrain, NotProfiled) as error:
        return f"{type(error).__name__}: {error}"
    return "none"


def second_drain(drain: Callable[[], None]) -> str:
    """What becomes of the second drain, in a child process: freed memory is read, so it is one or the other."""
    second = Path("second.etdp")
    second.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        try:
            drain()
        finally:
            os._exit(0)
    if os.WIFSIGNALED(os.waitpid(child, 0)[1]):
        return "killed by a signal"
    return "a whole ETDump" if second.exists() and second.read_bytes()[8:12] == b"ED00" else "no ETDump"


def stats_of(client: BridgeClient) -> dict[str, Any]:
    """The client's account."""
    stats = client.stats
    return {name: getattr(stats, name) for name in ("recorded", "accepted", "rejected", "dropped", "waiting", "lost_dumps")}


SCENES = (nested, two_methods, failing, away, drained_twice, two_threads)

if __name__ == "__main__":
    SECOND_DRAINS = [second_drain(each) for each in (twice, after_a_failure)]  # first: a process with threads is not to fork
    LAST = at_exit(sys.argv[1])
    ANSWER = {scene.__name__: scene(*sys.argv[1:3]) for scene in SCENES}
    Path(sys.argv[4]).write_text(json.dumps({**ANSWER, "second_drains": SECOND_DRAINS}))
