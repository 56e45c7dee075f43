"""The contract of routers, kept by every back end."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from td_loop import processes
from td_loop.deploy.names import Subset
from td_loop.errors import UsageError
from tests.deploy.rigs import RIGS, Rig, first, later

EPISODES = [f"game-{i}" for i in range(1000)]


@pytest.fixture(params=list(RIGS), scope="module")
def started(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with RIGS[request.param](tmp_path_factory.mktemp(request.param)) as made:
        assert made.router.read() == 0.0, "a new back end gives the canary nothing"
        yield made


@pytest.fixture
def rig(started: Rig) -> Rig:
    started.router.set(0.0)
    return started


def begun(rig: Rig, episodes: list[str]) -> dict[str, Subset]:
    """Who answers the first request of each."""
    return dict(zip(episodes, rig.ask([first(e) for e in episodes]), strict=True))


def continued(rig: Rig, before: dict[str, Subset]) -> dict[str, Subset]:
    """Who answers the next request of each, which names its last decision."""
    return dict(zip(before, rig.ask([later(e, s) for e, s in before.items()]), strict=True))


def test_nothing_is_nothing(rig: Rig) -> None:
    assert set(rig.ask([first(e) for e in EPISODES])) == {"stable"}


@pytest.mark.parametrize("canary", [1.0, 5.0, 33.0, 99.0, 100.0, 0.0])
def test_what_is_set_is_read_by_everybody(rig: Rig, canary: float) -> None:
    assert rig.router.set(canary) == canary
    assert rig.router.read() == canary
    other = rig.another()
    assert other.read() == canary
    other.close()


def test_a_finer_share_than_the_back_end_knows_is_rounded_down_but_not_to_nothing(rig: Rig) -> None:
    step = rig.router.step
    assert rig.router.set(2.4 * step) == pytest.approx(2 * step)
    assert rig.router.set(0.4 * step) == pytest.approx(step)
    assert rig.router.read() == pytest.approx(step)


@pytest.mark.parametrize("bad", [-1.0, 101.0, math.nan])
def test_what_is_no_percentage_changes_nothing(rig: Rig, bad: float) -> None:
    rig.router.set(7.0)
    with pytest.raises(UsageError, match="percentage"):
        rig.router.set(bad)
    assert rig.router.read() == 7.0


def test_of_a_thousand_episodes_at_5_percent_a_binomial_number_goes_to_the_canary(rig: Rig) -> None:
    rig.router.set(5.0)
    count = Counter(rig.ask([first(e) for e in EPISODES]))
    assert 33 <= count["canary"] <= 69  # 99 % of Binomial(1000, 0.05)
    assert count.total() == 1000


def test_everything_is_everything(rig: Rig) -> None:
    rig.router.set(100.0)
    assert set(rig.ask([first(e) for e in EPISODES])) == {"canary"}


def test_an_episode_that_names_its_last_decision_stays_through_a_ramp(rig: Rig) -> None:
    rig.router.set(30.0)
    before = begun(rig, EPISODES[:200])
    assert set(before.values()) == {"stable", "canary"}
    for canary in (30.0, 60.0, 90.0, 10.0):
        rig.router.set(canary)
        assert continued(rig, before) == before


def test_a_rollback_takes_begun_episodes_too(rig: Rig) -> None:
    rig.router.set(50.0)
    before = begun(rig, EPISODES[:200])
    assert "canary" in before.values()
    assert rig.router.set(0.0) == 0.0
    assert set(continued(rig, before).values()) == {"stable"}
    assert set(rig.ask([first(e) for e in EPISODES])) == {"stable"}


def test_after_a_rollback_ten_thousand_requests_all_reach_stable(rig: Rig) -> None:
    rig.router.set(50.0)
    rig.router.set(0.0)
    answers = Counter(rig.ask([later(f"e{i}", "canary") if i % 2 else first(f"e{i}") for i in range(10_000)]))
    assert answers == {"stable": 10_000}


def test_without_its_last_decision_an_episode_is_drawn_by_its_id_or_each_time(rig: Rig) -> None:
    rig.router.set(20.0)
    before = begun(rig, EPISODES)
    again = [begun(rig, EPISODES) for _ in range(3)]
    if not rig.draws_by_hash:  # then its last decision is what keeps an episode, and nothing else
        assert all(drawn != before for drawn in again)
        return
    assert again == [before] * 3
    rig.router.set(40.0)
    after = begun(rig, EPISODES)
    assert all(after[e] == "canary" for e in EPISODES if before[e] == "canary"), "a ramp only adds episodes"
    assert Counter(after.values())["canary"] > Counter(before.values())["canary"]


def test_a_change_loses_no_request_that_is_under_way(rig: Rig) -> None:
    with rig.load() as statuses:
        for canary in (5.0, 50.0, 100.0, 0.0, 25.0, 0.0):
            rig.router.set(canary)
    assert statuses
    assert set(statuses) == {200}


def test_an_edit_by_hand_is_read(rig: Rig) -> None:
    rig.router.set(10.0)
    rig.edit(42.0)
    assert rig.router.read() == 42.0
    assert rig.router.set(11.0) == 11.0
    assert set(rig.ask([first(e) for e in EPISODES])) == {"stable", "canary"}


def test_nothing_is_left_running(tmp_path: Path) -> None:
    before = processes.descendants(os.getpid())
    for name, make in RIGS.items():
        folder = tmp_path / name
        folder.mkdir()
        with make(folder) as made:
            made.router.set(5.0)
            made.router.close()
    assert processes.descendants(os.getpid()) <= before
