"""How long a policy network takes in this process, by runtime.

    python benchmarks/bench_runtimes.py [ARTEFACT] [--calls 3000]

ARTEFACT: what `td-loop policy fit` made; without one, an untrained network of the default size (weights make no
difference to the time). One call is one decision: named f32 tensors in, logits out, B = 1. The reference cases of
the artefact take turns; `at limits` is a case with every axis as long as the contract allows. The runtimes take
turns, too, in rounds, so that what else the machine does hits all alike; a round of one that is slow ends after a
second. The last column compares medians with torch eager in one thread.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"  # read when numpy and torch are loaded

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from td_loop.deploy.admission.lengths import resize
from td_loop.games.served import Inputs, Tensor
from td_loop.policy.artefact import OUTPUT, Artefact, read_artefact
from td_loop.policy.onnx_runner import import_onnxruntime
from td_loop.policy.runtimes import open_runner

ROUNDS, ROUND_S, WARM_UP = 10, 1.0, 10
REFERENCE = "torch eager, 1 thread"
Call = Callable[[Inputs], Tensor]


def with_defaults(artefact: Artefact) -> Call:
    """onnxruntime as it is without options: a thread for every core, which spin while they wait."""
    session = import_onnxruntime().InferenceSession(artefact.data, providers=["CPUExecutionProvider"])
    return lambda inputs: session.run([OUTPUT], dict(inputs))[0]  # type: ignore[no-any-return]


def with_threads(runner: Call, n: int) -> Call:
    """A torch runner, every round of which begins with `n` threads."""

    def call(inputs: Inputs) -> Tensor:
        if torch.get_num_threads() != n:
            torch.set_num_threads(n)
        return runner(inputs)

    return call


def runtimes(artefact: Artefact) -> dict[str, Call]:
    """All that are compared."""
    in_torch = open_runner(artefact, "torch")
    return {
        "onnxruntime, 1 thread, no spinning": open_runner(artefact, "onnxruntime"),
        "onnxruntime, its defaults": with_defaults(artefact),
        "numpy": open_runner(artefact, "numpy"),
        REFERENCE: with_threads(in_torch, 1),
        "torch eager, a thread a core": with_threads(in_torch, os.cpu_count() or 1),
    }


def measure(calls: dict[str, Call], inputs: list[Inputs], n: int) -> dict[str, Any]:
    """Milliseconds of each call, by runtime: `n` of them, or fewer of one that is slow."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            turns = itertools.cycle(inputs)
            for x in itertools.islice(turns, WARM_UP):
                call(x)
            end = time.perf_counter() + ROUND_S
            for x in itertools.islice(turns, -(-n // ROUNDS)):
                start = time.perf_counter()
                call(x)
                now = time.perf_counter()
                times[name].append(1e3 * (now - start))
                if now > end:
                    break
    return {name: np.array(t) for name, t in times.items()}


def artefact_of(path: Path | None, folder: Path) -> Artefact:
    """The artefact at `path`, or one of an untrained network."""
    if path is not None:
        return read_artefact(path)
    from td_loop.games.orbit_wars.game import GAME
    from td_loop.policy.export import export_untrained

    return export_untrained(folder / "untrained.onnx", GAME)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("artefact", nargs="?", type=Path)
    parser.add_argument("--calls", type=int, default=3000, help="of each runtime (default: 3000)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        artefact = artefact_of(args.artefact, Path(folder))
    meta, contract = artefact.meta, artefact.meta.contract
    usual = [case.inputs for case in meta.cases]
    largest = [resize(contract, usual[-1], dict(contract.limits))]
    calls = runtimes(artefact)
    weights = sum(w.size for w in artefact.weights.values())
    limits = ", ".join(f"{axis} {most}" for axis, most in contract.limits.items())
    print(f"{artefact.path.name}, {weights} weights, {len(usual)} reference cases; limits: {limits}\n")
    few, many = measure(calls, usual, args.calls), measure(calls, largest, args.calls)
    print("| runtime | p50 | p99 | at limits: p50 | p99 | p50 / torch |")
    print("|---|---|---|---|---|---|")
    for name in calls:
        cells = [f"{np.percentile(t, q):.2f} ms" for t in (few[name], many[name]) for q in (50, 99)]
        ratio = np.median(few[name]) / np.median(few[REFERENCE])
        print(f"| {name} | {' | '.join(cells)} | {ratio:.2f} |")


if __name__ == "__main__":
    main()
