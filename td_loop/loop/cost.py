"""How long an iteration takes and how much disk it needs, before it runs. Pure.

Stage 3 (the inner loop's cost model): at most n_a * budget_s / workers, less where searches have nothing left to
try before their budget ends, plus an overhead for every row and for starting. Stage 4: rows seen by the optimizer,
plus starting. The constants were measured on the built-in game with `benchmarks/bench_cost_model.py` and
`benchmarks/bench_prepare.py`; a run's own earlier iterations correct them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from td_loop.loop.config import RunConfig

SEARCH_CONTENT_S = 0.053
"""Mean time after which a search with no limit is content; taken to be gamma distributed with shape 2."""
PREPARE_START_S = 2.0
"""Start the stage and its workers, load kernels, open the replays."""
PREPARE_ROW_S = 2e-4
"""One row outside its search, on one worker: read the frame, features, the engine's step, V."""
EVALS_PER_S = 365_000.0
"""Candidates that one worker's search evaluates in a second; what `budget_evals` is worth in time."""
FIT_START_S = 3.2
"""Import torch, read and arrange the rows, the baseline."""
FIT_ROW_S = 2e-5
"""One row through forward and backward."""
GATE_START_S = 4.0
"""Start the match of a gate and its workers, load kernels."""
GAME_MOVES = 320
"""Decisions of one game, those of both seats."""
GAME_MOVE_S = 1e-4
"""One of them outside its search: the engine's step, and what it costs to store the game."""
RECENT = 3
"""Iterations of this run that correct the constants."""


def _limit_s(budget_s: float, budget_evals: int | None) -> float:
    return budget_s if budget_evals is None else budget_evals / EVALS_PER_S


@dataclass(frozen=True)
class Work:
    """What an iteration is asked to do; fields as the flags of `td-loop run`."""

    n: int
    k: float
    budget_s: float
    budget_evals: int | None
    workers: int
    epochs: int
    batches_per_epoch: int
    batch_size: int

    @property
    def n_a(self) -> float:
        """Expected agent rows."""
        return self.n * self.k

    @property
    def limit_s(self) -> float:
        """Seconds that one search may take."""
        return _limit_s(self.budget_s, self.budget_evals)

    @property
    def full_search_s(self) -> float:
        """n_a * budget_s / workers: seconds of prepare if every search spends its budget."""
        return self.n_a * self.limit_s / self.workers

    @property
    def search_s(self) -> float:
        """Seconds that the searches are expected to take: the mean of min(limit, time to be content)."""
        return self.n_a * _search_s(self.limit_s) / self.workers


def _search_s(limit_s: float) -> float:
    """Seconds that a search is expected to take."""
    x = 2.0 * limit_s / SEARCH_CONTENT_S
    return -SEARCH_CONTENT_S * math.expm1(-x) - limit_s * math.exp(-x)


def work_of(config: RunConfig) -> Work:
    """What an iteration of this run is asked to do."""
    p, f = config.prepare, config.fit
    return Work(p.n, p.k, p.budget_s, p.budget_evals, p.workers, f.epochs, f.batches_per_epoch, f.batch_size)


@dataclass(frozen=True)
class Cost:
    """Wall seconds of an iteration."""

    prepare_s: float
    fit_s: float
    gate_s: float = 0.0

    @property
    def total_s(self) -> float:
        return self.prepare_s + self.fit_s + self.gate_s


@dataclass(frozen=True)
class Match:
    """A match of two, as a gate plays one.

    Attributes:
        games: how many.
        budget_s: seconds that a move may take; None: see `budget_evals`.
        budget_evals: evaluations that it may take.
        workers: that play.
    """

    games: int
    budget_s: float | None
    budget_evals: int | None
    workers: int

    @property
    def seconds(self) -> float:
        """Wall seconds, by the constants above."""
        move = _search_s(_limit_s(self.budget_s or 0.0, self.budget_evals)) + GAME_MOVE_S
        return GATE_START_S + self.games * GAME_MOVES * move / self.workers


def match_s(match: Match, measured: Sequence[tuple[Match, float, int]]) -> float:
    """Wall seconds that a match will take.

    Args:
        match: as long as it may become.
        measured: those that this run has played, oldest first: the part that was played at one go, its wall
            seconds, and the games after which the match was settled. None yet: the match takes all its games.
    """
    if not measured:
        return match.seconds
    recent = measured[-RECENT:]
    scale = median(wall_s / part.seconds for part, wall_s, _ in recent)
    games = min(match.games, round(median(settled for _, _, settled in recent)))
    return scale * replace(match, games=games).seconds


@dataclass(frozen=True)
class CostModel:
    """The constants above, times what this run has taught.

    Attributes:
        search_scale: of the time that searches take.
        overhead_scale: of all else in prepare.
        fit_scale: of fit.
    """

    search_scale: float = 1.0
    overhead_scale: float = 1.0
    fit_scale: float = 1.0

    def predict(self, work: Work) -> Cost:
        """Wall seconds of one iteration."""
        prepare = self.search_scale * work.search_s + self.overhead_scale * _overhead_s(work)
        return Cost(prepare, self.fit_scale * _fit_s(work))


def _overhead_s(work: Work) -> float:
    return PREPARE_START_S + work.n * PREPARE_ROW_S / work.workers


def _fit_s(work: Work) -> float:
    return FIT_START_S + work.epochs * work.batches_per_epoch * work.batch_size * FIT_ROW_S


def calibrated(measured: Sequence[tuple[Work, Cost]]) -> CostModel:
    """The model corrected by the last `RECENT` iterations measured, oldest first; none: as it is.

    The median keeps one odd iteration (the first compiles kernels) from setting the forecast of all others.
    """
    if not measured:
        return CostModel()
    lessons = [_lesson(work, cost) for work, cost in measured[-RECENT:]]
    return CostModel(*(median(values) for values in zip(*lessons, strict=True)))


def _lesson(work: Work, cost: Cost) -> tuple[float, float, float]:
    """The three scales that would have forecast this iteration exactly."""
    fit = cost.fit_s / _fit_s(work)
    over = cost.prepare_s - work.search_s
    if work.budget_evals is None and over > 0:
        # Searches are bounded by their budget, so what took longer is taken to be overhead.
        return 1.0, over / _overhead_s(work), fit
    both = cost.prepare_s / (work.search_s + _overhead_s(work))
    return both, both, fit


def row_bytes(features: int) -> int:
    """Bytes of one row of `branch_data.npz`."""
    vectors = 4 * features * 4 + 2 * 4 * 4  # features, target, outcome: f32 for 4 seats
    return vectors + 8 + 1 + 1 + 4 + 1 + 1 + 1  # frame id, seat, players, alive, three flags


def disk_bytes(work: Work, features: int, mc_rows: int | None = None) -> int:
    """Bytes a run needs at its peak: two caches that retention keeps, and what making the third needs.

    Args:
        work: an iteration.
        features: of the game.
        mc_rows: size of the outcome rows. They depend on the replays, not on `n`; until they are there (None) they
            are taken to be as large as a cache.
    """
    cache = work.n * row_bytes(features)
    return 2 * cache + iteration_bytes(work, features, mc_rows=mc_rows is None) + (mc_rows or 0)


def iteration_bytes(work: Work, features: int, *, mc_rows: bool) -> int:
    """Bytes an iteration adds at its peak: its cache, the chunks that it is made from, the rest.

    `mc_rows`: the outcome rows are still to be written.
    """
    cache = work.n * row_bytes(features)
    return (3 if mc_rows else 2) * cache + SMALL_FILES


SMALL_FILES = 1_000_000
"""Bytes of weights, reports and logs of an iteration, generously."""
