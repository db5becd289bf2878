"""
Allow-lists of attribute keys.

An entry is a key, `prefix.*` (every key below the prefix, at any depth) or `*` (every key); with `!` in front it takes away.
Keys of delegate metadata have no dots; there a prefix may end anywhere.
Taking away wins, whatever the order.
"""

from collections.abc import Callable, Iterable


def allow(entries: Iterable[str]) -> Callable[[str], bool]:
    """A predicate that tells whether a key is on the list."""
    listed = list(entries)
    kept = _match([entry for entry in listed if not entry.startswith("!")])
    taken = _match([entry[1:] for entry in listed if entry.startswith("!")])
    return lambda key: kept(key) and not taken(key)


def _match(entries: list[str]) -> Callable[[str], bool]:
    exact = frozenset(entries)
    prefixes = tuple(entry[:-1] for entry in entries if entry.endswith("*"))  # "*" becomes "", the prefix of all
    return lambda key: key in exact or key.startswith(prefixes)
