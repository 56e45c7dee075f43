"""A run of which something is killed again and again. `benchmarks/random_kills.py` does it to Orbit Wars."""

from __future__ import annotations

import random

from tests.crash.sweep import Sweep


def test_a_run_that_is_killed_again_and_again_ends_as_if_undisturbed(sweep: Sweep) -> None:
    with sweep.lend("whole") as bench:
        tally = bench.soak(random.Random(0), mean_s=0.4)
    assert not tally.problems
    assert tally.starts > 1
    assert tally.kills.total() > 1
