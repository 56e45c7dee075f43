"""sprt: the likelihood ratio is the right one, and wrong answers are as rare as was asked for."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import minimize

from benchmarks.bench_arena import SCORES, SHAPES, simulate, tilted
from td_loop.arena.sprt import LEAST_COUNT, Sprt, Verdict, expected_score, run
from td_loop.errors import UsageError


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("alpha", "beta"), [(0.05, 0.05), (0.01, 0.1)])
def test_wrong_answers_are_as_rare_as_was_asked_for(shape: str, alpha: float, beta: float) -> None:
    n, test = 1000, Sprt(0, 80, alpha, beta)
    accepted, _, _ = simulate(test, tilted(SHAPES[shape], expected_score(0)), n)
    _, rejected, _ = simulate(test, tilted(SHAPES[shape], expected_score(80)), n, seed=1)
    assert accepted <= alpha + 3 * math.sqrt(alpha * (1 - alpha) / n)
    assert rejected <= beta + 3 * math.sqrt(beta * (1 - beta) / n)


def test_it_stops_sooner_where_the_difference_is_larger() -> None:
    test = Sprt(0, 80)
    _, _, between = simulate(test, tilted(SHAPES["independent games"], expected_score(40)), 300)
    _, _, beyond = simulate(test, tilted(SHAPES["independent games"], expected_score(250)), 300)
    assert beyond < between / 4


@pytest.mark.parametrize("counts", [(3, 0, 5, 1, 9), (0, 0, 20, 0, 0), (1, 2, 3, 4, 5), (0, 0, 0, 0, 7)])
def test_the_ratio_is_that_of_the_two_nearest_multinomials(counts: tuple[int, ...]) -> None:
    test = Sprt(-10, 30)
    padded = np.maximum(np.array(counts, float), LEAST_COUNT)

    def best(mean: float) -> float:
        """Largest log likelihood of a multinomial with that mean, by a general optimiser on log probabilities."""
        start = np.log(padded / padded.sum() * 0.9 + 0.02)
        found = minimize(
            lambda x: -(padded * x).sum() / padded.sum(),
            start,
            jac=lambda x: -padded / padded.sum(),
            constraints=[
                {"type": "eq", "fun": lambda x: np.exp(x).sum() - 1, "jac": np.exp},
                {
                    "type": "eq",
                    "fun": lambda x: (np.exp(x) * SCORES).sum() - mean,
                    "jac": lambda x: np.exp(x) * SCORES,
                },
            ],
            method="SLSQP",
            options={"maxiter": 1000, "ftol": 1e-12},
        )
        return -float(found.fun) * float(padded.sum())

    wanted = best(expected_score(30)) - best(expected_score(-10))
    assert float(test.llr(SCORES, np.array(counts, float))) == pytest.approx(wanted, abs=2e-3)


def test_it_looks_at_no_round_after_it_has_stopped() -> None:
    test = Sprt(0, 100)
    state = run(test, [1.0] * 500)
    assert state.verdict is Verdict.ACCEPTED
    assert state.rounds < 30
    assert run(test, [1.0] * state.rounds + [0.0] * 500) == state
    assert sum(state.counts) == state.rounds


def test_it_says_when_it_does_not_know() -> None:
    assert run(Sprt(0, 10), []).verdict is Verdict.UNDECIDED
    assert run(Sprt(0, 10), [1.0, 0.0]).verdict is Verdict.UNDECIDED
    assert run(Sprt(0, 50), [0.0] * 100).verdict is Verdict.REJECTED


def test_other_scores_than_those_of_a_pair_are_taken_too() -> None:
    assert run(Sprt(0, 100), [1.0, 5 / 8, 0.9] * 30).verdict is Verdict.ACCEPTED


@pytest.mark.parametrize("args", [(10, 0), (0, 0), (0, 2000), (0, 10, 0.6), (0, 10, 0.05, 0.0)])
def test_tests_that_make_no_sense_are_refused(args: tuple[float, ...]) -> None:
    with pytest.raises(UsageError):
        Sprt(*args)
