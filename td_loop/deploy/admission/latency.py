"""Checks of time: how soon a freshly loaded policy is warm, and how long a decision takes in this process.

A decision is what a server does for one request, but for the network between: tensors of the state, the policy's
answer, a legal action. Other programs on the machine can only add time, so the best of three rounds counts.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np

from td_loop.deploy.admission.check import Check, Decision, Subject
from td_loop.errors import OutputError
from td_loop.policy.runner import Runner

Clock = Callable[[], float]
"""Seconds, as `time.perf_counter` counts them."""

WARM_UP_CALLS = 10
"""Calls after which a loaded policy must be warm; the server makes more before it says that it is ready."""
_ROUNDS, _CALLS, _LEAST, _ROUND_MS = 3, 500, 100, 3000.0


def warm_up(subject: Subject, sla_ms: float, clock: Clock) -> Check:
    """Loaded anew, the network has answered within the SLA once `WARM_UP_CALLS` calls are made."""
    runner = subject.open_runner(subject.artefact, "onnxruntime")
    inputs = itertools.islice(itertools.cycle(c.inputs for c in subject.artefact.meta.cases), WARM_UP_CALLS)
    times = []
    for x in inputs:
        start = clock()
        runner(x)
        times.append(1e3 * (clock() - start))
    least = min(times)
    figure = f"first {times[0]:.2f} ms, best {least:.2f} ms"
    values = {"first_ms": times[0], "best_ms": least}
    return Check("warm-up", least <= sla_ms, figure, f"{sla_ms:g} ms in {WARM_UP_CALLS} calls", values)


def latency(subject: Subject, sla_ms: float, clock: Clock) -> list[Check]:
    """p50 and p99 of a whole decision; the larger ones among the decisions are in it with the rest."""
    rounds = [_percentiles(_round(subject, clock)) for _ in range(_ROUNDS)]
    p50, p99 = min(r[0] for r in rounds), min(r[1] for r in rounds)
    limit = f"{sla_ms:g} ms"
    return [
        Check("latency p50", p50 <= sla_ms, f"{p50:.2f} ms", limit, {"p50_ms": p50}),
        Check("latency p99", p99 <= sla_ms, f"{p99:.2f} ms", limit, {"p99_ms": p99}),
    ]


def _round(subject: Subject, clock: Clock) -> list[float]:
    """Milliseconds of each of some hundred decisions; fewer of a policy that is slow."""
    times: list[float] = []
    for d in itertools.islice(itertools.cycle(subject.decisions), _CALLS):
        start = clock()
        _decide(subject, subject.runner, d)
        times.append(1e3 * (clock() - start))
        if len(times) >= _LEAST and sum(times) > _ROUND_MS:
            break
    return times


def _decide(subject: Subject, runner: Runner, d: Decision) -> None:
    inputs = subject.game.policy_inputs(d.state, d.seat)
    logits = runner(inputs)[0]
    try:
        subject.game.choose(d.state, d.seat, inputs, logits)
    except OutputError:  # other checks say so
        return


def _percentiles(times: Sequence[float]) -> tuple[float, float]:
    """The smallest times that half, and 99 of 100, do not exceed."""
    ordered = np.sort(times)
    return float(ordered[math.ceil(0.5 * len(times)) - 1]), float(ordered[math.ceil(0.99 * len(times)) - 1])
