"""Breaks workers of prepare in every way, and counts what that cost: `python benchmarks/worker_faults.py --help`.

A search is killed (SIGKILL), stopped (SIGSTOP), raises, never returns from a compiled loop, or takes all memory it
can get; in one worker or in all of them at once; in the first chunk, midway, or in the last. It does so each time
that its row is tried, so such a row must be tried again (unless it only raised) and then fall back on the replay's
action. Wrong is a row that fell back without need, or did not and should have, or whose bytes differ from those of
a run without faults.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from td_loop.errors import TdLoopError
from td_loop.games import get_game
from td_loop.games.base import Budget
from td_loop.kernels import cache_dir
from td_loop.npz import load_npz
from td_loop.prepare.chunks import chunks_path
from td_loop.prepare.config import PrepareConfig, WorkerPolicy
from td_loop.prepare.queue import ChunkQueue
from td_loop.prepare.rows import Rows, sample_rows, training_spans
from td_loop.prepare.run import prepare
from td_loop.prepare.split import validation_games

SPEC = "TD_LOOP_WORKER_FAULTS"
"""Environment variable: what the workers shall do, as JSON."""
GAME_NAME = ("worker_faults" if __name__ == "__main__" else __name__) + ":GAME"
WHEN = ("early", "midway", "last")
BARRIER_S = 20.0
FALLBACK = "branch_a_engine_fallback"


# --- faults -------------------------------------------------------------------------------------------------


def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def stopped() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def raises() -> None:
    raise ZeroDivisionError("this search never ran")


def endless() -> None:
    import numba

    # Compiled here and not cached: a cache entry names the module, which is another one when this is a script.
    numba.njit(_spin)(np.ones(1))


def _spin(x: Any) -> None:
    while x[0] > 0.0:
        x[0] += 1.0


def hog() -> None:
    taken = []
    while True:
        taken.append(np.ones(4_000_000))


FAULTS: dict[str, Callable[[], None]] = {
    "SIGKILL": killed,
    "SIGSTOP": stopped,
    "exception": raises,
    "endless loop": endless,
    "memory hog": hog,
}


class Faulty:
    """A game whose search goes wrong in some rows, the first time in all of them at once; otherwise the game."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self._spec, self._game = spec, get_game(spec["game"])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._game, name)

    def make_search(self, value: Any) -> Any:
        search, rows = self._game.make_search(value), set(self._spec["rows"])

        def faulty(state: Any, seat: int, budget: Budget, rng: np.random.Generator) -> Any:
            row = rng.bit_generator.seed_seq.spawn_key[-1]  # type: ignore[attr-defined]
            if row in rows:
                self._meet(row)
                FAULTS[self._spec["fault"]]()
            return search(state, seat, budget, rng)

        return faulty

    def _meet(self, row: int) -> None:
        """Wait until every row of the fault is reached, each by a worker of its own."""
        marks = Path(self._spec["marks"])
        with contextlib.suppress(FileExistsError):
            (marks / str(row)).touch(exist_ok=False)
            until = time.monotonic() + BARRIER_S
            while len(list(marks.iterdir())) < len(self._spec["rows"]) and time.monotonic() < until:
                time.sleep(0.01)


def __getattr__(name: str) -> Any:
    """`GAME`, as the workers ask for it."""
    if name == "GAME":
        return Faulty(json.loads(os.environ[SPEC]))
    raise AttributeError(name)


# --- the matrix ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cost:
    """What a fault cost.

    Attributes:
        hit: rows in which it happened.
        lost: rows of the chunks that those were in.
        retries: rows that were tried again.
        fallbacks: rows that fell back.
        wrong: see the top of this file.
        failure: why the whole run failed, if it did.
    """

    hit: int
    lost: int
    retries: int
    fallbacks: int
    wrong: int
    failure: str = ""


class Matrix:
    """Runs prepare under one fault after another, and beside a run without any."""

    def __init__(self, config: PrepareConfig) -> None:
        self.config, self.chunks = config, _agent_chunks(config)
        prepare(config)
        self.healthy = load_npz(config.out)[0]

    def run(self, fault: str, *, workers: int, when: str) -> Cost:
        """The cost of `fault` in so many workers."""
        first = {"early": 0, "midway": len(self.chunks) // 2, "last": len(self.chunks) - workers}[when]
        chunks = self.chunks[first : first + workers]
        hit, lost = [int(c[0]) for c in chunks], sum(map(len, chunks))
        with tempfile.TemporaryDirectory() as marks:
            spec = {"game": self.config.game, "fault": fault, "rows": hit, "marks": marks}
            os.environ[SPEC] = json.dumps(spec)
            try:
                report = prepare(replace(self.config, game=GAME_NAME))
            except TdLoopError as e:
                chunks_path(self.config.out).unlink(missing_ok=True)  # they are not for the next fault
                return Cost(len(hit), lost, 0, 0, 0, str(e))
            finally:
                del os.environ[SPEC]
        wrong = self._wrong(load_npz(self.config.out)[0], hit)
        return Cost(len(hit), lost, report.retries, report.fallbacks, wrong)

    def _wrong(self, found: dict[str, Any], hit: list[int]) -> int:
        fell = np.isin(np.sort(np.concatenate(self.chunks)), hit)  # as rows of Branch A
        wrong = {"a": found[FALLBACK] != fell, "r": np.zeros(len(found["branch_r_target"]), bool)}
        for name, array in self.healthy.items():
            if name != FALLBACK:
                differs = (array != found[name]).reshape(len(array), -1).any(axis=1)
                b = "a" if name.startswith("branch_a") or name.endswith("_a") else "r"
                wrong[b] |= differs & ~fell if b == "a" else differs
        return int(wrong["a"].sum() + wrong["r"].sum())


def _agent_chunks(config: PrepareConfig) -> list[Any]:
    """The agent rows, in the chunks in which they are handed out."""
    game = get_game(config.game)
    replays = game.open_replays(config.replays, config.cache)
    spans = training_spans(game, replays, validation_games(replays.games, replays.content_hash))
    rows: Rows = sample_rows(spans, config.n, config.k, config.stage_seed)
    queue = ChunkQueue(rows, config.budget, config.workers, config.policy)
    return [c.row for c in iter(queue.take, None) if c.rows.agent[0]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--game", default="orbit_wars", help="a built-in game, or package.module:ATTRIBUTE")
    parser.add_argument("--replays", type=Path, help="replay set (default: the bundled one)")
    parser.add_argument("--weights", type=Path, help="V_snap (default: a flat value function)")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--n", type=int, default=120, help="rows, half of them searched")
    parser.add_argument("--evals", type=int, default=300, help="candidates a search")
    parser.add_argument("--grace-s", type=float, default=3.0, help="seconds after which a worker is stuck")
    parser.add_argument("--memory-mb", type=int, default=1000, help="memory of a worker")
    args = parser.parse_args()

    from bench_prepare import flat_weights

    with tempfile.TemporaryDirectory() as folder:
        cache_dir().mkdir(parents=True, exist_ok=True)
        config = PrepareConfig(
            weights=args.weights or flat_weights(args.game, Path(folder) / "V_snap.npz"),
            out=Path(folder) / "branch_data.npz",
            n=args.n,
            k=0.5,
            budget=Budget(evals=args.evals),
            workers=args.workers,
            replays=args.replays,
            game=args.game,
            cache=cache_dir(),
            policy=WorkerPolicy(hang_grace_s=args.grace_s, memory=args.memory_mb * 1_000_000),
        )
        matrix = Matrix(config)
        agent = sum(map(len, matrix.chunks))
        print(f"{args.game}, {args.workers} workers, {args.n} rows, {agent} of them searched\n")
        print(
            f"{'fault':<13}{'workers':>8}  {'when':<8}{'hit':>5}{'retried':>9}{'fallbacks':>11}{'wrong':>7}  run"
        )
        bad = sum(show(matrix, f, w, when) for f in FAULTS for w in (1, args.workers) for when in WHEN)
        print(f"\n{6 * len(FAULTS)} faults, {bad} with a wrong row or a run that failed")


def show(matrix: Matrix, fault: str, workers: int, when: str) -> bool:
    """Print one line of the table; True when something is wrong in it."""
    with contextlib.redirect_stderr(io.StringIO()):  # what prepare says of each fault
        cost = matrix.run(fault, workers=workers, when=when)
    who = f"{workers} of {matrix.config.workers}"
    numbers = f"{cost.hit:5d}{cost.retries:9d}{cost.fallbacks:11d}{cost.wrong:7d}"
    print(f"{fault:<13}{who:>8}  {when:<8}{numbers}  {cost.failure[:40] or 'ok'}", flush=True)
    return bool(cost.wrong or cost.failure)


if __name__ == "__main__":
    main()
