"""The postmortem of a rollback as a page of Markdown."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

from td_loop import text
from td_loop.deploy.canary.observation import Counts
from td_loop.deploy.observe.drift import LARGE
from td_loop.deploy.postmortem.artefact import Examined
from td_loop.deploy.postmortem.case import Case, mean_reward, p99_s
from td_loop.deploy.postmortem.questions import Answer

QUESTIONS = {
    "data_shift": "Data distribution shift: do live inputs differ from the training data?",
    "exploration_noise": "Exploration noise leakage: is noise of training still on?",
    "tensor_shape": "Tensor shape mismatch: does padding or length change what the network sees?",
    "hardware": "Hardware bottleneck: was the machine short of cores, throttled or hot?",
}
_FEATURES = 10


def markdown(case: Case, examined: Examined, answers: Sequence[Answer]) -> str:
    """The page."""
    release = case.release
    when = f"{datetime.datetime.fromtimestamp(case.t, datetime.UTC):%Y-%m-%d %H:%M:%S} UTC"
    lines = [
        f"# Postmortem of release {release.number}",
        "",
        f"Canary `{release.sha256[:12]}` (`{release.path}`) was rolled back on {when}, in stage {case.stage} with "
        f"{case.weight:g} % of the traffic: {case.reason}.",
        "",
    ]
    if case.triggers:
        lines += [f"Triggers: {', '.join(case.triggers)}.", "", *(f"- {f}" for f in case.findings), ""]
    lines += ["## What was counted", "", *_counts(case), ""]
    lines += ["## Four questions", "", *_questions(answers), ""]
    lines += ["## Features", "", *_drift(case), ""]
    lines += ["## The artefact, examined again", "", *_checks(examined), ""]
    return "\n".join(lines)


def _counts(case: Case) -> list[str]:
    note = [f"Note: {case.note}.", ""] if case.note else [f"Over {text.duration(case.seconds)}.", ""]
    if case.stable is None or case.canary is None:
        return note[:1]
    rows = [
        ("requests", *(f"{c.requests:.0f}" for c in (case.stable, case.canary))),
        ("episodes", *(f"{c.episodes:.0f}" for c in (case.stable, case.canary))),
        ("rewards", *(f"{c.rewards:.0f}" for c in (case.stable, case.canary))),
        ("mean reward", *(_number(mean_reward(c)) for c in (case.stable, case.canary))),
        ("fallback answers", *(_fallbacks(c) for c in (case.stable, case.canary))),
        ("5xx answers, or none", *(f"{c.errors:.0f}" for c in (case.stable, case.canary))),
        ("p99, at most", *(_milliseconds(p99_s(c)) for c in (case.stable, case.canary))),
        ("mean entropy, nats", *(_number(_ratio(c.entropy, c.entropies)) for c in (case.stable, case.canary))),
        (
            "replayed states, differing",
            *(f"{c.replayed:.0f}, {c.differing:.0f}" for c in (case.stable, case.canary)),
        ),
    ]
    return [*note, *_table(("", "stable", "canary"), rows)]


def _questions(answers: Sequence[Answer]) -> list[str]:
    rows = [(QUESTIONS[a.name], str(a.outcome).replace("_", " "), a.sentence) for a in answers]
    todo = [f"- {QUESTIONS[a.name].partition(':')[0]}: {a.remedy}." for a in answers if a.remedy]
    return [*_table(("question", "answer", "found"), rows), *(["", "To do:", "", *todo] if todo else [])]


def _drift(case: Case) -> list[str]:
    drift = {} if case.canary is None else case.canary.drift
    if not drift:
        return ["No drift was observed."]
    usual = {} if case.stable is None else case.stable.drift
    worst = sorted(drift, key=lambda f: -drift[f])[:_FEATURES]
    rows = [(f, _number(usual.get(f)), _number(drift[f]), "shifted" if drift[f] >= LARGE else "") for f in worst]
    head = f"Population stability index against the training data, the {len(rows)} largest of {len(drift)}; "
    return [
        f"{head}from {LARGE:g} on a feature has shifted.",
        "",
        *_table(("feature", "stable", "canary", ""), rows),
    ]


def _checks(examined: Examined) -> list[str]:
    if examined.checks is None:
        return [f"Not possible: {examined.fault}."]
    rows = [(c.name, "pass" if c.passed else "FAIL", c.figure, c.limit) for c in examined.checks.values()]
    beyond = [f"- {name} = {value:.4g}" for name, value in examined.beyond]
    if beyond:
        beyond = ["", "Outside the training data, the output is not finite at:", "", *beyond]
    return [*_table(("check", "", "found", "limit"), rows), *beyond]


def _fallbacks(c: Counts) -> str:
    reasons = ", ".join(f"{reason} {n:.0f}" for reason, n in c.fallbacks.items() if n)
    return f"{sum(c.fallbacks.values()):.0f}{f' ({reasons})' if reasons else ''}"


def _ratio(x: float, n: float) -> float | None:
    return x / n if n > 0 else None


def _number(x: float | None) -> str:
    return "–" if x is None else f"{x:.4g}"


def _milliseconds(x: float | None) -> str:
    return "–" if x is None else f"{1e3 * x:g} ms"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    def line(cells: Sequence[str]) -> str:
        return f"| {' | '.join(' '.join(c.split()).replace('|', chr(92) + '|') for c in cells)} |"

    return [line(head), line(["---"] * len(head)), *(line(row) for row in rows)]
