"""Where spans go: a bridge has one destination or several, each of which gets every event."""

DEFAULT = "default"
"""The name of the destination that the section `export` describes."""
MAX_DESTINATIONS = 62
"""At a time, and names that the file of a spool ever knows: bits of SQLite's integers, without the first and the sign."""
