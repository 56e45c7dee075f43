"""Stage 3 from end to end: open, sample, compute in workers, write."""

from __future__ import annotations

import time
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from td_loop.errors import TdLoopError, UsageError, WeightsError
from td_loop.files import sha256
from td_loop.games import get_game
from td_loop.games.base import BoolArray, Game, ReplaySet
from td_loop.kernels import sources_hash
from td_loop.machine import available_memory
from td_loop.prepare.branch_data import FORMAT_VERSION, BranchData
from td_loop.prepare.chunks import ChunkKeeper, Finished
from td_loop.prepare.compute import Chunk, Computed, Recipe, compile_kernels
from td_loop.prepare.config import PrepareConfig
from td_loop.prepare.gather import McReport, ensure_mc_rows
from td_loop.prepare.notices import FaultLog, say, warn_about
from td_loop.prepare.pool import Pool
from td_loop.prepare.queue import ChunkQueue
from td_loop.prepare.rows import sample_rows, training_spans
from td_loop.prepare.split import validation_games
from td_loop.progress import progress
from td_loop.value.io import load_weights
from td_loop.value.model import SplineValue

WORKERS_SHARE = 0.8
"""Of the free memory, what all workers together may use. The rest is for everybody else."""

WORKER_BYTES = 1 << 30
"""What a worker may use on the smallest machine: several times what it needs, if it only loads its kernels."""


@dataclass
class WorkerCount:
    """What one worker (and whoever replaced it) did."""

    rows: int = 0
    """Rows computed."""
    retries: int = 0
    """Rows lost with it and tried again."""
    fallbacks: int = 0
    """Agent rows for which the replay's action stood in."""


@dataclass(frozen=True)
class PrepareReport:
    """What a run of prepare did."""

    n_r: int
    n_a: int
    fallbacks: int
    retries: int
    wall_s: float
    mc: McReport | None


def prepare(config: PrepareConfig) -> PrepareReport:
    """Write `config.out` (and `config.mc_rows`, where wanted and not there yet).

    Raises:
        WeightsError: V_snap cannot be used, or is of another game.
        ReplayError: the replay set cannot be used.
        TdLoopError: a row failed time and again, no agent row was decided, or workers cannot be started.
        StorageError: the disk is full, read-only or failing.
    """
    began = time.monotonic()
    game = get_game(config.game)
    value, v_snap_sha256 = load_weights(config.weights, feature_names=game.feature_names), sha256(config.weights)
    if value.meta.get("game") != game.name:
        raise WeightsError(
            f"{config.weights}: made for the game {value.meta.get('game')!r}, not {game.name!r}; "
            f"give other --weights or another --game"
        )
    replays = game.open_replays(config.replays, config.cache)
    warn_about(replays)
    mc = ensure_mc_rows(config.mc_rows, game, replays, value.gamma) if config.mc_rows else None
    spans = training_spans(game, replays, validation_games(replays.games, replays.content_hash))
    check_memory(config.n, len(game.feature_names))
    data = BranchData(sample_rows(spans, config.n, config.k, config.stage_seed), len(game.feature_names))
    compile_kernels(game, value)  # here, so that no worker does: they would all compile the same at once
    provenance = {
        "format_version": FORMAT_VERSION,
        "n": config.n,
        "k": config.k,
        "seed": config.seed,
        "iter_index": config.iter_index,
        "v_snap_sha256": v_snap_sha256,
        "game": game.name,
        "gamma": value.gamma,
        "feature_names": list(game.feature_names),
        "replay_set_hash": replays.content_hash,
        "budget": asdict(config.budget),
        "partial_input_p": config.partial_input_p,
        "mc_target_p": config.mc_target_p,
    }
    # Half of a file by one code and half by another would be of neither.
    code = {"kernels": sources_hash(), "rows_sha256": data.rows_sha256(replays.games)}
    with ChunkKeeper(config.out, provenance | code, len(game.feature_names)) as keeper:
        counts, wall_s = compute(config, game, value, replays, data, keeper, began)
        meta = {**provenance, "wall_s": wall_s, "workers": [asdict(c) for c in counts]}
        data.save(config.out, replays.games, meta)
        keeper.remove()
    fallbacks, retries = sum(c.fallbacks for c in counts), sum(c.retries for c in counts)
    return PrepareReport(data.n_r, data.n_a, fallbacks, retries, wall_s, mc)


def gather_only(path: Path, *, game_name: str, replays: Path | None, cache: Path, gamma: float) -> McReport:
    """Write the outcome rows alone (stage 2); see `ensure_mc_rows`."""
    game = get_game(game_name)
    replay_set = game.open_replays(replays, cache)
    warn_about(replay_set)
    game.compile()
    return ensure_mc_rows(path, game, replay_set, gamma)


def check_memory(n: int, n_features: int) -> None:
    """Refuse an `n` that cannot fit before hours are spent on it.

    Raises:
        UsageError: the rows need more memory than is free.
    """
    need, free = BranchData.bytes_needed(n, n_features), available_memory()
    if free is not None and need > free:
        raise UsageError(
            f"--n {n}: needs {need / 1e9:.1f} GB of memory, {free / 1e9:.1f} GB is free; give a smaller --n"
        )


def worker_memory(n: int, n_features: int, workers: int) -> int | None:
    """Bytes that each worker may use: its share of what is free once all `n` rows are here; None: unknown."""
    free = available_memory()
    if free is None or not workers:
        return None
    share = WORKERS_SHARE * (free - BranchData.bytes_needed(n, n_features)) / workers
    return max(WORKER_BYTES, int(share))


def compute(
    config: PrepareConfig,
    game: Game[Any, Any],
    value: SplineValue,
    replays: ReplaySet[Any, Any],
    data: BranchData,
    keeper: ChunkKeeper,
    began: float,
) -> tuple[list[WorkerCount], float]:
    """Fill `data`: with what `keeper` has from an earlier prepare, the rest in worker processes.

    Returns:
        What each worker did, and the seconds since `began` (monotonic), those of the earlier prepare included.
    """
    earlier = restore(keeper, data)
    counts, left = earlier.counts, config.n - int(earlier.done.sum())
    workers = min(config.workers, left)
    counts += [WorkerCount() for _ in range(workers - len(counts))]
    recipe = Recipe(
        game=config.game,
        replays=replays.path,
        content_hash=replays.content_hash,
        cache=config.cache,
        value=value,
        seed=config.stage_seed,
        budget=config.budget,
        partial_input_p=config.partial_input_p,
        mc_target_p=config.mc_target_p,
    )
    queue = ChunkQueue(data.rows, config.budget, max(1, workers), config.policy)
    queue.skip(earlier.done, earlier.searched)
    began -= earlier.wall_s
    faults = FaultLog()
    pool: Pool[Chunk, Computed]
    memory = config.policy.memory or worker_memory(config.n, len(game.feature_names), workers)
    with Pool(recipe, workers, memory) as pool, progress("prepare", config.n, config.n - left) as advance:
        for outcome in pool.run(queue.take, queue.limit_s):
            chunk, count = outcome.task, counts[outcome.worker]
            if outcome.result is None:
                why = outcome.lost or ""
                count.retries += queue.lost(chunk, why, replays.games[chunk.rows.game[0]].name)
                faults.lost(chunk, why, gave_up=queue.gave_up)
                continue
            queue.done(chunk)
            data.fill(chunk.row, outcome.result)
            count.rows += len(chunk.row)
            count.fallbacks += int(outcome.result.fallback.sum())
            wall_s = time.monotonic() - began
            keeper.keep(Finished(outcome.worker, chunk.row, outcome.result, chunk.search, astuple(count), wall_s))
            faults.search(outcome.result.faults)
            faults.compiled(outcome.result.compiled)
            advance(len(chunk.row))
    faults.summary(data.n_a)
    if data.n_a and data.fallback_rate == 1.0:
        keeper.remove()  # or the next run would find these rows done, though the cause be gone
        raise TdLoopError(
            f"none of the {data.n_a} agent rows was decided: Branch A would be Branch R under another name. "
            f"Most frequent cause: {faults.most_frequent or 'see the log of the run that was killed'}. Remove the "
            "cause and run again (--workers 1 shows it best), or do without agent rows: --k 0"
        )
    return counts, time.monotonic() - began


@dataclass
class Earlier:
    """What an earlier prepare, killed on its way, had done of `n` rows."""

    done: BoolArray
    """bool[n]."""
    searched: BoolArray
    """bool[n]: False for agent rows whose search was given up."""
    counts: list[WorkerCount]
    wall_s: float = 0.0


def restore(keeper: ChunkKeeper, data: BranchData) -> Earlier:
    """Fill `data` with the chunks that `keeper` has."""
    n = len(data.rows.agent)
    earlier = Earlier(np.zeros(n, bool), np.zeros(n, bool), [])
    for chunk in keeper.finished():
        data.fill(chunk.row, chunk.computed)
        earlier.done[chunk.row] = True
        earlier.searched[chunk.row] = chunk.searched
        earlier.counts += [WorkerCount() for _ in range(chunk.worker + 1 - len(earlier.counts))]
        earlier.counts[chunk.worker] = WorkerCount(*chunk.counts)
        earlier.wall_s = chunk.wall_s
    if earlier.done.any():
        say(f"going on from {earlier.done.sum()} of {n} rows in {keeper.path}")
    return earlier
