"""The draw of a subset: shares, stickiness, and what a change of weight or salt may do to it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from td_loop.deploy.names import FULL_BP
from td_loop.deploy.routing.assign import subset_of

IDS = st.text(max_size=40)
WEIGHTS = st.integers(0, FULL_BP)


def canaries(n: int, salt: str, weight_bp: int) -> int:
    return sum(subset_of(f"episode-{i}", salt, weight_bp) == "canary" for i in range(n))


def interval(n: int, p: float, alpha: float) -> tuple[int, int]:
    """The central binomial interval: each tail outside has at most alpha / 2."""
    cdf, low, high = 0.0, None, None
    for k in range(n + 1):
        log_pmf = (
            math.lgamma(n + 1)
            - math.lgamma(k + 1)
            - math.lgamma(n - k + 1)
            + k * math.log(p)
            + (n - k) * math.log1p(-p)
        )
        cdf += math.exp(log_pmf)
        if low is None and cdf > alpha / 2:
            low = k
        if high is None and cdf >= 1 - alpha / 2:
            high = k
    assert low is not None
    assert high is not None
    return low, high


def test_interval_is_the_binomial_one() -> None:
    assert interval(1000, 0.05, 0.05) == (37, 64)  # as scipy.stats.binom.ppf has it


@pytest.mark.parametrize("salt", ["release-1", "release-2", "0f3c", ""])
def test_a_thousand_episodes_at_5_percent_land_inside_the_binomial_interval(salt: str) -> None:
    low, high = interval(1000, 0.05, 0.01)
    assert low <= canaries(1000, salt, 500) <= high


def test_weight_times_hash_would_fall_short() -> None:
    """The trap that the module's words are about: over enough episodes the test of shares below finds it."""
    u = np.random.default_rng(0).random((50_000, 2))
    wrong = int((0.05 * u[:, 0] > 0.95 * u[:, 1]).sum())
    assert wrong < interval(50_000, 0.05, 0.01)[0]


@pytest.mark.parametrize("weight_bp", [1, 50, 500, 2500, 5000, 9900, 9999])
def test_every_weight_gets_its_share(weight_bp: int) -> None:
    n = 50_000
    p = weight_bp / FULL_BP
    got = canaries(n, "shares", weight_bp)
    assert abs(got - n * p) < 4 * math.sqrt(n * p * (1 - p)) + 1


def test_draws_are_uniform_over_the_whole_range() -> None:
    """Chi-square with 19 degrees of freedom over 20 equal slices; 43.82 is its 99.9 % quantile."""
    n, slices = 20_000, 20
    cuts = [FULL_BP * k // slices for k in range(1, slices)]
    counts = np.diff([0, *(canaries(n, "uniform", cut) for cut in cuts), n])
    assert counts.sum() == n
    assert ((counts - n / slices) ** 2 / (n / slices)).sum() < 43.82


def test_neighbouring_names_are_drawn_independently() -> None:
    drawn = np.array([subset_of(f"game-{i}", "s", 5000) == "canary" for i in range(20_000)])
    both = int((drawn[1:] & drawn[:-1]).sum())
    assert abs(both - 5000) < 4 * math.sqrt(20_000 * 0.25 * 0.75)


def test_another_release_draws_anew() -> None:
    """Of the episodes that one canary had, another release's has its share and not all of them."""
    mine = [f"e{i}" for i in range(20_000) if subset_of(f"e{i}", "release-1", 2000) == "canary"]
    again = sum(subset_of(e, "release-2", 2000) == "canary" for e in mine)
    n, p = len(mine), 0.2
    assert abs(again - n * p) < 4 * math.sqrt(n * p * (1 - p))


@given(IDS, IDS, WEIGHTS, WEIGHTS)
def test_a_larger_weight_only_adds_episodes(episode: str, salt: str, a: int, b: int) -> None:
    low, high = sorted((a, b))
    if subset_of(episode, salt, low) == "canary":
        assert subset_of(episode, salt, high) == "canary"


@given(IDS, IDS, WEIGHTS)
def test_an_episode_is_drawn_once_and_for_all(episode: str, salt: str, weight_bp: int) -> None:
    assert len({subset_of(episode, salt, weight_bp) for _ in range(3)}) == 1


@given(IDS, IDS)
def test_nothing_is_nobody_and_everything_is_everybody(episode: str, salt: str) -> None:
    assert subset_of(episode, salt, 0) == "stable"
    assert subset_of(episode, salt, FULL_BP) == "canary"


def test_any_string_is_an_id() -> None:
    for odd in ("", "\0", "é" * 1000, "\ud800", "a\nb"):
        assert subset_of(odd, odd, 5000) in ("stable", "canary")


def test_salt_and_id_do_not_run_into_each_other() -> None:
    """'ab' + 'c' and 'a' + 'bc' are two draws: over many pairs they differ about half of the time."""
    differing = sum(subset_of(f"{i}c", "ab", 5000) != subset_of(f"b{i}c", "a", 5000) for i in range(1000))
    assert abs(differing - 500) < 4 * math.sqrt(250)


def test_the_draw_is_the_same_on_every_machine_and_in_every_version() -> None:
    """Servers of two versions stand side by side while one is replaced: they must agree."""
    drawn = "".join(subset_of(f"episode-{i}", "release", 5000)[0] for i in range(32))
    assert drawn == "cssscscscsccssscssscssssccsscscs"
