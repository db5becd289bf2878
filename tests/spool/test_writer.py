"""Writing to a spool's file that cannot be written any more."""

import sqlite3
from pathlib import Path

from otel_bridge.spool.file import SpoolFile
from otel_bridge.spool.opening import SYSTEM, open_file
from otel_bridge.spool.writer import Work, Writer


def test_nothing_is_tried_again_with_a_broken_file(tmp_path: Path) -> None:
    """What is owed stays owed: a thread that tried for ever would take the time that the others need to stop."""

    def fail(_: SpoolFile) -> None:
        raise sqlite3.DatabaseError("database disk image is malformed")

    with open_file(tmp_path, ("default",), "FULL", SYSTEM).file as file:
        writer = Writer(file, tmp_path)
        writer.commit([Work(SpoolFile.note_time), Work(fail)])
        assert (len(writer.owed), writer.fault is not None, writer.retry_at_s) == (2, True, None)
