"""What is freed is kept."""

import platform
import subprocess
import sys

import pytest

from otel_bridge.pipeline.memory import KEPT_BYTES

COUNT_FAULTS = """
import resource, sys
from otel_bridge.pipeline.memory import keep_freed_memory
kept = sys.argv[1] == "keep" and keep_freed_memory()
def write(megabytes):
    return [b"x" * (1 << 20) for _ in range(megabytes)] and None
write(8)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    write(8)
print(kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no such call")
def test_memory_that_was_freed_is_not_taken_from_the_kernel_again() -> None:
    """Twenty times the same megabytes cost page faults once, where they else cost them each time."""

    def faults(way: str) -> tuple[str, int]:
        done = subprocess.run([sys.executable, "-c", COUNT_FAULTS, way], check=True, capture_output=True, text=True)
        kept, count = done.stdout.split()
        return kept, int(count)

    kept, few = faults("keep")
    _, many = faults("let go")
    assert kept == "True"
    assert few * 10 < many
    assert KEPT_BYTES > 8 << 20


GIVE_BACK = """
from otel_bridge.pipeline.memory import give_back_memory, keep_freed_memory
from otel_bridge.telemetry.process import memory_rss_bytes
keep_freed_memory()
blocks = [b"x" * (1 << 20) for _ in range(48)]
full = memory_rss_bytes()
del blocks
kept = memory_rss_bytes()
give_back_memory()
print(full >> 20, kept >> 20, memory_rss_bytes() >> 20)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no such call")
def test_what_is_kept_can_be_given_back() -> None:
    """48 MiB that were freed and kept are the kernel's again when they are asked for."""
    done = subprocess.run([sys.executable, "-c", GIVE_BACK], check=True, capture_output=True, text=True)
    full, kept, left = map(int, done.stdout.split())
    assert full - kept < 8
    assert full - left > 40


CYCLES = """
import gc, weakref
from otel_bridge.pipeline.memory import give_back_memory, look_for_cycles_less
class Kept: pass
before = gc.get_threshold()[0]
look_for_cycles_less()
kept = Kept()
kept.self = kept
gone = weakref.ref(kept)
del kept
held = [[] for _ in range(2 * before)]
alive = gone() is not None
give_back_memory()
print(alive, gone() is not None)
"""


def test_cycles_are_found_when_memory_is_short() -> None:
    """What only a cycle holds stays past the interpreter's usual look, and goes when memory is asked for."""
    done = subprocess.run([sys.executable, "-c", CYCLES], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["True", "False"]
