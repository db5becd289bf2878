"""
The tables of a spool's file, format 3.

`records` wait for the pipeline, `parked` ones for their mapping, `quarantine` holds what could not be read.

A destination has a number, from 1, and a row in `books` for ever, also once the settings do not name it any more. `pending` of
a record is a mask: bit `number` is set while that destination is not done with it, and with the last bit the row goes. For
each destination, accepted = emitted + the sum of its `drops` + the events of the rows that have its bit; where that is not so,
the file was damaged. A record may be in both `records` and `parked`, for different destinations.

`seen` holds requests of a while ago, so that one that is sent again is known. `clock` says when the file was last written.

Format 1 had no destinations, format 2 no records of version 2 (encode.py); upgrade.py makes both format 3.
"""

FORMAT = 3
"""`user_version` of the file."""

APPLICATION_ID = 0x4F42_5350
"""`application_id` of the file, "OBSP": tells a spool from any other database of SQLite."""

ROW_BYTES = 64
"""About what a row takes besides its body."""

_ROW = """
    number   INTEGER PRIMARY KEY,  -- ascending in the order of reading
    events   INTEGER NOT NULL,
    size     INTEGER NOT NULL,     -- bytes that count against the bounds
    kept_ns  INTEGER NOT NULL,     -- age clock when it began to wait for its turn
    build    TEXT,                 -- build that the streams were bound to since; NULL: none
    checksum INTEGER NOT NULL,     -- CRC-32 of body
    body     BLOB NOT NULL         -- encode.py
"""

ROW_COLUMNS = "events, size, kept_ns, build, checksum, body"

PENDING = "pending INTEGER NOT NULL DEFAULT 2"
"""
The last column of `records` and `parked`. The default is the bit of destination 1, whose are all records of format 1. There is
no bit 0, so the masks of up to six destinations take one byte whichever bits are left, and SQLite changes one in place: the
body, of whatever size, is not written again.
"""

CREATE_BOOKS = """
CREATE TABLE clock (id INTEGER PRIMARY KEY CHECK (id = 1), age_ns INTEGER, noted_ns INTEGER);
CREATE TABLE books (
    destination INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, accepted INTEGER NOT NULL, emitted INTEGER NOT NULL
);
CREATE TABLE drops (
    destination INTEGER NOT NULL, reason TEXT NOT NULL, events INTEGER NOT NULL, PRIMARY KEY (destination, reason)
) WITHOUT ROWID;
CREATE TABLE seen (           -- in order, and without an index: it is read once, at the start
    key BLOB NOT NULL,        -- names a request
    digest BLOB NOT NULL,     -- of what it said
    answer BLOB NOT NULL,     -- what its sender was told
    noted_ns INTEGER NOT NULL -- age clock
);
"""

CREATE = f"""
BEGIN;
CREATE TABLE records (waited INTEGER NOT NULL, {_ROW}, {PENDING});
CREATE TABLE parked (
    tenant TEXT NOT NULL, awaited_build TEXT NOT NULL, name TEXT NOT NULL, version TEXT NOT NULL, until_ns INTEGER NOT NULL,
    {_ROW}, {PENDING}
);
CREATE INDEX parked_by_awaited ON parked (tenant, awaited_build, name, version);
CREATE INDEX parked_by_until ON parked (until_ns);
CREATE TABLE quarantine (reason TEXT NOT NULL, {_ROW});
{CREATE_BOOKS}
INSERT INTO clock VALUES (1, 0, 0);
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {FORMAT};
COMMIT;
"""


def bit(number: int) -> int:
    """What `pending` has set for a destination."""
    return 1 << number
