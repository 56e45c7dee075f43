"""Running `td-loop guard run` on the fake trainer, in this process or in one of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from td_loop.cli import main

ROOT = Path(__file__).parents[2]
TRAINER = Path(__file__).with_name("trainer.py")

Moves = Sequence[Sequence[Any]]
HEALTHY: Moves = [["save", {"initial": True}], ["train", 10], ["save"], ["train", 10]]
DIVERGING: Moves = [*HEALTHY, ["diverge", 10], ["wait"]]


def trainer(*plans: Moves) -> list[str]:
    """The words of a training command that does so in its attempts."""
    return [sys.executable, "-I", "-S", str(TRAINER), json.dumps(plans)]


def words(folder: Path, *plans: Moves, flags: Sequence[str] = ()) -> list[str]:
    """A whole command line; snapshots are stable after 5 healthy steps, and a trial takes 5."""
    usual = ["--promote-after", "5", "--trial-steps", "5", "--grace", "20"]
    return ["guard", "run", "--dir", str(folder), *usual, *flags, "--", *trainer(*plans)]


def guard(folder: Path, *plans: Moves, flags: Sequence[str] = ()) -> int:
    """Run it to its end; the exit code."""
    return main(words(folder, *plans, flags=flags))


@contextmanager
def started(folder: Path, *plans: Moves, flags: Sequence[str] = ()) -> Iterator[subprocess.Popen[str]]:
    """The same in a process of its own, which does not outlive the block."""
    with subprocess.Popen(
        [sys.executable, "-m", "td_loop", *words(folder, *plans, flags=flags)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def config(folder: Path, text: str) -> str:
    """The path of a guard.toml."""
    path = folder / "guard.toml"
    path.write_text(text)
    return str(path)


def steps(folder: Path) -> dict[str, list[tuple[int, bool]]]:
    """Snapshots by where they are: step, and whether stable."""
    found: dict[str, list[tuple[int, bool]]] = {}
    for place in ("snapshots", "quarantine"):
        said = [json.loads(p.read_text()) for p in sorted((folder / place).glob("*/snapshot.json"))]
        found[place] = [(s["step"], s["promoted"] is not None) for s in said]
    return found
