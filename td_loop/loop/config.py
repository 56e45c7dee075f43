"""What a run is told to do: small frozen classes, checked when they are made.

Field names are the flag names of `td-loop run`; defaults are those of docs/td_outer_loop.md.
"""

from __future__ import annotations

import math
import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Any

from td_loop.errors import UsageError
from td_loop.machine import physical_cores

DEFAULT_BOOTSTRAP = Path("models/value_spline_v2.npz")


class OnFail(StrEnum):
    """What a reverted iteration does to the loop."""

    ABORT = "abort"
    RETRY_THEN_ABORT = "retry-then-abort"


class Gate(StrEnum):
    """What a promotion needs besides the checks."""

    NONE = "none"
    SPRT = "sprt"


class Guard(StrEnum):
    """What a guard does when fit diverges in mid-run."""

    NONE = "none"
    ABORT = "abort"
    CONTINUE = "continue"


@dataclass(frozen=True)
class PrepareConfig:
    """Stage 3: how targets are prepared."""

    n: int = 80000
    """Rows an iteration."""
    k: float = 0.3
    """Probability that a row is an agent row (Branch A)."""
    budget_s: float = 0.2
    """Seconds a search may take for an agent row."""
    budget_evals: int | None = None
    """Candidates a search may evaluate; replaces `budget_s` and repeats exactly."""
    workers: int = field(default_factory=physical_cores)
    """Worker processes."""
    partial_input_p: float = 0.5
    """Probability that a row's input has a part of the turn's launches applied."""
    mc_target_p: float = 0.5
    """Probability that a row also carries the game's outcome."""

    def __post_init__(self) -> None:
        _at_least(self, 1, "n", "workers")
        if self.budget_evals is not None:
            _at_least(self, 1, "budget_evals")
        _between(self, 0.0, 1.0, "k", "partial_input_p", "mc_target_p")
        _positive(self, "budget_s")


@dataclass(frozen=True)
class FitConfig:
    """Stage 4: how the value function is fitted."""

    epochs: int = 10
    """Epochs an iteration."""
    batches_per_epoch: int = 64
    """Optimizer steps an epoch."""
    batch_size: int = 128
    """Rows a step."""
    lambda_mc: float = 0.3
    """Weight of the outcome loss."""
    lambda_td: float = 0.7
    """Weight of the TD loss."""
    lr_peak: float = 0.03
    """Learning rate after the warmup."""
    lr_warmup_frac: float = 0.10
    """Fraction of the steps that warm up."""
    lr_hold_frac: float = 0.40
    """Fraction of the steps at the peak; the rest decays."""
    lr_floor_frac: float = 0.10
    """The decay ends at this fraction of the peak (the warmup always starts at 0.1 of it)."""
    val_blowup_tau: float = 0.25
    """Fit stops itself when `val_mc_nll` rises above its baseline times 1 + this."""

    def __post_init__(self) -> None:
        _at_least(self, 1, "epochs", "batches_per_epoch", "batch_size")
        _at_least(self, 0.0, "lambda_mc", "lambda_td", "val_blowup_tau")
        _positive(self, "lr_peak")
        _between(self, 0.0, 1.0, "lr_warmup_frac", "lr_hold_frac", "lr_floor_frac")
        if self.lr_warmup_frac + self.lr_hold_frac > 1.0 + 1e-9:
            raise UsageError(
                f"--lr-warmup-frac {self.lr_warmup_frac:g} and --lr-hold-frac {self.lr_hold_frac:g} sum to more "
                "than 1; they are shares of the same steps"
            )
        if self.lambda_mc == self.lambda_td == 0.0:
            raise UsageError("--lambda-mc and --lambda-td are both 0; there would be nothing to learn from")


@dataclass(frozen=True)
class CheckConfig:
    """Limits of the checks."""

    val_regression_tau: float = 0.05
    """S4.3 reverts when the final `val_mc_nll` exceeds its reference times 1 + this."""
    seg_uniform_tau: float = 0.05
    """S3.6 warns when a segment's mean target deviates from uniform by more."""
    max_fallback_rate: float = 0.2
    """S3.5 warns when a larger share of the agent rows has no decision of the search."""
    knot_above_top_tau: float = 0.30
    """Warn when a larger fraction of a feature lies above its top knot."""
    knot_below_first_tau: float = 0.70
    """Warn when a larger fraction of a feature lies below its first interior knot."""

    def __post_init__(self) -> None:
        _at_least(self, 0.0, "val_regression_tau", "seg_uniform_tau")
        _between(self, 0.0, 1.0, "max_fallback_rate", "knot_above_top_tau", "knot_below_first_tau")


@dataclass(frozen=True)
class MatchConfig:
    """The match of a candidate against `latest_good`, where a promotion needs one (`--gate sprt`)."""

    gate_elo: tuple[float, float] = (0.0, 50.0)
    """What the test decides between: how much stronger the candidate is, in Elo. The second one promotes it."""
    gate_rounds: int = 800
    """Rounds (two games on a map) that a match may take; then it has no winner."""
    gate_budget: str | None = None
    """What a move may take: `0.1s`, or `400e` for evaluations. None: as a search of prepare."""

    def __post_init__(self) -> None:
        low, high = self.gate_elo
        if not -1000 <= low < high <= 1000:
            raise UsageError(f"--gate-elo {low:g} {high:g}: give two Elo numbers, the smaller one first")
        _at_least(self, 1, "gate_rounds")
        if self.gate_budget is not None and not _limit(self.gate_budget):
            raise UsageError(f"--gate-budget {self.gate_budget}: give seconds (0.1s) or evaluations (400e)")

    def limit(self, prepare: PrepareConfig) -> tuple[float | None, int | None]:
        """Seconds, or evaluations, that a move may take; the other one is None."""
        own = _limit(self.gate_budget or "")
        if own is None:
            return (prepare.budget_s, None) if prepare.budget_evals is None else (None, prepare.budget_evals)
        amount, unit = own
        return (amount, None) if unit == "s" else (None, int(amount))


def _limit(text: str) -> tuple[float, str] | None:
    """Amount and unit of a budget; None where it is none."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)s|(\d+)e", text)
    if match is None:
        return None
    amount = float(match[1] or match[2])
    return (amount, text[-1]) if amount > 0 else None


@dataclass(frozen=True)
class RunConfig:
    """A run: where it lives, what drives it, and the settings of its parts."""

    tag: str = "default"
    """Names the run; its folder is `<runs_dir>/td_loop_<tag>`."""
    iters: int = 20
    """Iterations in all, those of earlier invocations included."""
    on_fail: OnFail = OnFail.ABORT
    """What a reverted iteration does."""
    bootstrap: Path = DEFAULT_BOOTSTRAP
    """Weights that iteration 0 starts from."""
    seed: int = 0
    """Seed of the run."""
    runs_dir: Path = Path("runs")
    """Folder of the run folders."""
    game: str = "orbit_wars"
    """Game that the replays are of."""
    replays: Path | None = None
    """Replays; None is the bundled set."""
    cache_dir: Path | None = None
    """Where stages keep what can be made again; None leaves it to them."""
    prepare_cmd: str | None = None
    """Command line that stands in for `td-loop prepare`."""
    fit_cmd: str | None = None
    """Command line that stands in for `td-loop fit`."""
    prepare: PrepareConfig = field(default_factory=PrepareConfig)
    fit: FitConfig = field(default_factory=FitConfig)
    checks: CheckConfig = field(default_factory=CheckConfig)
    gate: Gate = Gate.NONE
    """What a promotion needs besides the checks."""
    match: MatchConfig = field(default_factory=MatchConfig)
    guard: Guard = Guard.NONE
    """What a guard does when fit diverges in mid-run."""
    guard_config: Path | None = None
    """Settings of the guard; None: its defaults."""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", self.tag):
            raise UsageError(f"--tag {self.tag!r}: use letters, digits, '.', '_' and '-' (it names a folder)")
        _at_least(self, 1, "iters")
        _at_least(self, 0, "seed")
        for name in ("prepare_cmd", "fit_cmd"):
            _command(name, getattr(self, name))
        for f in fields(self.match) if self.gate is Gate.NONE else ():
            if getattr(self.match, f.name) != f.default:
                raise UsageError(f"{_flag(f.name)} is about a match, and there is none without --gate sprt")

        if self.guard is Guard.NONE and self.guard_config is not None:
            raise UsageError("--guard-config is about a guard, and there is none without --guard")
        if self.guard_config is not None and not self.guard_config.is_file():
            raise UsageError(f"--guard-config {self.guard_config}: no such file")

    @staticmethod
    def from_flags(flags: Mapping[str, Any]) -> RunConfig:
        """From flat values under their flag names with underscores; None or a missing one means the default.

        Raises:
            UsageError: a value out of its range; the message names its flag.
        """
        given = {name: value for name, value in flags.items() if value is not None}
        parts = {
            part: kind(**{f.name: _plain(given.pop(f.name)) for f in fields(kind) if f.name in given})
            for part, kind in _PARTS.items()
        }
        if "on_fail" in given:
            given["on_fail"] = OnFail(given["on_fail"])
        if "gate" in given:
            given["gate"] = Gate(given["gate"])
        if "guard" in given:
            given["guard"] = Guard(given["guard"])
        return RunConfig(**given, **parts)

    def hyperparams(self) -> dict[str, Any]:
        """The flag values as JSON, flat, under their flag names with underscores.

        Without a gate or a guard there is no word of it: such a run's manifest is that of the seed document.
        """
        flat: dict[str, Any] = {}
        for f in fields(self):
            value = getattr(self, f.name)
            if f.name in ("gate", "match") and self.gate is Gate.NONE:
                continue
            if f.name in ("guard", "guard_config") and self.guard is Guard.NONE:
                continue
            if f.name in _PARTS:
                flat |= {g.name: _json(getattr(value, g.name)) for g in fields(value)}
            else:
                flat[f.name] = _json(value)
        return flat

    def stage_command(self, stage: str) -> list[str]:
        """Program and leading arguments of "prepare" or "fit"."""
        own: str | None = getattr(self, f"{stage}_cmd")
        return [sys.executable, "-m", "td_loop", stage] if own is None else shlex.split(own)


_PARTS: dict[str, type[Any]] = {
    "prepare": PrepareConfig,
    "fit": FitConfig,
    "checks": CheckConfig,
    "match": MatchConfig,
}


def _plain(value: Any) -> Any:
    """What `_json` made of a tuple, back."""
    return tuple(value) if isinstance(value, list) else value


def _json(value: Any) -> Any:
    """As a JSON file gives it back: settings are compared with those that one holds."""
    if isinstance(value, tuple):
        return list(value)
    return str(value) if isinstance(value, Path | StrEnum) else value


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _at_least(config: Any, low: float, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        if not (math.isfinite(value) and value >= low):
            raise UsageError(f"{_flag(name)} {value}: must be {low:g} or more")


def _positive(config: Any, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        if not (math.isfinite(value) and value > 0):
            raise UsageError(f"{_flag(name)} {value}: must be more than 0")


def _between(config: Any, low: float, high: float, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        if not low <= value <= high:
            raise UsageError(f"{_flag(name)} {value}: must lie in {low:g}..{high:g}")


def _command(name: str, value: str | None) -> None:
    if value is None:
        return
    try:
        words = shlex.split(value)
    except ValueError as e:
        raise UsageError(f"{_flag(name)} {value!r}: {e}") from e
    if not words:
        raise UsageError(f"{_flag(name)} is empty; leave it out to use td_loop's own stage")
