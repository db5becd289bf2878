"""
The command line. The only place that ends the process.

Exit codes: 0 done; 1 the input or the bridge says no, with one line on stderr that says why; 2 the command is written wrongly.
"""

import io
import sys

import click

from otel_bridge import __version__
from otel_bridge.cli.lazy import LazyGroup
from otel_bridge.errors import BridgeError

_COMMANDS = (
    "serve",
    "mapping",
    "send",
    "watch",
    "replay",
    "inspect",
    "token",
    "config",
    "header",
    "demo",
    "spool",
    "registry",
    "loadgen",
    "worker",
)


@click.group(
    cls=LazyGroup,
    modules={name: f"otel_bridge.cli.{name}" for name in _COMMANDS},
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)
@click.version_option(__version__, prog_name="otel-bridge")
def otel_bridge() -> None:
    """ExecuTorch delegate events as OpenTelemetry spans."""


def main() -> None:
    """Run the command line and exit."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # what the terminal cannot show must not end a command
    try:
        sys.exit(otel_bridge.main(prog_name="otel-bridge", standalone_mode=False))  # an exit code, or None
    except click.exceptions.Abort:
        click.echo("interrupted", err=True)
        sys.exit(1)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except BridgeError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(1)
    except UnicodeEncodeError as error:  # arguments are the only text that may hold what is not UTF-8
        click.echo(f"Error: the argument {ascii(error.object)[:80]} is not UTF-8", err=True)
        sys.exit(2)
    except BrokenPipeError:  # the reader of our output, such as head, has seen enough
        sys.stderr.close()
        sys.exit(1)


if __name__ == "__main__":
    main()
