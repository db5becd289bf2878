"""
How the supervisor and a worker talk: questions and answers, both ways, over a pair of sockets that only they have.

Invariants
* A question is answered once, or raises at whoever asked: `ConnectionError` where the other end is gone, or cannot answer;
  `TimeoutError` after its patience. Both are `OSError`s.
* Answers come in any order: a slow one holds no other up.
* What is read was written by this program, of this version: the other end is a process that the supervisor started.
"""

import asyncio
import itertools
import logging
import pickle
import socket
from collections.abc import Awaitable, Callable
from typing import Any

_log = logging.getLogger(__name__)

PATIENCE_S = 10.0
_LENGTH_BYTES = 8

Answer = Callable[[str, Any], Awaitable[Any]]
"""(question, argument) -> answer."""


def frame(kind: str, number: int, *what: object) -> bytes:
    """A message as it is sent: "ask" with question and argument, "answer" or "fault"; `number` ties what belongs together."""
    body = pickle.dumps((kind, number, what))
    return len(body).to_bytes(_LENGTH_BYTES, "big") + body


def read_now(end: socket.socket) -> Any:
    """The argument of what is told first, before there is a loop. Raises `ConnectionError` where nothing comes."""
    length = int.from_bytes(_exactly(end, _LENGTH_BYTES), "big")
    return _parsed(_exactly(end, length))[2][1]


class Line:
    """
    One end, on the running loop.

    answer   answers what the other end asks
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: Answer) -> None:
        self._reader = reader
        self._writer = writer
        self._answer = answer
        self._numbers = itertools.count()
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._answering: set[asyncio.Task[None]] = set()
        self.is_gone = False

    @classmethod
    async def over(cls, end: socket.socket, answer: Answer) -> "Line":
        """Over one socket of a pair, which is the line's from now on."""
        return cls(*await asyncio.open_connection(sock=end), answer)

    async def ask(self, question: str, argument: object = None, *, patience_s: float | None = PATIENCE_S) -> Any:
        """The other end's answer; `patience_s` None: however long it takes."""
        if self.is_gone:
            raise ConnectionError("the other end is gone")
        number = next(self._numbers)
        answer = self._asked[number] = asyncio.get_running_loop().create_future()
        try:
            self._writer.write(frame("ask", number, question, argument))
            # Not `asyncio.timeout`: requests may begin without a task (eager.py).
            await asyncio.wait((answer,), timeout=patience_s)
            if not answer.done():
                raise TimeoutError(f"no answer within {patience_s:g} s")
            return answer.result()
        finally:
            del self._asked[number]

    def tell(self, question: str, argument: object) -> None:
        """What needs no answer."""
        self._writer.write(frame("ask", next(self._numbers), question, argument))

    async def run(self) -> None:
        """Read what comes until the other end is gone."""
        try:
            while True:
                length = int.from_bytes(await self._reader.readexactly(_LENGTH_BYTES), "big")
                self._take(*_parsed(await self._reader.readexactly(length)))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.is_gone = True
            self._writer.close()
            for answer in self._asked.values():
                if not answer.done():
                    answer.set_exception(ConnectionError("the other end is gone"))
            for task in self._answering:
                task.cancel()

    def _take(self, kind: str, number: int, what: tuple[Any, ...]) -> None:
        if kind == "ask":
            task = asyncio.create_task(self._reply(number, *what))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)
            return
        answer = self._asked.get(number)
        if answer is None or answer.done():  # nobody waits any more
            return
        if kind == "answer":
            answer.set_result(*what)
        else:
            answer.set_exception(ConnectionError(*what))

    async def _reply(self, number: int, question: str, argument: object) -> None:
        try:
            reply = frame("answer", number, await self._answer(question, argument))
        except OSError as error:
            reply = frame("fault", number, str(error))
        except Exception as error:  # noqa: BLE001 - whatever it is: else whoever asked would wait
            _log.exception("the question %s could not be answered", question)
            reply = frame("fault", number, f"{question} could not be answered: {type(error).__name__}")
        if not self.is_gone:
            self._writer.write(reply)


def _parsed(body: bytes) -> Any:
    return pickle.loads(body)  # noqa: S301 - from a process of ours alone, see the module


def _exactly(end: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = end.recv(size - len(parts))
        if not part:
            raise ConnectionError("the supervisor is gone")
        parts += part
    return bytes(parts)
