"""`otel-bridge worker`: one of the processes of `otel-bridge serve --workers N`, which starts it. Nobody else does."""

import asyncio
import logging
import os
import signal
import socket
from contextlib import suppress

import click

from otel_bridge.app.bridge import Bridge
from otel_bridge.app.crew import Crew, Seat
from otel_bridge.app.line import Line, frame, read_now
from otel_bridge.cli.process import live, prepare, run
from otel_bridge.errors import BridgeError, Unavailable

_log = logging.getLogger(__name__)


@click.command(hidden=True)
@click.argument("line", type=int)
def worker(line: int) -> None:
    """Be a worker; LINE is the descriptor of the line to the supervisor."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # that of a terminal reaches all; the supervisor says when to stop
    end = socket.socket(fileno=line)
    try:
        seat: Seat | None = read_now(end)
    except ConnectionError:  # the supervisor is gone already
        seat = None
    if seat is None:  # it stops
        return
    prepare(seat.config)
    crew = Crew(seat.number, seat.config.server.workers, seat.table)
    try:
        bridge = Bridge(seat.config, crew=crew)
    except BridgeError as error:
        end.sendall(frame("ask", 0, "fault", str(error)))  # the supervisor says it, once
        click.get_current_context().exit(1)
    run(_work(bridge, crew, end))


async def _work(bridge: Bridge, crew: Crew, end: socket.socket) -> None:
    stopping = asyncio.Event()

    async def answer(question: str, argument: object) -> object:
        if question != "stop":
            return await bridge.answer(question, argument)
        stopping.set()
        return None

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    crew.line = await Line.over(end, answer)
    talking = asyncio.create_task(crew.line.run())
    talking.add_done_callback(lambda _: stopping.set())  # the supervisor is gone
    going = asyncio.create_task(crew.line.ask("go", patience_s=None))
    await asyncio.wait([going, asyncio.create_task(stopping.wait())], return_when=asyncio.FIRST_COMPLETED)
    if stopping.is_set() or going.exception() is not None:
        going.cancel()
        await asyncio.gather(going, return_exceptions=True)
        await bridge.stop()
        return
    with suppress(Unavailable):  # what keeps the registry from being read is told when it is looked at next (readiness.py)
        await bridge.answer("uploaded", None)  # what came before the supervisor knew that it can be told here
    try:
        await bridge.start()
    except BridgeError as error:
        await crew.line.ask("fault", str(error))
        click.get_current_context().exit(1)
    crew.line.tell("open", None)
    _log.info("worker %d is there, as process %d", crew.number, os.getpid())
    await live(bridge, stopping)
