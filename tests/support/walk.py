"""
A page walked as a reader would: block by block, in a terminal, in the checkout.

* `console`  each `$ command` is run by bash; what stands below is what it prints, with `...` for any text. It must succeed,
             or exit with 1 where the page shows its `Error:`.
* `sh`       run by bash, must succeed.
* `python`   run as a program, must succeed.
* `json`     parsed; a mapping, or the source of one, is read as such.
* `toml`     parsed; a configuration that is no file is loaded, entry points are offered to the blocks that follow.
* `proto`    each line stands in the protocol files.
* `kotlin`, `swift`, `cpp`   the file that the comment in front names, to the letter.
* `text`     a picture.

The walk has a folder of its own in which the checkout shows through, ports of its own (those that the page names are
exchanged for free ones wherever they stand), and a real OTLP back end.
"""

import json
import os
import re
import subprocess
import sys
import tomllib
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from support.engines import ROOT
from support.otlp_sink import OtlpSink
from support.pages import Block
from support.processes import LOOPBACK, Process, free_ports

from otel_bridge.config.load import load
from otel_bridge.mapping.source import read_source

LANGUAGES = frozenset({"console", "sh", "python", "json", "toml", "proto", "text", "kotlin", "swift", "cpp"})

# The program itself; only the bridge that it talks to by default is the one of this walk.
_PROGRAM = """\
#!{python}
from otel_bridge.cli.main import main, otel_bridge

server = {{"server": "{server}"}}
mapping = dict.fromkeys(("upload", "list", "show", "delete", "alias", "missing"), server)
otel_bridge.context_settings["default_map"] = {{"send": server, "watch": server, "mapping": mapping}}
if __name__ == "__main__":  # a decoder's process imports this again
    main()
"""


class Walk:
    """One page, inside a `with` block. `sink` is the back end that its spans go to."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = ExitStack()
        self._background: list[Process] = []
        self._grpc, self._http = free_ports(2)
        self.sink = OtlpSink()

    def __enter__(self) -> Self:
        self._stack.enter_context(self.sink)
        for entry in ROOT.iterdir():
            if entry.name != ".git":
                (self._folder / entry.name).symlink_to(entry)
        programs = self._folder / ".programs"
        programs.mkdir()
        program = programs / "otel-bridge"
        program.write_text(_PROGRAM.format(python=sys.executable, server=f"{LOOPBACK}:{self._grpc}"))
        program.chmod(0o755)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "PYTHON"))}
        path = os.pathsep.join([str(programs), str(Path(sys.executable).parent), kept["PATH"]])
        self._environment = {**kept, "PATH": path, "COLUMNS": "120", "HOME": str(self._folder)}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()

    def finish(self) -> int:
        """Stop what runs in the background, all of it cleanly; how many programs that were."""
        for process in self._background:
            assert process.stop() == 0, process.log_tail()
        return len(self._background)

    def step(self, block: Block) -> None:
        """Do what a block says."""
        text = self._to_walk(block.text)
        if block.file:
            (self._folder / block.file).write_text(text)
        if block.in_background:
            self._start(block)
        elif block.language == "console":
            for command, shown in dialogue(block.text):
                self._converse(block, self._to_walk(command), shown)
        elif block.language == "sh":
            self._run(block, ["bash", "-euo", "pipefail", "-c", text])
        elif block.language == "python":
            if not block.file:
                self._run(block, [sys.executable, "-c", text])
        else:
            _READ[block.language](self, block, text)

    @property
    def _addresses(self) -> dict[str, str]:
        """What pages name -> what it is in this walk."""
        return {
            "127.0.0.1:4417": f"{LOOPBACK}:{self._grpc}",
            "127.0.0.1:4418": f"{LOOPBACK}:{self._http}",
            "http://localhost:4317": self.sink.grpc_endpoint,
        }

    def _to_walk(self, text: str) -> str:
        for documented, own in self._addresses.items():
            text = text.replace(documented, own)
        return text

    def _to_page(self, text: str) -> str:
        for documented, own in self._addresses.items():
            text = text.replace(own, documented)
        return text

    def _start(self, block: Block) -> None:
        ((command, shown),) = dialogue(block.text)
        settings = {
            "OTEL_BRIDGE_SERVER__GRPC_ADDRESS": f"{LOOPBACK}:{self._grpc}",
            "OTEL_BRIDGE_SERVER__HTTP_ADDRESS": f"{LOOPBACK}:{self._http}",
            "OTEL_EXPORTER_OTLP_ENDPOINT": self.sink.grpc_endpoint,
        }
        log = self._folder / f"background-{len(self._background)}.log"
        shell = ["bash", "-c", f"cd {self._folder} && exec env {self._to_walk(command)}"]
        process = self._stack.enter_context(Process(shell, log=log, environment=self._environment | settings))
        assert shown, f"{block}: the page does not show by what one sees that it is ready"
        process.wait_until(lambda: agrees(self._to_page(log.read_text()), shown))
        self._background.append(process)

    def _converse(self, block: Block, command: str, shown: str) -> None:
        fails = any(line.startswith("Error: ") for line in shown.splitlines())
        printed = self._to_page(self._run(block, ["bash", "-uo", "pipefail", "-c", command], code=1 if fails else 0))
        assert agrees(printed, shown), f"{block}: {command}\n--- the page shows\n{shown}--- it prints\n{printed}"

    def _run(self, block: Block, command: list[str], *, code: int = 0) -> str:
        done = subprocess.run(
            command,
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == code, f"{block}: {command[-1]}\nends with {done.returncode}:\n{done.stdout}"
        return done.stdout

    def _read_json(self, _block: Block, text: str) -> None:
        value = json.loads(text)
        if "mapping" in value or "debug_handle_map" in value:
            read_source(text.encode())

    def _read_toml(self, block: Block, text: str) -> None:
        value = tomllib.loads(text)
        if block.file:
            return  # what it is for, the page shows by a command
        if "project" not in value:
            path = self._folder / "page.toml"
            path.write_text(text)
            load(path)
            return
        information = self._folder / "page-1.0.dist-info"
        information.mkdir()
        (information / "METADATA").write_text("Metadata-Version: 2.1\nName: page\nVersion: 1.0\n")
        points = value["project"]["entry-points"].items()
        lines = [f"[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in each.items()) for group, each in points]
        (information / "entry_points.txt").write_text("\n".join(lines))

    def _read_proto(self, block: Block, text: str) -> None:
        known = {_one_space(line) for path in (ROOT / "proto").rglob("*.proto") for line in path.read_text().splitlines()}
        unknown = [line for line in text.splitlines() if _one_space(line) not in known]
        assert unknown == [], f"{block}: no protocol file says so"

    def _compare(self, block: Block, text: str) -> None:
        assert block.shows is not None, f"{block}: the page does not say which file this is"
        assert text == (ROOT / block.shows).read_text(), f"{block}: {block.shows} is not what the page shows"

    def _look(self, _block: Block, _text: str) -> None:
        """A picture."""


_READ = {
    "json": Walk._read_json,
    "toml": Walk._read_toml,
    "proto": Walk._read_proto,
    "text": Walk._look,
    **dict.fromkeys(("kotlin", "swift", "cpp"), Walk._compare),
}


def dialogue(text: str) -> list[tuple[str, str]]:
    """(command, what it prints) of a console block; a command goes on in the next line where it ends in a backslash."""
    found: list[tuple[str, str]] = []
    continued = False
    for line in text.splitlines(keepends=True):
        if line.startswith("$ "):
            found.append((line[2:], ""))
        elif continued:
            found[-1] = (found[-1][0] + line, "")
        else:
            assert found, f"a console block begins with {line!r}, which is no `$ command`"
            found[-1] = (found[-1][0], found[-1][1] + line)
        continued = line.endswith("\\\n") and not found[-1][1]
    return found


def agrees(printed: str, shown: str) -> bool:
    """Whether a page's `shown`, with `...` for any text, is what was printed. Space at the ends of lines does not count."""
    pattern = re.escape(_trimmed(shown)).replace(r"\.\.\.", "(?:.|\n)*?")
    return re.fullmatch(pattern, _trimmed(printed)) is not None


def _trimmed(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())


def _one_space(line: str) -> str:
    return " ".join(line.split())
