"""Random streams: (seed, stream, index) names one, whichever process draws from it and in whatever order."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

RETRY_SEED_OFFSET = 1000
"""What a retry of an iteration adds to its seed (docs/td_outer_loop.md, `--on-fail`)."""


class Stream(IntEnum):
    """What a stream is for. Values are part of the reproducibility contract: never renumber."""

    SAMPLE = 0  # which (frame, seat) rows, and Bernoulli(k)
    ROW = 1  # everything inside one row: partial prefix, MC flag, search
    FIT = 2  # batch order
    SPLIT = 3  # train / validation games
    SELF_PLAY = 4  # games that we play ourselves
    ARENA = 5  # line-ups, and the luck of each seat of a tournament's games
    POLICY = 6  # a policy's games, first parameters and batch order


def stream(seed: int, kind: Stream, *index: int) -> np.random.Generator:
    """The generator of one stream, by `SeedSequence` spawning (numpy, "Parallel random number generation").

    `seed` is the stage's seed: the run's seed + iter_index (+ RETRY_SEED_OFFSET in a retry).
    """
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(int(kind), *index))))
