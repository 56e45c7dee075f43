"""Five audits before a job that keeps diverging gets more computing time. Pure: data in, outcomes out.

Each passes, fails, or cannot be checked, and says with which figures. What telemetry cannot know is declared in
the table `[audit]` of guard.toml.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from td_loop.guard.detectors.settings import Settings, choice, number, whole
from td_loop.guard.history import RateTrace, Series

Floats = npt.NDArray[np.float64]

LOOSE_CLIP = 0.5
"""Largest clip norm that is not called loose with PPO and SAC."""
ADEQUATE_EPS = 1e-8
"""Least constant that keeps a division by a zero deviation harmless in float32."""
ZERO_STD = 1e-7
"""A deviation below this is zero but for rounding."""
WILD = 20.0
"""Widths of the middle 90 % of rewards beyond which a reward is invalid."""
SCALE_RATIO = 4.0
"""A reward's scale that changes by this factor from one window to the next has drifted."""
BEFORE, AFTER = 200, 50
"""Rewards in the two windows that are compared; AFTER ends with the trip, and BEFORE ends where it begins."""
CHANGES = 10
"""Differences that a scale is told from, at least."""
NEAR_TRIP = 20
"""Records right before the trip, which are the fault and no measure of what was normal."""
ENDS_EARLY = 0.9
"""A decay that is over before this share of the training ended early."""


class Outcome(StrEnum):
    """Of an audit."""

    PASS = "pass"
    FAIL = "fail"
    NOT_CHECKABLE = "not_checkable"


@dataclass(frozen=True)
class Audit:
    """What an audit found.

    Attributes:
        name: for programs.
        outcome: pass, fail, or not checkable.
        sentence: for people, with the figures that decided.
        figures: the same for programs.
        remedy: what to do after a failure; what to provide where it was not checkable.
    """

    name: str
    outcome: Outcome
    sentence: str
    figures: Mapping[str, Any] = field(default_factory=dict)
    remedy: str = ""


@dataclass(frozen=True)
class Facts(Settings):
    """The table `[audit]` of guard.toml: what the training command knows and telemetry does not say."""

    TABLE: ClassVar[str] = "audit"

    clip_norm: float | None = number(None, 0.0, above=True)
    """Norm to which gradients are clipped; `grad_norm` in the telemetry is the one before."""
    replay_buffer: str | None = None
    """An npz with `rewards` [N], and `observations` [N, ...], `steps` [N], `attempts` [N] where there are such; or
    an npy with the rewards alone."""
    advantage_eps: float | None = number(None, 0.0)
    """Constant that is added to the deviation of the advantages before dividing by it."""
    advantages: str | None = None
    """An npy with advantages, [batches, N] or [N], as they are before they are normalised."""
    total_steps: int | None = whole(None, 1)
    """Steps that the training is planned to have."""
    lr_schedule: str | None = choice("", ("", "constant", "decay"))
    """Whether the learning rate is meant to fall."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in ("replay_buffer", "advantages"):
            if not isinstance(getattr(self, key), str | None):
                self._refuse(key, "must be the path of a file")


@dataclass(frozen=True)
class Buffer:
    """A replay buffer, N transitions.

    Attributes:
        rewards: f64[N].
        observations: [N, ...]; None where it was not stored.
        steps: i64[N], of training, at which each was collected; None where unknown.
        attempts: i64[N], which collected each; None where unknown.
    """

    rewards: Floats
    observations: npt.NDArray[Any] | None = None
    steps: npt.NDArray[np.int64] | None = None
    attempts: npt.NDArray[np.int64] | None = None


def replay_buffer(
    buffer: Buffer | None,
    rewards: Series | None,
    *,
    attempt: int,
    stable_step: int | None,
    stopped: bool,
    missing: str = "no replay buffer is declared",
) -> Audit:
    """Are transitions contaminated by crashes of the environment, or rewards invalid?

    Args:
        buffer: the transitions; None where there are none to look at, and `missing` says why.
        rewards: of the telemetry.
        attempt: the one that tripped.
        stable_step: of the snapshot to roll back to; None: there is none.
        stopped: whether nothing has been collected since: the breaker is still open.
    """
    name = "replay_buffer"
    reported = 0 if rewards is None else int((~np.isfinite(rewards.values)).sum())
    if buffer is None:
        remedy = "set replay_buffer in [audit] to an npz with rewards, observations and steps"
        if reported:
            said = f"{reported} rewards in the telemetry are not finite ({missing})"
            seen = {"non_finite_in_telemetry": reported}
            return Audit(name, Outcome.FAIL, said, seen, "find the environment's transition that makes them")
        return Audit(name, Outcome.NOT_CHECKABLE, missing, remedy=remedy)
    figures: dict[str, int | None] = {
        "transitions": len(buffer.rewards),
        "non_finite_in_telemetry": reported,
        "non_finite_rewards": int((~np.isfinite(buffer.rewards)).sum()),
        "non_finite_observations": _bad_rows(buffer.observations),
        "wild_rewards": _wild(buffer, stable_step),
        "newer_than_stable": _newer(buffer, attempt, stable_step, stopped),
    }
    faults = [
        f"{figures[key]} {what}"
        for key, what in (
            ("non_finite_rewards", "rewards are not finite"),
            ("non_finite_observations", "observations are not finite"),
            ("wild_rewards", f"rewards are more than {WILD:g} usual widths out of the usual range"),
            ("newer_than_stable", f"transitions are newer than the stable snapshot (step {stable_step})"),
            ("non_finite_in_telemetry", "rewards in the telemetry are not finite"),
        )
        if figures[key]
    ]
    if faults:
        remedy = "purge them before the next attempt, and mend the environment that made them"
        return Audit(
            name, Outcome.FAIL, f"of {len(buffer.rewards)} transitions: {'; '.join(faults)}", figures, remedy
        )
    unknown = "" if figures["newer_than_stable"] is not None else "; their age is unknown"
    return Audit(
        name, Outcome.PASS, f"{len(buffer.rewards)} transitions, all finite and in range{unknown}", figures
    )


def _bad_rows(observations: npt.NDArray[Any] | None) -> int | None:
    if observations is None or observations.dtype.kind not in "fc":
        return None if observations is None else 0
    rows = max(1, (1 << 22) // max(1, observations[:1].size))  # in pieces: buffers have gigabytes
    return sum(
        int(
            (
                ~np.isfinite(observations[k : k + rows].reshape(len(observations[k : k + rows]), -1)).all(axis=1)
            ).sum()
        )
        for k in range(0, len(observations), rows)
    )


def _wild(buffer: Buffer, stable_step: int | None) -> int:
    """Rewards out of the range of those from before the rollback point, or of all where their age is unknown."""
    finite = buffer.rewards[np.isfinite(buffer.rewards)]
    sound = finite
    if buffer.steps is not None and stable_step is not None:
        old = buffer.rewards[buffer.steps <= stable_step]
        sound = old[np.isfinite(old)] if np.isfinite(old).any() else finite
    if not len(sound):
        return 0
    low, high = np.quantile(sound, [0.05, 0.95])
    width = high - low
    if width == 0.0:  # a reward that is nearly always the same has no usual width: a sparse one is no fault
        return 0
    return int(((finite < low - WILD * width) | (finite > high + WILD * width)).sum())


def _newer(buffer: Buffer, attempt: int, stable_step: int | None, stopped: bool) -> int | None:
    if buffer.steps is None or stable_step is None:
        return None
    newer = buffer.steps > stable_step
    if buffer.attempts is not None:
        return int((newer & (buffer.attempts <= attempt)).sum())
    return int(newer.sum()) if stopped else None


def gradient_clip(norms: Series | None, clip_norm: float | None) -> Audit:
    """Is the clip norm so loose that it never binds?"""
    name = "gradient_clip"
    if norms is None:
        return Audit(name, Outcome.NOT_CHECKABLE, "no grad_norm in the telemetry", remedy="report grad_norm")
    bad = int((~np.isfinite(norms.values)).sum())
    usual = norms.values[:-NEAR_TRIP] if len(norms.values) > 2 * NEAR_TRIP else norms.values
    usual = usual[np.isfinite(usual)]
    figures: dict[str, Any] = {"clip_norm": clip_norm, "non_finite": bad, "records": len(norms.values)}
    if len(usual):
        median, high = np.quantile(usual, [0.5, 0.99])
        figures |= {"median": float(median), "p99": float(high)}
    if bad:
        said = f"{bad} of {len(norms.values)} gradient norms are not finite: clipping cannot mend them"
        return Audit(name, Outcome.FAIL, said, figures, "skip the update when the norm is not finite")
    seen = f"usual norms: median {figures['median']:.3g}, 99 % below {figures['p99']:.3g}"
    if clip_norm is None:
        remedy = "set clip_norm in [audit]"
        return Audit(name, Outcome.NOT_CHECKABLE, f"no clip_norm is declared; {seen}", figures, remedy)
    share = float((usual > clip_norm).mean())
    figures["binding_share"] = share
    if clip_norm > LOOSE_CLIP and share < 0.01:
        said = f"clip norm {clip_norm:g} is above {LOOSE_CLIP:g} and binds in {share:.1%} of the steps; {seen}"
        remedy = f"lower it to {max(min(LOOSE_CLIP, figures['p99']), 1e-6):.2g} or so"
        return Audit(name, Outcome.FAIL, said, figures, remedy)
    note = f", though it is above {LOOSE_CLIP:g}" if clip_norm > LOOSE_CLIP else ""
    said = f"clip norm {clip_norm:g} binds in {share:.1%} of the steps{note}; {seen}"
    return Audit(name, Outcome.PASS, said, figures)


def advantage_normalisation(reported: Series | None, advantages: Floats | None, eps: float | None) -> Audit:
    """Are advantages divided by a deviation of zero?

    Args:
        reported: the metric `advantage_std` of the telemetry.
        advantages: [batches, N] or [N], of the declared file.
        eps: the declared constant.
    """
    name = "advantage_normalisation"
    deviations = [] if reported is None else [reported.values]
    if advantages is not None:
        deviations.append(np.atleast_1d(np.atleast_2d(advantages).std(axis=1)))
    if not deviations:
        remedy = "report advantage_std, or set advantages in [audit] to an npy"
        said = "neither advantage_std in the telemetry nor a file of advantages"
        return Audit(name, Outcome.NOT_CHECKABLE, said, remedy=remedy)
    std = np.concatenate(deviations)
    bad, zero = int((~np.isfinite(std)).sum()), int((std < ZERO_STD).sum())
    finite = std[np.isfinite(std)]
    least = float(finite.min()) if len(finite) else None
    figures = {"batches": len(std), "non_finite": bad, "zero": zero, "least": least, "eps": eps}
    if bad:
        said = f"{bad} of {len(std)} deviations are not finite"
        remedy = "a batch of one has no deviation, and one bad advantage spoils it: skip such a batch"
        return Audit(name, Outcome.FAIL, said, figures, remedy)
    if not zero:
        return Audit(name, Outcome.PASS, f"{len(std)} deviations, the least {least:.3g}", figures)
    said = f"{zero} of {len(std)} deviations are zero, and the constant added to them is {_eps(eps)}"
    if eps is None or eps < ADEQUATE_EPS:
        return Audit(name, Outcome.FAIL, said, figures, f"add {ADEQUATE_EPS:g} at least before dividing")
    return Audit(name, Outcome.PASS, f"{said}, which is enough", figures)


def _eps(eps: float | None) -> str:
    return "not declared" if eps is None else f"{eps:g}"


def reward_scale(rewards: Series | None) -> Audit:
    """Did the reward's scale change before the trip: a drifting environment, or a policy that hacks it?

    The scale is the median size of the differences between successive rewards that differ: a trend does not widen
    it, and learning takes longer than the two windows.
    """
    name = "reward_scale"
    finite = None if rewards is None else rewards.finite.values
    n = 0 if finite is None else len(finite)
    if finite is None or n < 2 * AFTER:
        said = f"{n} rewards before the trip; {2 * AFTER} are needed"
        return Audit(name, Outcome.NOT_CHECKABLE, said, remedy="report reward")
    before, after = finite[-AFTER - BEFORE : -AFTER], finite[-AFTER:]
    scales = []
    for part in (before, after):
        steps = np.abs(np.diff(part))
        scales.append(float(np.median(steps[steps > 0])) if (steps > 0).sum() >= CHANGES else None)
    figures = {
        "records_before": len(before),
        "records_after": len(after),
        "median_before": float(np.median(before)),
        "median_after": float(np.median(after)),
        "scale_before": scales[0],
        "scale_after": scales[1],
    }
    levels = f"median {figures['median_before']:.4g}, then {figures['median_after']:.4g}"
    if scales[0] is None or scales[1] is None:
        said = f"the reward hardly changes from record to record: it has no scale to compare; {levels}"
        return Audit(name, Outcome.NOT_CHECKABLE, said, figures, "report the mean reward of each batch")
    ratio = scales[1] / scales[0]
    figures["ratio"] = ratio
    said = f"the reward's scale is {ratio:.2f} times that of the {len(before)} rewards before; {levels}"
    if 1.0 / SCALE_RATIO <= ratio <= SCALE_RATIO:
        return Audit(name, Outcome.PASS, said, figures)
    remedy = "compare the environment's reward function and normalisation with those of the stable snapshot"
    return Audit(name, Outcome.FAIL, said, figures, remedy)


def rate_decay(rate: RateTrace | None, total_steps: int | None, schedule: str | None) -> Audit:
    """Did the learning rate's decay end before the training did?"""
    name = "rate_decay"
    if rate is None:
        return Audit(name, Outcome.NOT_CHECKABLE, "no lr in the telemetry", remedy="report lr")
    flat = rate.last_step - rate.flat_since
    figures = {
        "first": rate.first,
        "highest": rate.highest,
        "last": rate.last,
        "flat_since": rate.flat_since,
        "last_step": rate.last_step,
        "total_steps": total_steps,
    }
    if rate.last >= rate.highest * (1.0 - 1e-6):
        said = f"the rate has not fallen: {rate.last:.3g} at step {rate.last_step}"
        if schedule == "decay":
            return Audit(name, Outcome.FAIL, f"{said}, but a decay is declared", figures, "see to the scheduler")
        return Audit(name, Outcome.PASS, said, figures)
    said = f"the rate fell from {rate.highest:.3g} to {rate.last:.3g}"
    if rate.last <= 0.0 and flat > 0:
        said = f"{said} at step {rate.flat_since}, {flat} steps before the trip: nothing was learnt since"
        return Audit(name, Outcome.FAIL, said, figures, "let the decay last as long as the training")
    if total_steps is None:
        said = f"{said} and was flat for the last {flat} steps; the planned number of steps is not declared"
        return Audit(name, Outcome.NOT_CHECKABLE, said, figures, "set total_steps in [audit]")
    share = rate.flat_since / total_steps
    figures["decay_ended_at"] = share
    if share < ENDS_EARLY and flat >= 0.05 * total_steps:
        said = f"{said} by step {rate.flat_since}, {share:.0%} of the planned {total_steps}, and stayed there"
        return Audit(name, Outcome.FAIL, said, figures, "let the decay last as long as the training")
    said = f"{said}, still falling or at its end at step {rate.last_step} of {total_steps}"
    return Audit(name, Outcome.PASS, said, figures)
