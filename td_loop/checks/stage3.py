"""S3.1 to S3.7: is what prepare made fit to train on?

Shapes: n_b rows of branch b in {r, a}; 4 seats (padded). Arrays come by their name in `branch_data.npz`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from td_loop.checks.verdict import Severity, Verdict

Array = npt.NDArray[Any]
Cache = Mapping[str, Array]

BRANCHES = ("r", "a")
SUM_ATOL = 1e-5
"""How far the targets of a row may sum from 1 (S3.3)."""
PRIOR_FLOOR = 1e-6
"""Floor on the prior of the KL divergence (S3.7): a target that was exactly 0 must not make it infinite."""
PLATEAU_KL = 1e-4
"""Below this mean KL, in nats, targets count as unmoved: about 0.7 percentage points around an even game."""
PLATEAU_ITERS = 3
"""Consecutive iterations of unmoved targets that make a plateau (S3.7)."""

NO_PREVIOUS = "no iteration before to compare with"


def stage3(
    cache: Cache,
    *,
    n: int,
    k: float,
    seg_uniform_tau: float,
    max_fallback_rate: float,
    previous: Cache | None = None,
    lacking: str = NO_PREVIOUS,
    previous_kls: Sequence[float | None] = (),
) -> tuple[Verdict, ...]:
    """All stage-3 checks, in order.

    Args:
        cache: the arrays of this iteration's `branch_data.npz`.
        n: rows asked for.
        k: probability that a row is an agent row.
        seg_uniform_tau: allowed deviation of a segment's seat means from uniform.
        max_fallback_rate: share of agent rows without a decision that is still allowed.
        previous: `branch_r_frame_id`, `branch_r_focal_seat`, `branch_r_target` of the iteration before, if any.
        lacking: why there is no `previous`.
        previous_kls: S3.7's mean KL of the iterations before, oldest first; None where it had no data.
    """
    n_r, n_a = len(cache["branch_r_target"]), len(cache["branch_a_target"])
    return (
        no_mass_on_dead_seats(cache),
        row_count(n_r, n_a, n),
        targets_are_distributions(cache),
        branch_a_fraction(n_r, n_a, k),
        engine_fallback(cache["branch_a_engine_fallback"], max_fallback_rate),
        segment_means(cache, seg_uniform_tau),
        kl_drift(cache, previous, previous_kls, lacking),
    )


def no_mass_on_dead_seats(cache: Cache) -> Verdict:
    """S3.1 (I5), hard: no target mass on a seat that is dead at s."""
    counts = {
        f"n_{b}": int(((cache[f"branch_{b}_target"] > 0) & ~cache[f"alive_at_s_for_rows_{b}"]).sum())
        for b in BRANCHES
    }
    if not sum(len(cache[f"branch_{b}_target"]) for b in BRANCHES):
        return Verdict("S3.1", Severity.HARD, None, "no rows", counts)
    bad = sum(counts.values())
    message = f"{bad} target entries put mass on a dead seat ({counts['n_r']} in R, {counts['n_a']} in A)"
    return Verdict("S3.1", Severity.HARD, bad == 0, message, counts)


def row_count(n_r: int, n_a: int, n: int) -> Verdict:
    """S3.2 (I1), hard: as many rows as were asked for."""
    message = f"{n_r} R rows + {n_a} A rows = {n_r + n_a}; {n} were asked for"
    return Verdict("S3.2", Severity.HARD, n_r + n_a == n, message, {"n_r": n_r, "n_a": n_a, "n": n})


def targets_are_distributions(cache: Cache) -> Verdict:
    """S3.3 (I2), hard: every target is finite, not negative, and sums to 1 over the seats alive at s."""
    numbers: dict[str, Any] = {}
    first = ""
    rows = bad_rows = 0
    for b in BRANCHES:
        target = cache[f"branch_{b}_target"].astype(np.float64)
        finite = np.isfinite(target).all(axis=1)
        counted = cache[f"alive_at_s_for_rows_{b}"] & np.isfinite(target)
        sums = np.where(counted, target, 0.0).sum(axis=1)
        # A negative probability can hide behind a sum of 1, so it is looked for by itself.
        bad = ~finite | (np.abs(sums - 1.0) > SUM_ATOL) | (target < 0.0).any(axis=1)
        numbers[f"not_finite_{b}"] = int((~finite).sum())
        numbers[f"bad_rows_{b}"] = int(bad.sum())
        numbers[f"max_sum_error_{b}"] = float(np.abs(sums - 1.0).max(initial=0.0))
        rows, bad_rows = rows + len(target), bad_rows + int(bad.sum())
        if bad.any() and not first:
            row = int(np.flatnonzero(bad)[0])
            first = f"; the first is row {row} of Branch {b.upper()}: {target[row].tolist()}"
    if not rows:
        return Verdict("S3.3", Severity.HARD, None, "no rows", numbers)
    message = f"{bad_rows} of {rows} targets are not distributions over the seats alive at s{first}"
    return Verdict("S3.3", Severity.HARD, bad_rows == 0, message, numbers)


def branch_a_fraction(n_r: int, n_a: int, k: float) -> Verdict:
    """S3.4, soft: the number of agent rows lies within 3 sigma of Binom(n, k)."""
    n = n_r + n_a
    if n == 0:
        return Verdict("S3.4", Severity.SOFT, None, "no rows", {"n": 0})
    sigma = math.sqrt(n * k * (1.0 - k))
    distance = abs(n_a - n * k)
    passed = distance <= 3.0 * sigma + 1e-9 * n  # n * k is rounded: k = 1/3 and n = 3 must not fail at sigma = 0
    message = f"Branch A holds {n_a / n:.4f} of the rows; k = {k:g} allows +- {3.0 * sigma / n:.4f}"
    return Verdict("S3.4", Severity.SOFT, passed, message, {"fraction": n_a / n, "k": k, "sigma": sigma / n})


def engine_fallback(fallback: Array, limit: float) -> Verdict:
    """S3.5, soft: the share of agent rows in which the search gave no decision is at most `limit`."""
    if not len(fallback):
        return Verdict("S3.5", Severity.SOFT, None, "no Branch A rows", {"rate": None})
    rate = float(fallback.mean())
    message = f"the search gave no decision in {rate:.2%} of the A rows (--max-fallback-rate {limit:g})"
    return Verdict("S3.5", Severity.SOFT, rate <= limit, message, {"rate": rate, "limit": limit})


def segment_means(cache: Cache, tau: float) -> Verdict:
    """S3.6, soft: with P seats (`n_players` >= 1), every seat's mean target is within `tau` of 1 / P."""
    players = np.concatenate([cache[f"branch_{b}_n_players"] for b in BRANCHES])
    targets = np.concatenate([cache[f"branch_{b}_target"] for b in BRANCHES]).astype(np.float64)
    means: dict[str, list[float]] = {}
    worst, where = -1.0, ""
    for p in np.unique(players).tolist():
        with np.errstate(all="ignore"):  # targets that are not finite are S3.3's to refuse
            mean = targets[players == p, :p].mean(axis=0)
        means[f"{p}P"] = mean.tolist()
        for seat, deviation in enumerate(np.abs(mean - 1.0 / p).tolist()):
            if deviation > worst or math.isnan(deviation):
                worst, where = deviation, f"seat {seat} of {p}P is {mean[seat]:.3f}, uniform is {1.0 / p:.3f}"
    numbers = {"means": means, "worst": worst if means else None, "tau": tau}
    if not means:
        return Verdict("S3.6", Severity.SOFT, None, "no rows", numbers)
    return Verdict("S3.6", Severity.SOFT, worst <= tau, f"mean target of {where} (tau {tau:g})", numbers)


def kl_drift(
    cache: Cache, previous: Cache | None, previous_kls: Sequence[float | None], lacking: str = NO_PREVIOUS
) -> Verdict:
    """S3.7, soft: how far V_snap moved the replay targets since the iteration before; fails on a plateau.

    Mean over the rows with the same frame and focal seat in both of KL(now || before) in nats.
    """
    if previous is None:
        return Verdict("S3.7", Severity.SOFT, None, lacking, _no_kl())
    now, before = _intersection(cache, previous)
    if not len(now):
        return Verdict("S3.7", Severity.SOFT, None, "no row in common with the iteration before", _no_kl())
    p = cache["branch_r_target"][now].astype(np.float64)
    q = np.maximum(previous["branch_r_target"][before].astype(np.float64), PRIOR_FLOOR)
    with np.errstate(all="ignore"):  # entries that are no probabilities are S3.3's to refuse
        terms = p * np.log(np.where(p > 0.0, p, 1.0) / q)  # 0 log 0 is 0
        kl = float(terms.sum(axis=1).mean())
    near_zero = [value is not None and abs(value) < PLATEAU_KL for value in (*previous_kls, kl)]
    plateau = len(near_zero) >= PLATEAU_ITERS and all(near_zero[-PLATEAU_ITERS:])
    message = f"mean KL {kl:.3g} nats over {len(now)} rows in common"
    if plateau:
        message += f"; plateau: below {PLATEAU_KL:g} for {PLATEAU_ITERS} iterations or more"
    numbers = {"kl": kl, "rows": len(now), "plateau": plateau}
    return Verdict("S3.7", Severity.SOFT, math.isfinite(kl) and not plateau, message, numbers)


def _no_kl() -> dict[str, Any]:
    return {"kl": None, "rows": 0, "plateau": False}


def _intersection(cache: Cache, previous: Cache) -> tuple[Array, Array]:
    """Row numbers in both, matched on (frame id, focal seat); of rows drawn twice, the first."""
    now, before = [], []
    for seat in range(4):
        a = np.flatnonzero(cache["branch_r_focal_seat"] == seat)
        b = np.flatnonzero(previous["branch_r_focal_seat"] == seat)
        _, i, j = np.intersect1d(
            cache["branch_r_frame_id"][a], previous["branch_r_frame_id"][b], return_indices=True
        )
        now.append(a[i])
        before.append(b[j])
    return np.concatenate(now), np.concatenate(before)
