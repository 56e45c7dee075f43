from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.crash.runs import SCENARIOS
from tests.crash.sweep import Sweep


@pytest.fixture(scope="session")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sweep]:
    """The scenarios, each run undisturbed: a quarter of a minute, so all tests of this folder share them."""
    with Sweep(SCENARIOS, tmp_path_factory.mktemp("crash"), jobs=2) as made:
        yield made
