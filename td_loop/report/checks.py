"""The checks of an attempt, one line each: what was measured, what was allowed, and what it means."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from td_loop.checks import Severity
from td_loop.checks.knots import ABOVE, BELOW
from td_loop.checks.stage3 import PLATEAU_KL
from td_loop.loop.manifest import IterRecord, Json
from td_loop.report.text import number


@dataclass(frozen=True)
class CheckRow:
    """One check.

    Attributes:
        id: "S3.1", "gate" or "knots".
        title: what it looks at, in a few words.
        value: what was measured.
        limit: what was allowed.
        severity: "hard", "soft" or "log".
        verdict: "passed", "FAILED" (it stopped or reverted the attempt), "warned", "no data" or "logged".
        message: its own words.
    """

    id: str
    title: str
    value: str
    limit: str
    severity: str
    verdict: str
    message: str


Numbers = Mapping[str, Any]
_View = tuple[str, Callable[[Numbers, Json], tuple[str, str]]]


def _sum(numbers: Numbers, key: str) -> str:
    return str(sum(numbers.get(f"{key}_{b}") or 0 for b in ("r", "a")))


def _fraction(n: Numbers, _: Json) -> tuple[str, str]:
    if n.get("sigma") is None:
        return "-", "-"
    return number(n.get("fraction")), f"{number(n.get('k'), 'g')} +- {3 * n['sigma']:.4f}"


def _blowup(n: Numbers, config: Json) -> tuple[str, str]:
    aborted = n.get("aborted")
    if isinstance(aborted, Mapping) and "guard" in aborted:
        return f"step {aborted.get('step')}", "no trip"
    if isinstance(aborted, Mapping):
        return number(aborted.get("val_mc_nll")), f"<= {number(aborted.get('threshold'))}"
    tau = config.get("val_blowup_tau")
    return f"exit {n.get('exit_code')}", "-" if tau is None else f"<= baseline +{tau:.0%}"


def _trend(n: Numbers, _: Json) -> tuple[str, str]:
    b = "r" if "first_r" in n else "a"
    return number(n.get(f"last_{b}")), f"first {number(n.get(f'first_{b}'))}"


_VIEWS: dict[str, _View] = {
    "S3.1": ("target mass on dead seats", lambda n, _: (_sum(n, "n"), "0")),
    "S3.2": ("rows, of those asked for", lambda n, _: (_sum(n, "n"), number(n.get("n"), ".0f"))),
    "S3.3": ("targets not summing to 1", lambda n, _: (_sum(n, "bad_rows"), "0")),
    "S3.4": ("share of agent rows", _fraction),
    "S3.5": ("searches without decision", lambda n, _: (_percent(n.get("rate")), _limit(n.get("limit"), ".0%"))),
    "S3.6": ("seat means off uniform", lambda n, _: (number(n.get("worst")), _limit(n.get("tau"), "g"))),
    "S3.7": ("targets moved (mean KL)", lambda n, _: (number(n.get("kl"), ".2g"), f">= {PLATEAU_KL:g}")),
    "S4.1": ("losses not finite", lambda n, _: (number(n.get("bad"), ".0f"), "0")),
    "S4.2": ("val_mc_nll in mid-run", _blowup),
    "S4.3": ("final val_mc_nll", lambda n, _: (number(n.get("final")), _limit(n.get("limit"), ".4f"))),
    "S4.4": ("TD loss, last epochs", _trend),
}


def _percent(value: Any) -> str:
    return number(value, ".1%")


def _limit(value: Any, style: str) -> str:
    return "-" if value is None else f"<= {number(value, style)}"


def check_rows(record: IterRecord) -> list[CheckRow]:
    """Every check of an attempt, in order; none of a stage that was not judged."""
    rows = []
    for validation in (record.stage3_validation, record.stage4_validation):
        config = (validation or {}).get("config") or {}
        for check, verdict in (validation or {}).items():
            if isinstance(verdict, dict) and check.startswith("S"):
                rows.append(_row(check, verdict, config))
    if record.gate is not None and record.gate.get("message"):
        rows.append(_gate(record.gate))
    if record.knot_coverage is not None:
        rows.append(_knots(record.knot_coverage, (record.stage4_validation or {}).get("config") or {}))
    return rows


def _row(check: str, verdict: Json, config: Json) -> CheckRow:
    title, view = _VIEWS.get(check, ("", lambda n, _: ("-", "-")))
    value, limit = view(verdict.get("numbers") or {}, config)
    severity, message = str(verdict.get("severity")), str(verdict.get("message"))
    return CheckRow(
        check, title, value, limit, severity, _verdict(check, severity, verdict.get("passed")), message
    )


def _verdict(check: str, severity: str, passed: bool | None) -> str:
    if passed is None:
        return "no data"
    if severity == Severity.LOG:
        return "logged"
    if passed:
        return "passed"
    return "FAILED" if severity == Severity.HARD or check == "S4.3" else "warned"


def _gate(gate: Json) -> CheckRow:
    """The match against `latest_good`: its log likelihood ratio, and the bound that promotes."""
    value, limit = number(gate.get("llr"), ".2f"), f">= {number(gate['bounds'][1], '.2f')}"
    verdict = "passed" if gate.get("verdict") == "H1" else "FAILED"
    message = str(gate["message"])
    return CheckRow("gate", "match with latest_good (LLR)", value, limit, str(Severity.SOFT), verdict, message)


def _knots(coverage: Json, config: Json) -> CheckRow:
    """The worst share beyond the knots of any feature, above and below."""
    found = list(_shares(coverage.get("coverage") or {}))
    worst = [max((v for key, v in found if key == wanted), default=None) for wanted in (ABOVE, BELOW)]
    taus = [config.get("knot_above_top_tau"), config.get("knot_below_first_tau")]
    warnings = coverage.get("warnings") or []
    verdict = ("warned" if coverage.get("drift_flag") else "passed") if coverage.get("available") else "no data"
    value, limit = (" / ".join(number(x, ".0%") for x in pair) for pair in (worst, taus))
    message = "; ".join(warnings) or "fit reported no coverage"
    return CheckRow("knots", "values above / below them", value, limit, str(Severity.SOFT), verdict, message)


def _shares(node: Json) -> Iterator[tuple[str, float]]:
    for key, value in node.items():
        if isinstance(value, dict):
            yield from _shares(value)
        elif key in (ABOVE, BELOW) and isinstance(value, int | float):
            yield key, float(value)
