"""The bridge takes what the system gives it of open files, and says where that is too little."""

import subprocess
import sys

RAISE = """
import logging, resource
from otel_bridge.cli.open_files import raise_open_files
logging.basicConfig(format="%(message)s")
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 200))
raise_open_files({wanted})
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def raised(wanted: int) -> tuple[str, str]:
    """What a process of its own prints, and logs."""
    done = subprocess.run([sys.executable, "-c", RAISE.format(wanted=wanted)], check=True, capture_output=True, text=True)
    return done.stdout.strip(), done.stderr.strip()


def test_the_soft_limit_is_raised() -> None:
    """As far as is wanted, without a word, and never lowered."""
    assert raised(200) == ("200 200", "")
    assert raised(150) == ("150 200", "")
    assert raised(10) == ("64 200", "")


def test_too_little_is_told() -> None:
    """Where the hard limit is below what the connections need, the log says so, and how to raise it."""
    printed, logged = raised(201)
    assert printed == "200 200"
    assert logged == "the bridge may open 200 files; ingress.max_connections needs 201: raise `ulimit -n`"
