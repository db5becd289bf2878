"""The table of docs/privacy.md is that of the code; the one of what is left out is read in tests/config/test_privacy.py."""

import re
from typing import get_args

from support.engines import ROOT

from otel_bridge.config.privacy import SourcePaths
from otel_bridge.spans.withholding import SHOW_PATH

ROW = re.compile(r"^\| `(\w+)`(?:, the default)? \| `?([^`|]+?)`? \| `?([^`|]+?)`? \|$", re.MULTILINE)
HEADER = re.compile(r"^\| `source_paths` \| shown of `([^`]+)` \| of `([^`]+)` \|$", re.MULTILINE)


def test_how_source_paths_are_shown() -> None:
    """Each value of `privacy.source_paths` has a row, with what becomes of both paths."""
    page = (ROOT / "docs" / "privacy.md").read_text()
    header = HEADER.search(page)
    assert header is not None
    rows = {row[1]: (row[2], row[3]) for row in ROW.finditer(page)}
    assert rows.keys() == set(get_args(SourcePaths)) == SHOW_PATH.keys()
    assert rows == {how: (show(header[1]), show(header[2])) for how, show in SHOW_PATH.items()}
