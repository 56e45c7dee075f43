"""A run of which something is killed again and again. `benchmarks/random_kills.py` does it to Orbit Wars."""

from __future__ import annotations

import random
from collections import Counter

from tests.crash.sweep import Sweep


def test_a_run_that_is_killed_again_and_again_ends_as_if_undisturbed(sweep: Sweep) -> None:
    rng, kills = random.Random(1), Counter[str]()
    with sweep.lend("whole") as bench:
        while kills.total() < 8:  # a run may be through before many have come
            tally = bench.soak(rng)
            assert not tally.problems
            kills += tally.kills
    assert len(kills) > 1
