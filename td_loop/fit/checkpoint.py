"""A fit between two steps, as a file: whoever goes on from it does as if nothing had happened.

An npz with the coefficients and Adam's two moments, the weights that would be written if the fit ended there, and
in `meta` all that is not an array.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from td_loop.errors import DataError
from td_loop.files import as_float
from td_loop.fit.config import FitConfig
from td_loop.fit.history import History, Progress
from td_loop.fit.problem import Problem
from td_loop.fit.trainer import Trainer, TrainerState
from td_loop.npz import load_npz, save_npz

KIND = "fit_checkpoint"
FORMAT_VERSION = 1

_REMEDY = "point the guard at a checkpoint of this fit, or start anew without one"
_MAY_CHANGE = {"lr", "seed"}
"""Hyperparameters that a later attempt may have otherwise."""


def save_checkpoint(
    path: Path, config: FitConfig, problem: Problem, trainer: Trainer, progress: Progress, more: Mapping[str, Any]
) -> None:
    """Write a checkpoint, atomically, with `more` in its meta.

    Raises:
        StorageError: the disk is full, read-only or failing.
    """
    state = trainer.state()
    save_npz(
        path,
        {"coef": state.coef, "mean": state.mean, "square": state.square, "kept": progress.kept.coef},
        {
            "kind": KIND,
            "format_version": FORMAT_VERSION,
            "fit": _identity(config, problem),
            "step": state.step,
            "kept_epoch": progress.kept_epoch,
            "final": progress.final,
            "history": asdict(progress.history),
            "rates": progress.rates,
            "norms": progress.norms,
            **more,
        },
    )


def load_checkpoint(
    path: Path, config: FitConfig, problem: Problem, trainer: Trainer, progress: Progress
) -> dict[str, Any]:
    """Put `trainer` and `progress`, both as they were made, where they stood. Returns the meta.

    Raises:
        DataError: missing, damaged, of another kind or version, or of a fit with other inputs or hyperparameters.
    """
    arrays, meta = load_npz(path, names=("coef", "mean", "square", "kept"), maker=_REMEDY)
    if meta.get("kind") != KIND or meta.get("format_version") != FORMAT_VERSION:
        found = f"{meta.get('kind')!r}, version {meta.get('format_version')!r}"
        raise DataError(f"{path}: is {found}, must be {KIND!r}, version {FORMAT_VERSION}; {_REMEDY}")
    _check_identity(path, meta["fit"], _identity(config, problem))
    trainer.restore(TrainerState(meta["step"], arrays["coef"], arrays["mean"], arrays["square"]))
    progress.history = History(**{name: _floats(values) for name, values in meta["history"].items()})
    progress.rates, progress.norms = _floats(meta["rates"]), _floats(meta["norms"])
    progress.keep(replace(problem.start, coef=arrays["kept"]), meta["kept_epoch"], as_float(meta["final"]))
    return meta


def _identity(config: FitConfig, problem: Problem) -> dict[str, Any]:
    """What has to be the same for steps to go on."""
    hyperparams = {name: x for name, x in asdict(config).items() if name not in _MAY_CHANGE}
    return {**{flag: entry["sha256"] for flag, entry in problem.inputs.items()}, **hyperparams}


def _check_identity(path: Path, theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> None:
    for name in {**theirs, **ours}:
        if theirs.get(name) != ours.get(name):
            flag = "--" + name.replace("_", "-")
            raise DataError(
                f"{path}: is of a fit with {flag} {theirs.get(name)}, here it is {ours.get(name)}; {_REMEDY}"
            )


def _floats(values: list[Any]) -> list[float]:
    return [as_float(x) for x in values]
