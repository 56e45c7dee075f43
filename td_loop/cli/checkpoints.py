"""The checkpoints of a run, as the arena's commands name them."""

from __future__ import annotations

from pathlib import Path

from td_loop.arena.picks import Checkpoint
from td_loop.files import as_float
from td_loop.loop.layout import BOOTSTRAP_COPY
from td_loop.loop.manifest import Manifest, Status


def checkpoints(manifest: Manifest) -> list[Checkpoint]:
    """The bootstrap, then all that was promoted, oldest first."""
    found = [Checkpoint("bootstrap", BOOTSTRAP_COPY, manifest.bootstrap_sha256)]
    for r in manifest.iters:
        if r.status is Status.PROMOTED:
            assert r.weights is not None
            assert r.weights_sha256 is not None
            assert r.fit is not None
            loss = as_float(r.fit["final_val_mc_nll"])
            found.append(Checkpoint(f"iter{r.i}", r.weights, r.weights_sha256, loss))
    return found


def run_aliases(run: Path, manifest: Manifest) -> dict[str, Path]:
    """Weights files by what a person calls them."""
    named = {c.label: c.path for c in checkpoints(manifest)} | {"latest_good": manifest.latest_good}
    if manifest.best_val is not None:
        named["best_val"] = manifest.best_val.path
    return {name: run / path for name, path in named.items()}
