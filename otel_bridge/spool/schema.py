"""
The tables of a spool's file.

`records` wait for the pipeline, `parked` ones for their mapping, `quarantine` holds what could not be read. `books` is one row:
events that were ever kept, and events that are gone (done, or given up), and when that was last written. The difference is what
the other tables hold; where it is not, the file was damaged.
"""

FORMAT = 1
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

CREATE = f"""
BEGIN;
CREATE TABLE records (waited INTEGER NOT NULL, {_ROW});
CREATE TABLE parked (
    tenant TEXT NOT NULL, awaited_build TEXT NOT NULL, name TEXT NOT NULL, version TEXT NOT NULL, until_ns INTEGER NOT NULL,
    {_ROW}
);
CREATE INDEX parked_by_awaited ON parked (tenant, awaited_build, name, version);
CREATE INDEX parked_by_until ON parked (until_ns);
CREATE TABLE quarantine (reason TEXT NOT NULL, {_ROW});
CREATE TABLE books (id INTEGER PRIMARY KEY CHECK (id = 1), kept INTEGER, gone INTEGER, age_ns INTEGER, noted_ns INTEGER);
INSERT INTO books VALUES (1, 0, 0, 0, 0);
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {FORMAT};
COMMIT;
"""
