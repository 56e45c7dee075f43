"""What is done under fault injection, written to be run again after a kill."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from td_loop.errors import TdLoopError
from td_loop.guard import snapshots as rules
from td_loop.guard.store import Store
from tests.guard.guarded import DIVERGING, HEALTHY, guard

STEPS = (0, 10, 20, 30, 40, 50)
STAGED = {0: "first.zip", 10: "checkpoint", 20: "model.bin", 40: "model.bin40", 50: "late.zip"}
"""What the trainer saved in staging, by step; that of step 30 lies elsewhere."""


def content(step: int) -> bytes:
    return f"weights of step {step}\n".encode() * 50


def prepare(folder: Path) -> None:
    """What a trainer has saved."""
    staging = folder / "guard" / "staging"
    staging.mkdir(parents=True)
    for step, name in STAGED.items():
        if name == "checkpoint":
            (staging / name / "part").mkdir(parents=True)
            (staging / name / "part" / "a.bin").write_bytes(content(step))
            (staging / name / "b.bin").write_bytes(b"more")
        else:
            (staging / name).write_bytes(content(step))
    (folder / "own.zip").write_bytes(content(30))


def place(folder: Path, step: int) -> Path:
    return folder.parent / "own.zip" if step == 30 else folder / "staging" / STAGED[step]


def run(script: Callable[[Path], None], folder: Path) -> int:
    try:
        script(folder)
    except TdLoopError as e:
        print(e)  # noqa: T201
        return e.exit_code
    except SystemExit as e:
        return int(e.code or 0)
    except BaseException:
        traceback.print_exc(file=sys.stdout)
        return 1
    finally:
        sys.stdout.flush()
    return 0


def whole(folder: Path) -> None:
    """Take in five, promote four, prune, roll back."""
    store = Store(folder)
    fenced = {name.rpartition("_a")[0] for name in _names(folder / "quarantine")}
    for step in STEPS:
        if any(s.step == step for s in store.all) or f"step_{step:09d}" in fenced or _pruned(store, step):
            continue
        store.take(place(folder, step), step=step, attempt=0, initial=step == 0, when=1000.0 + step)
        for snapshot in rules.pending(store.all):
            if snapshot.step <= 30:
                store.promote(snapshot, snapshot.step and 5)
        store.prune(2)
    for snapshot in rules.pending(store.all):
        if snapshot.step <= 30:
            store.promote(snapshot, snapshot.step and 5)
    store.prune(2)
    store.rollback()


def guarded(folder: Path) -> None:
    """A whole guarded run, whose first attempt diverges."""
    code = guard(folder, DIVERGING, HEALTHY)
    if code:
        raise SystemExit(code)


def _pruned(store: Store, step: int) -> bool:
    """Those that a stable one has followed were there before."""
    return any(s.promoted is not None and s.step > step for s in store.all)


def _names(folder: Path) -> list[str]:
    return [p.name for p in folder.iterdir()] if folder.is_dir() else []
