"""S4.1 to S4.4: did the fit go well? Everything is read from `weights.training.json` and fit's exit code."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from td_loop.checks.verdict import Severity, Verdict
from td_loop.errors import DataError
from td_loop.files import as_float

NLL_LIMIT = 1e9
"""A loss this large is as good as infinite (S4.1)."""


def stage4(
    training: Mapping[str, Any],
    *,
    exit_code: int,
    best_val_so_far: float | None,
    val_regression_tau: float,
) -> tuple[Verdict, ...]:
    """All stage-4 checks, in order.

    Args:
        training: the parsed `weights.training.json`.
        exit_code: fit's.
        best_val_so_far: lowest final `val_mc_nll` of the promoted iterations; None or not finite: there is none.
        val_regression_tau: allowed relative rise of the final `val_mc_nll`.
    """
    history = training.get("history")
    history = history if isinstance(history, Mapping) else {}
    return (
        losses_are_finite(history),
        no_blowup(exit_code, training.get("aborted")),
        no_regression(final_val_mc_nll(training), first_epoch_val(history), best_val_so_far, val_regression_tau),
        td_trend(history),
    )


def final_val_mc_nll(training: Mapping[str, Any]) -> float | None:
    """The final `val_mc_nll`, non-finite values included; None where fit recorded none."""
    if training.get("final_val_mc_nll") is not None:
        return _number(training["final_val_mc_nll"])
    history = training.get("history")
    values = _series(history.get("val_mc_nll")) if isinstance(history, Mapping) else []
    return _number(values[-1]) if values and values[-1] is not None else None


def first_epoch_val(history: Mapping[str, Any]) -> float | None:
    """`val_mc_nll` after the first epoch; None where fit recorded none."""
    values = _series(history.get("val_mc_nll"))
    return _number(values[0]) if values and values[0] is not None else None


def losses_are_finite(history: Mapping[str, Any]) -> Verdict:
    """S4.1, hard: no inf, NaN or value of 1e9 and more in any `*_nll` field, and `val_mc_nll` is there.

    None stands for "not measured" (no agent rows with k = 0, say) and is fine everywhere but in `val_mc_nll`:
    a fit that never measured it cannot be judged, hence has failed.
    """
    bad: list[str] = []
    checked = 0
    for key in sorted(k for k in history if k.endswith("_nll")):
        for epoch, value in enumerate(_series(history[key])):
            if value is None and key != "val_mc_nll":
                continue
            checked += 1
            number = math.nan if value is None else _number(value)
            if not math.isfinite(number) or number >= NLL_LIMIT:
                bad.append(f"{key} = {value} in epoch {epoch}")
    numbers = {"checked": checked, "bad": len(bad)}
    if not _series(history.get("val_mc_nll")):
        return Verdict("S4.1", Severity.HARD, False, "the history has no val_mc_nll", numbers)
    if bad:
        more = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
        return Verdict("S4.1", Severity.HARD, False, f"{bad[0]}{more}", numbers)
    return Verdict("S4.1", Severity.HARD, True, f"all {checked} losses are finite and below 1e9", numbers)


def no_blowup(exit_code: int, aborted: Any) -> Verdict:
    """S4.2, hard: fit did not stop itself because `val_mc_nll` blew up in mid-run."""
    numbers = {"exit_code": exit_code, "aborted": aborted}
    if aborted is not None:
        details = aborted if isinstance(aborted, Mapping) else {"reason": aborted}
        said = ", ".join(f"{k} {details[k]}" for k in ("epoch", "val_mc_nll", "threshold") if k in details)
        message = f"fit stopped itself: {details.get('reason', 'no reason given')} ({said or 'no details'})"
        return Verdict("S4.2", Severity.HARD, False, message, numbers)
    return Verdict("S4.2", Severity.HARD, exit_code == 0, f"fit ran to its end, exit code {exit_code}", numbers)


def stopped_by_guard(exit_code: int, guard: Mapping[str, Any]) -> Verdict:
    """S4.2, hard, where a guard watched fit and stopped it for good.

    Args:
        exit_code: of the guard.
        guard: its `trips` (at least one: attempt, step, reason) and the `retries` that it used.
    """
    last = guard["trips"][-1]
    tries = guard["retries"]
    retries = f" after {tries} {'retry' if tries == 1 else 'retries'}" if tries else ""
    message = f"the guard stopped fit at step {last['step']}{retries}: {last['reason']}"
    aborted = {"reason": "guard", "step": last["step"], "guard": last["reason"]}
    return Verdict("S4.2", Severity.HARD, False, message, {"exit_code": exit_code, "aborted": aborted})


def no_regression(final: float | None, first_epoch: float | None, best: float | None, tau: float) -> Verdict:
    """S4.3, soft (reverts): final `val_mc_nll` <= min(best so far, this fit's first epoch) * (1 + tau).

    A reference that is not finite is no reference: one NaN must not block every later iteration.
    """
    references = [x for x in (best, first_epoch) if x is not None and math.isfinite(x)]
    numbers = {"final": final, "first_epoch": first_epoch, "best_so_far": best, "tau": tau}
    if final is None or not math.isfinite(final):
        return Verdict("S4.3", Severity.SOFT, False, f"the final val_mc_nll is {final}", numbers)
    if not references:
        return Verdict("S4.3", Severity.SOFT, False, "no val_mc_nll to compare the final one with", numbers)
    limit = min(references) * (1.0 + tau)
    message = f"final val_mc_nll {final:.4f}, limit {limit:.4f} (reference {min(references):.4f}, tau {tau:g})"
    return Verdict("S4.3", Severity.SOFT, final <= limit, message, {**numbers, "limit": limit})


def td_trend(history: Mapping[str, Any]) -> Verdict:
    """S4.4, log: mean of the first and last quarter of the epochs of `sample_td_r_nll` and `sample_td_a_nll`.

    Never judged: TD losses are not comparable while the target itself moves.
    """
    numbers: dict[str, Any] = {}
    said = []
    for b in ("r", "a"):
        values = [_number(v) for v in _series(history.get(f"sample_td_{b}_nll")) if v is not None]
        if not values:
            continue
        quarter = max(1, len(values) // 4)
        first, last = sum(values[:quarter]) / quarter, sum(values[-quarter:]) / quarter
        numbers[f"first_{b}"], numbers[f"last_{b}"] = first, last
        said.append(f"{b.upper()} {first:.4f} -> {last:.4f}")
    message = f"TD loss, first to last quarter: {', '.join(said)}" if said else "no TD losses"
    return Verdict("S4.4", Severity.LOG, True if said else None, message, numbers)


def _series(value: Any) -> list[Any]:
    """A history field as a list: one entry an epoch; a missing field has none."""
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _number(value: Any) -> float:
    """A JSON number (non-finite spellings included); what is no number at all counts as NaN."""
    try:
        return as_float(value)
    except DataError:
        return math.nan
