"""Where spans go: a bridge has one destination or several, each of which gets every event."""

DEFAULT = "default"
"""The name of the destination that the section `export` describes."""
