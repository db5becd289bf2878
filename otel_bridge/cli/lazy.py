"""
Commands that are loaded when somebody asks for them: `send` does not wait for what only `serve` needs.

Invariant: help and completion show every command; they load all of them.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click


class LazyGroup(click.Group):
    """
    A group of commands in modules of their own.

    modules   name of a command -> the module that has it, under the same name
    """

    def __init__(self, *args: Any, modules: Mapping[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._modules = dict(modules)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all commands, those included that are not loaded."""
        return sorted({*super().list_commands(ctx), *self._modules})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, loaded if it is not; None: there is none."""
        if cmd_name in self._modules and cmd_name not in self.commands:
            self.add_command(getattr(import_module(self._modules[cmd_name]), cmd_name))
        return super().get_command(ctx, cmd_name)
