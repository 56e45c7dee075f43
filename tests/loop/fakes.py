"""Stages that write valid files in milliseconds: as functions in this process, or as programs.

    python tests/loop/fakes.py prepare --weights ... --out ...

The weights that "fit" writes are a function of V_snap, the cache, the seed and the learning rate, so a run that
went another way ends with other bytes.
"""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np

from td_loop.files import sha256, write_json
from td_loop.journal import Journal, read_records
from td_loop.npz import load_npz, save_npz
from tests.checks.caches import make_cache

Flags = dict[str, str]
Behaviour = Callable[[Flags], int]

FEATURES = 3
VAL = (0.70, 0.65, 0.60)


def write_bootstrap(path: Path, *, coef: float = 0.0, version: int = 2) -> Path:
    knots = np.tile(np.arange(5.0), (FEATURES, 1))
    save_npz(path, {"knots": knots, "coef": np.full((2, FEATURES, 5), coef)}, {"format_version": version})
    return path


def parse(argv: Sequence[str]) -> tuple[str, Flags]:
    """(stage, flags) of a command line; of a match also who plays it, and `--sprt` in one word."""
    at = next(i for i, word in enumerate(argv) if word in ("prepare", "fit", "tournament"))
    words = list(argv[at + 1 :])
    if argv[at] != "tournament":
        return argv[at], dict(zip(words[::2], words[1::2], strict=True))
    candidate, latest_good, sprt, elo0, elo1, *rest = words
    who = dict(spec.split("=", 1) for spec in (candidate, latest_good))
    return "gate", who | {sprt: f"{elo0} {elo1}"} | dict(zip(rest[::2], rest[1::2], strict=True))


# --- prepare -----------------------------------------------------------------------------------------------


def cache_of(flags: Flags) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arrays and meta of a valid branch_data file; the targets move with V_snap."""
    n, k = int(flags["--n"]), float(flags["--k"])
    n_a = round(n * k)
    arrays = make_cache(int(flags["--seed"]) + int(flags["--iter-index"]), n - n_a, n_a, features=FEATURES)
    digest = sha256(Path(flags["--weights"]))
    # Of the values of V_snap, not of its bytes: weights that did not move make the same targets.
    coef = hashlib.sha256(load_npz(Path(flags["--weights"]))[0]["coef"].tobytes()).hexdigest()
    common = make_cache(int(coef[:8], 16), n - n_a, 0, features=FEATURES)
    half = (n - n_a) // 2  # rows that every iteration draws, under targets of its own V_snap
    for name in (key for key in common if key.startswith("branch_r_") or key.endswith("rows_r")):
        arrays[name] = np.concatenate([common[name][:half], arrays[name][half:]])
    arrays["branch_r_frame_id"][:half] = np.arange(half) << 11
    arrays["branch_r_focal_seat"][:half] = 0
    arrays["alive_at_s_for_rows_r"][:half, 0] = True
    meta = {"kind": "branch_data", "format_version": 1, "v_snap_sha256": digest}
    return arrays, meta


def prepare(flags: Flags, **replaced: Any) -> int:
    """Write a valid cache, with `replaced` arrays."""
    arrays, meta = cache_of(flags)
    save_npz(Path(flags["--out"]), arrays | replaced, meta)
    return 0


def prepare_with(change: Callable[[dict[str, Any]], None] = lambda _: None, **meta: Any) -> Behaviour:
    """A prepare whose arrays `change` has changed in place, with `meta` added to its own."""

    def behave(flags: Flags) -> int:
        arrays, own = cache_of(flags)
        change(arrays)
        save_npz(Path(flags["--out"]), arrays, own | meta)
        return 0

    return behave


# --- fit ---------------------------------------------------------------------------------------------------


def fit(
    flags: Flags,
    *,
    val: Sequence[Any] = VAL,
    training: dict[str, Any] | None = None,
    coef: Any = None,
    exit_code: int = 0,
) -> int:
    """Write valid weights and a report with these validation losses, `training` merged into it."""
    write_report(flags, val=val, **(training or {}))
    arrays, meta = load_npz(Path(flags["--resume"]))
    seen = [sha256(Path(flags[f])) for f in ("--resume", "--td-cache")] + [flags["--seed"], flags["--lr"]]
    digest = hashlib.sha256("".join(seen).encode()).digest()
    arrays["coef"] = np.full_like(arrays["coef"], int.from_bytes(digest[:4]) / 2**32) if coef is None else coef
    save_npz(Path(flags["--output"]), arrays, meta | {"seed": flags["--seed"]})
    return exit_code


def write_report(flags: Flags, *, val: Sequence[Any] = VAL, **training: Any) -> None:
    report = {
        "history": {
            "train_mc_nll": list(val),
            "val_mc_nll": list(val),
            "sample_td_r_nll": list(val),
            "sample_td_a_nll": [None] * len(val),
        },
        "val_mc_nll_baseline": 0.7,
        "final_val_mc_nll": val[-1] if val else None,
        "aborted": None,
        "knot_coverage_stats": {
            "c_prod": {"frac_above_top_knot": 0.01, "frac_below_first_interior_knot": 0.1},
        },
    }
    write_json(Path(flags["--output"]).with_suffix(".training.json"), report | training)


def reverts(flags: Flags) -> int:
    """A fit that ends worse than it began."""
    return fit(flags, val=(0.6, 0.9))


def fit_to(*val: Any, **more: Any) -> Behaviour:
    """A fit with these validation losses."""
    return lambda flags: fit(flags, val=val, **more)


def stopped_after(stage: Behaviour, signum: int = signal.SIGINT) -> Behaviour:
    """A stage that ends well, upon which a signal comes to the driver."""

    def behave(flags: Flags) -> int:
        code = stage(flags)
        os.kill(os.getpid(), signum)
        return code

    return behave


# --- the gate ----------------------------------------------------------------------------------------------

BOUND = 2.94
CODES = {"H1": 0, "H0": 6, "undecided": 7}
LLR = {"H1": 3.0, "H0": -3.0, "undecided": 0.5}


def gate(flags: Flags, *, verdict: str = "H1", rounds: int = 3, code: int | None = None, **result: Any) -> int:
    """Play a match, with what is stored of it, and write how it ended; `result` replaces keys of `sprt`."""
    played = add_games(flags, rounds)
    elo0, elo1 = map(float, flags["--sprt"].split())
    sprt = {"elo0": elo0, "elo1": elo1, "bounds": [-BOUND, BOUND], "llr": LLR[verdict], "verdict": verdict}
    content = {"games_played": played, "sprt": sprt | {"rounds": rounds} | result, "pair": {"score_a": 0.75}}
    write_json(Path(flags["--out"]), content)
    return CODES[verdict] if code is None else code


def add_games(flags: Flags, rounds: int) -> int:
    """Have that many rounds in the store of games; how many games were added."""
    store = Path(flags["--store"])
    there = list(read_records(store)) or [b"head"]
    wanted = [b"head", *(f"game {k} of seed {flags['--seed']}".encode() for k in range(2 * rounds))]
    assert there == wanted[: len(there)]
    with Journal(store, there) as journal:
        for game in wanted[len(there) :]:
            journal.append(game)
    return len(wanted) - len(there)


def ends(verdict: str, **more: Any) -> Behaviour:
    """A match with this verdict."""
    return lambda flags: gate(flags, verdict=verdict, **more)


# --- the runner --------------------------------------------------------------------------------------------


@dataclass
class Stages:
    """A `StageRunner` that starts no process.

    Attributes:
        script: what the n-th call of a stage does, by (stage, n), or any call for a folder, by (stage, its name);
            anything else does what it should.
        calls: (stage, flags) of every call so far.
    """

    script: dict[tuple[str, int | str], Behaviour] = field(default_factory=dict)
    calls: list[tuple[str, Flags]] = field(default_factory=list)

    def __call__(self, argv: Sequence[str], log: Path, signals: Any) -> int:
        stage, flags = parse(argv)
        number = sum(1 for s, _ in self.calls if s == stage)
        self.calls.append((stage, flags))
        signals.check()
        folder = Path(flags["--output" if stage == "fit" else "--out"]).parent.name
        usual = self.script.get((stage, folder), {"prepare": prepare, "fit": fit, "gate": gate}[stage])
        code = self.script.get((stage, number), usual)(flags)
        signals.check()
        return code

    def flags(self, stage: str, number: int) -> Flags:
        return [f for s, f in self.calls if s == stage][number]


# --- as programs -------------------------------------------------------------------------------------------


def main(argv: Sequence[str]) -> int:
    """`$FAKE_MISBEHAVE` is "STAGE:HOW"; HOW is an exit code, "hang" or "hang-with-worker"."""
    stage, flags = parse(argv)
    misbehaving, _, how = os.environ.get("FAKE_MISBEHAVE", "").partition(":")
    if stage != misbehaving:
        return prepare(flags) if stage == "prepare" else fit(flags)
    if how.startswith("hang"):
        if how == "hang-with-worker":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            worker = subprocess.Popen([sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"])
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            Path(os.environ["FAKE_PIDS"]).write_text(f"{os.getpid()} {worker.pid}")
        else:
            Path(os.environ["FAKE_PIDS"]).write_text(f"{os.getpid()}")
        time.sleep(600)
    sys.stderr.write(f"error: {stage} goes wrong\n")
    return int(how)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
