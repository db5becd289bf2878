"""
What came of what was sent: a line for each, and a summary.

Invariant: with `as_json` standard output is JSON lines and nothing else: an object for each file or block, then one with
`summary`. Faults stand on standard error, too.
"""

import json
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import click

from otel_bridge.telemetry.logs import escape
from otel_bridge.v1 import profiling_pb2 as pb


def printable(text: str) -> str:
    """Text for a terminal: names of files come from devices, too."""
    return escape(text, len(text))


@dataclass(slots=True)
class Account:
    """
    The tally of one command.

    sent, refused   files and blocks that the bridge took; that it did not, or that could not be read
    accepted        events
    rejected        events, by reason
    """

    as_json: bool
    sent: int = 0
    refused: int = 0
    accepted: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    started: float = field(default_factory=time.monotonic)

    def note_answer(self, name: str, answer: pb.UploadETDumpResponse | pb.ExportEventsResponse) -> None:
        """Count and show what the bridge took."""
        rejected = {rejection.reason: rejection.events for rejection in answer.rejected}
        self.sent += 1
        self.accepted += answer.accepted
        self.rejected.update(rejected)
        if self.as_json:
            blocks = {"blocks": answer.blocks} if isinstance(answer, pb.UploadETDumpResponse) else {}
            counts = {"file": name, "accepted": answer.accepted, "rejected": rejected, **blocks}
            click.echo(json.dumps({**counts, "first_rejection": answer.first_rejection}))
            return
        counted = "".join(f", {events} {reason}" for reason, events in rejected.items())
        click.echo(f"{printable(name)}: {answer.accepted} events accepted{counted}")
        if answer.first_rejection:
            click.echo(f"  first: {answer.first_rejection}", err=True)

    def note_fault(self, name: str, fault: str) -> None:
        """Count and show what was not taken."""
        self.refused += 1
        click.echo(f"Error: {printable(fault)}", err=True)
        if self.as_json:
            click.echo(json.dumps({"file": name, "error": fault}))

    def show_summary(self, unsent: int = 0) -> None:
        """Show what it comes to; `unsent` files were not tried, because the bridge was away. One file is its own summary."""
        seconds = time.monotonic() - self.started
        if self.as_json:
            summary: dict[str, Any] = {"files": self.sent + self.refused + unsent, "sent": self.sent, "refused": self.refused}
            summary |= {"unsent": unsent, "accepted": self.accepted, "rejected": dict(self.rejected)}
            click.echo(json.dumps({"summary": {**summary, "seconds": round(seconds, 3)}}))
        elif self.sent + self.refused + unsent != 1:
            rejected = "".join(f", {events} {reason}" for reason, events in self.rejected.items())
            refused = f", {self.refused} refused" if self.refused else ""
            left = f", {unsent} not sent" if unsent else ""
            click.echo(f"{self.sent} sent{refused}{left}: {self.accepted} events accepted{rejected}, {seconds:.1f} s")
