"""Every implementation of the spool keeps the protocol's promises."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.destination_laws import LAWS_OF_DESTINATIONS
from support.spool_laws import LAWS
from support.spools import MAKERS, Law, Make, check_spool

Run = Callable[[Any], Any]


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__.removeprefix("make_"))
@pytest.mark.parametrize("law", [*LAWS, *LAWS_OF_DESTINATIONS], ids=lambda law: law.__name__)
def test_spool(law: Law, make: Make, run: Run, tmp_path: Path) -> None:
    """One law, for one implementation."""
    run(check_spool(law, make, tmp_path))
