"""Episodes keep their policy, and a weight of 0 takes all of them from the canary."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from td_loop.deploy.names import Subset
from td_loop.deploy.server import episodes as table
from td_loop.deploy.server.assignment import Choice, assign
from td_loop.deploy.server.episodes import Episodes, Known, episode_key, policy_tag

STABLE, CANARY, OTHER = 1, 2, 3
names = st.text(max_size=20)
knowns = st.none() | st.builds(
    Known, st.sampled_from(["stable", "canary"]), st.sampled_from([STABLE, CANARY, OTHER]), st.booleans()
)


@given(names, knowns)
def test_a_weight_of_zero_sends_everything_to_stable(episode: str, known: Known | None) -> None:
    assert assign(episode, Choice(0, "", STABLE, CANARY), known, None).subset == "stable"


@given(names, knowns, st.integers(0, 10_000), st.sampled_from([None, "stable", "canary"]))
def test_without_a_canary_everything_goes_to_stable(
    episode: str, known: Known | None, weight: int, told: Subset | None
) -> None:
    assert assign(episode, Choice(weight, "", STABLE, None), known, told).subset == "stable"


@given(names, st.integers(1, 10_000), st.integers(1, 10_000))
def test_an_episode_stays_where_it_began_while_weights_change(episode: str, before: int, after: int) -> None:
    began = assign(episode, Choice(before, "salt", STABLE, CANARY), None, None)
    assert began.begun
    known = Known(began.subset, CANARY if began.subset == "canary" else STABLE)
    goes_on = assign(episode, Choice(after, "salt", STABLE, CANARY), known, None)
    assert (goes_on.subset, goes_on.begun, goes_on.switched) == (began.subset, False, False)


def test_a_new_canary_does_not_inherit_the_episodes_of_the_last() -> None:
    moved = assign("e", Choice(10_000, "", STABLE, OTHER), Known("canary", CANARY), None)
    assert (moved.subset, moved.switched) == ("stable", True)


def test_an_episode_goes_on_with_a_canary_that_was_promoted_and_was_not_moved() -> None:
    goes_on = assign("e", Choice(0, "", CANARY, None), Known("canary", CANARY), None)
    assert (goes_on.subset, goes_on.switched) == ("stable", False)


def test_an_episode_that_was_moved_says_so_until_it_ends() -> None:
    moved = assign("e", Choice(0, "", STABLE, CANARY), Known("canary", CANARY), None)
    assert moved.switched
    later = assign("e", Choice(9000, "", STABLE, CANARY), Known("stable", STABLE, moved.switched), None)
    assert (later.subset, later.switched) == ("stable", True)


@pytest.mark.parametrize("told", ["stable", "canary"])
@pytest.mark.parametrize("weight", [0, 10_000])
def test_the_word_of_a_router_in_front_goes(told: Subset, weight: int) -> None:
    assert assign("e", Choice(weight, "", STABLE, CANARY), Known("stable", STABLE), told).subset == told


def test_a_policy_may_be_its_own_canary() -> None:
    """To see what the split and the statistics make of two that are equal."""
    choice = Choice(5000, "", STABLE, STABLE)
    for subset in ("stable", "canary"):
        goes_on = assign("e", choice, Known(subset, STABLE), None)
        assert (goes_on.subset, goes_on.switched) == (subset, False)


@pytest.fixture
def episodes(tmp_path: Path) -> Iterator[Episodes]:
    with closing(Episodes(tmp_path)) as opened:
        yield opened


def test_another_process_knows_the_episode_too_and_forgets_it_when_it_is_over(
    episodes: Episodes, tmp_path: Path
) -> None:
    key, tag = episode_key("game 1"), policy_tag("ffffffff00")
    with closing(Episodes(tmp_path)) as other:
        assert episodes.get(key, 1000.0) is None
        episodes.put(key, Known("canary", tag, True), 1000.0)
        assert other.get(key, 1000.0 + table.IDLE_S) == Known("canary", tag, True)
        assert other.get(key, 1002.0 + table.IDLE_S) is None
        other.put(key, Known("stable", 2), 5000.0)
        assert episodes.get(key, 5000.0) == Known("stable", 2)


def test_a_full_row_gives_up_the_episode_that_was_silent_the_longest(episodes: Episodes) -> None:
    keys = [1 + k * table.ROWS for k in range(table.WAYS + 1)]  # all of one row
    for t, key in enumerate(keys[:-1]):
        episodes.put(key, Known("canary", 1), 100.0 + t)
    episodes.put(keys[0], Known("canary", 1), 200.0)
    episodes.put(keys[-1], Known("stable", 1), 201.0)
    assert [k for k in keys if episodes.get(k, 201.0) is None] == [keys[1]]


def test_the_table_survives_the_server(tmp_path: Path) -> None:
    with closing(Episodes(tmp_path)) as first:
        first.put(5, Known("canary", 3), 100.0)
    with closing(Episodes(tmp_path)) as again:
        assert again.get(5, 100.0) == Known("canary", 3)
