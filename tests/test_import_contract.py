"""Imports point downwards only (docs/architecture.md): the arrows between rooms, read from the source."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import td_loop

PACKAGE = Path(td_loop.__file__).parent
GROUND = {
    "kaggle",
    "errors",
    "files",
    "npz",
    "fence",
    "journal",
    "jsonl",
    "lock",
    "processes",
    "rng",
    "kernels",
    "machine",
    "progress",
    "signals",
    "text",
    "pool",
    "worker",
    "channel",
}

# room -> rooms that it may import, besides itself and the ground floor
ALLOWED: dict[str, set[str]] = {
    **{name: set() for name in GROUND},
    "value": set(),
    "checks": set(),
    "guard": set(),
    "games": {"value"},
    "prepare": {"games", "value"},
    "fit": {"guard", "value"},
    "policy": {"games", "value"},
    "arena": {"games", "value", "policy"},
    "deploy": {"games", "value", "policy", "guard"},
    "loop": {"checks"},
    "report": {"checks", "loop"},
    "cli": {"games", "value", "prepare", "fit", "checks", "loop", "report", "arena", "guard", "policy", "deploy"},
}
# What report may know of loop: it reads files, and never runs or changes anything.
READ_ONLY_LOOP = {"console", "fault", "layout", "manifest", "verify"}
# What fit may know of guard: how a training process talks to it, and not how it judges.
TRAINING_GUARD = {"environment", "staging", "telemetry"}
# What deploy may know of guard: the detectors, pure functions.
DETECTORS = {"detectors", "health", "record"}
# The built-in game's own commands.
GAME_COMMANDS = {"cli/export.py", "cli/replays.py", "cli/selfplay.py"}
# Only these may import torch: workers, the arena and serving do without.
TORCH = {"fit", "value/torch_module.py", "policy/torch_module.py", "policy/train.py"}


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """Absolute names of all modules that a file imports, at its top or inside a function."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names} | {str(node.module)}
    return names


FILES = sorted(p for p in PACKAGE.rglob("*.py") if p.parent != PACKAGE or p.stem in GROUND)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_downwards(path: Path) -> None:
    here = room(path)
    allowed = ALLOWED[here] | GROUND | {here}
    for name in imported(path):
        package, _, rest = name.partition(".")
        other = rest.split(".")[0]
        is_room = (PACKAGE / other).is_dir() or (PACKAGE / f"{other}.py").exists()
        if package == "td_loop" and rest and is_room:
            assert other in allowed, f"{here} must not import {name}"


def test_reports_never_run_anything() -> None:
    paths = [p for p in FILES if room(p) == "report"]
    assert paths
    for path in paths:
        of_loop = {name.split(".")[2] for name in imported(path) if name.startswith("td_loop.loop.")}
        assert of_loop <= READ_ONLY_LOOP, path


def test_fit_talks_to_the_guard_as_any_training_does() -> None:
    paths = [p for p in FILES if room(p) == "fit"]
    assert paths
    for path in paths:
        of_guard = {name.split(".")[2] for name in imported(path) if name.startswith("td_loop.guard.")}
        assert of_guard <= TRAINING_GUARD, path


def test_deploy_borrows_detectors_and_nothing_else_of_the_guard() -> None:
    paths = [p for p in FILES if room(p) == "deploy"]
    assert paths
    for path in paths:
        of_guard = {name.split(".")[2] for name in imported(path) if name.startswith("td_loop.guard.")}
        assert of_guard <= DETECTORS, path


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_torch_stays_in_fit(path: Path) -> None:
    where = str(path.relative_to(PACKAGE))
    if room(path) not in TORCH and where not in TORCH:
        assert not any(name.split(".")[0] == "torch" for name in imported(path))


def test_only_the_game_folder_and_the_registry_know_orbit_wars() -> None:
    for path in FILES:
        if room(path) == "games":
            continue
        bad = {name for name in imported(path) if name.startswith("td_loop.games.orbit_wars")}
        assert not bad or str(path.relative_to(PACKAGE)) in GAME_COMMANDS, f"{path} imports {bad}"
