"""A real bridge that is killed 200 times at random moments of its life: nothing acknowledged is lost, copies are equal."""

import os
import random
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.copies import assert_equal, copies_at
from support.lives import EVENTS, POISON, Lives, judge, settle, trace_of
from support.otlp_answers import Answer
from support.otlp_sink import OtlpSink
from support.service import otel_bridge, running

KILLS = 200
DIRECTORIES = 4
"""So many bridges live at once: while one starts another is under load."""
SEED = int(os.environ.get("KILLS_SEED", random.SystemRandom().randrange(10**9)))
SETTINGS = {
    "PARKING__POLICY": "park",
    "EXPORT__RETRY_INITIAL_S": "0.05",
    "EXPORT__RETRY_MAX_S": "0.1",
    "EXPORT__LINGER_MS": "5",
    "EXPORT__MAX_REQUEST_BYTES": "65536",
    "SPOOL__MEMORY_BYTES": "100000",
}
TWO = 0
"""The directory whose bridges have a second destination, which is slower, takes all, and is there when the other is away."""


def live_and_die(folder: Path, number: int) -> "Counter[str]":
    """The lives on one directory, all of whose acknowledged events arrive; where they ended, and what was counted."""
    folder.mkdir()
    with OtlpSink() as sink, OtlpSink() as archive, running(folder, sink, **SETTINGS, **second(archive, number)) as service:
        sink.judge = judge
        archive.answer = Answer(delay_s=0.03)
        lives = Lives(service, random.Random(SEED + number))  # noqa: S311 - the seed is printed, to do it again
        service.process.kill()
        service.channel.close()
        kills = 0
        while kills < KILLS // DIRECTORIES:
            kills += lives.live()
        service.start()
        lives.upload(service)
        settle(service)
        if number == TWO:
            service.settle("archive")
            assert service.counts("dropped_events", "archive") == {}
        service.assert_books_balance()
        ledger = service.ledger()
        assert ledger.accepted + ledger.recovered == ledger.emitted + ledger.dropped
        assert set(service.counts("dropped_events")) <= {("export_invalid",)}
        assert set(service.counts("parking_outgoing_events")) <= {("mapping",)}
        assert not any(POISON in one.payload for one in sink.received if one.answer.code.value[0] == 0)
        assert service.stop() == 0
        again = otel_bridge("spool", "replay", "--data-dir", folder / "data", "--otlp-endpoint", sink.grpc_endpoint)
        assert again.returncode == 0, again.stderr
        extra = sum(copies_of_all(each, lives.acknowledged) for each in ([sink, archive] if number == TWO else [sink]))
        return lives.deaths + Counter({"acknowledged events": EVENTS * len(lives.acknowledged), "spans sent twice": extra})


def second(archive: OtlpSink, number: int) -> dict[str, str]:
    """The settings of the second destination, where there is one."""
    settings = {"ENDPOINT": archive.grpc_endpoint, "LINGER_MS": "5", "RETRY_INITIAL_S": "0.05", "RETRY_MAX_S": "0.1"}
    return {f"DESTINATIONS__ARCHIVE__{name}": value for name, value in settings.items()} if number == TWO else {}


def copies_of_all(sink: OtlpSink, acknowledged: set[int]) -> int:
    """A back end has all that was acknowledged, resolved, and equal where it came twice; how many spans there are too many."""
    found = copies_at(sink)
    for sequence in acknowledged:
        assert len(found[trace_of(sequence)]) == EVENTS, sequence
    assert not [span for spans in found.values() for span in spans.values() if b"late-" in span[0] and b"no_mapping" in span[0]]
    return assert_equal(found)


@pytest.mark.timeout(600)
def test_kills_at_any_moment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """While it starts, takes, resolves, parks, releases, sends, keeps dead letters, drains: what was acknowledged arrives."""
    with ThreadPoolExecutor(DIRECTORIES) as threads:
        ends = [threads.submit(live_and_die, tmp_path / str(number), number) for number in range(DIRECTORIES)]
    try:
        total = sum((end.result() for end in ends), Counter[str]())
    except BaseException:
        sys.stderr.write(f"seed {SEED}: KILLS_SEED={SEED} draws the same lives\n")
        raise
    with capsys.disabled():
        told = "".join(f"\n    {count:6} {what}" for what, count in total.items())
        sys.stdout.write(f"\n{KILLS} kills, seed {SEED}:{told}\n")
    phases = ("starting, before that", "taking requests", "draining after SIGTERM")
    assert min(total[phase] for phase in phases) > 0
    assert sum(total[phase] for phase in (*phases, "starting, the spool is open")) == KILLS
    assert total["with requests that had no answer"] > 0
    assert total["spans sent twice"] > 0, "no kill met a request on its way"
