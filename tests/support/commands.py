"""The commands of a group, each loaded."""

import click


def commands_of(group: click.Group) -> dict[str, click.Command]:
    """By name, those that help shows; each name that is listed has a command."""
    context = click.Context(group)
    found = {name: group.get_command(context, name) for name in group.list_commands(context)}
    assert None not in found.values()
    return {name: command for name, command in found.items() if command is not None and not command.hidden}
