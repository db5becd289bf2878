"""What looks after tokens and certificates while a bridge runs."""

import asyncio
import logging
import threading
from pathlib import Path
from typing import Any

import pytest
from support.tokens import ALL, Issuer

from otel_bridge.auth.gate import Shown
from otel_bridge.config.load import load
from otel_bridge.errors import ConfigError
from otel_bridge.model.identity import Identity, Scope
from otel_bridge.wire import entrance
from otel_bridge.wire.entrance import Entrance, open_entrance


def entrance_of(**overrides: object) -> Entrance:
    """The entrance that settings describe."""
    config = load(None, {name.replace("__", "."): value for name, value in overrides.items()})
    return open_entrance(config, lambda _door, _reason: None)


def test_without_auth_there_is_no_gate() -> None:
    """By default nothing stands before the doors, and nothing is looked after."""
    nothing = entrance_of()
    assert (nothing.gate, nothing.tls) == (None, None)


def test_who_does_not_answer_holds_up_nobody(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one look waits, as for an identity provider, the others go on."""
    monkeypatch.setattr(entrance, "LOOK_S", 0.001)
    others, waiting, answer = asyncio.Event(), threading.Event(), threading.Event()
    ended: list[bool] = []

    async def check() -> None:
        loop = asyncio.get_running_loop()

        def waits() -> None:
            waiting.set()
            ended.append(answer.wait(20))

        def goes_on() -> None:
            if waiting.is_set():
                loop.call_soon_threadsafe(others.set)

        watched = Entrance(None, None, waits, goes_on)
        watched.start()
        await others.wait()
        assert ended == []
        answer.set()
        await watched.stop()

    run(check())


def test_one_failure_does_not_end_the_looking(
    run: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What goes wrong in one look is logged, and the others go on: an unforeseen fault must not freeze tokens for ever."""
    monkeypatch.setattr(entrance, "LOOK_S", 0.001)
    seen = asyncio.Event()

    async def check() -> None:
        loop = asyncio.get_running_loop()
        looks = 0

        def fails() -> None:
            raise ZeroDivisionError

        def counts() -> None:
            nonlocal looks
            looks += 1
            if looks == 3:
                loop.call_soon_threadsafe(seen.set)

        watched = Entrance(None, None, fails, counts)
        watched.start()
        await seen.wait()
        await watched.stop()

    with caplog.at_level(logging.ERROR, "otel_bridge"):
        run(check())
    assert caplog.text.count("it is tried again") >= 2


def test_tokens_of_a_file_join_those_of_the_data_directory(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Tokens of both places let in; without any a warning says how to make one."""
    own, mounted = Issuer(tmp_path / "data" / "tokens.json"), Issuer(tmp_path / "tokens.json")
    with caplog.at_level(logging.WARNING, "otel_bridge"):
        entrance_of(auth__enabled=True, server__data_dir=str(tmp_path / "data"))
    assert "nobody comes in; make one with `otel-bridge token create`" in caplog.text
    shown = [own.issue(*ALL, name="own"), mounted.issue(*ALL, name="mounted")]
    gate = entrance_of(auth__enabled=True, auth__tokens_file=mounted.file, server__data_dir=str(tmp_path / "data")).gate
    assert gate is not None
    found = [gate.decide(Shown([f"Bearer {each}"]), Scope.ADMIN) for each in shown]
    assert [each.name for each in found if isinstance(each, Identity)] == ["own", "mounted"]


def test_files_are_read_at_start(tmp_path: Path) -> None:
    """A file of tokens that holds something else keeps the bridge from starting."""
    file = tmp_path / "tokens.json"
    file.write_text("secret")
    with pytest.raises(ConfigError, match="holds no tokens") as caught:
        entrance_of(auth__enabled=True, auth__tokens_file=file)
    assert "secret" not in str(caught.value)
