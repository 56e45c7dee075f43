"""Episodes keep their policy, and a weight of 0 takes all of them from the canary."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from td_loop.deploy.server import episodes as table
from td_loop.deploy.server.assignment import assign
from td_loop.deploy.server.episodes import Episodes, Known, episode_key
from td_loop.deploy.traffic import TrafficState

knowns = st.none() | st.builds(
    Known, st.sampled_from(["stable", "canary"]), st.integers(0, 2**16 - 1), st.booleans()
)
names = st.text(max_size=20)


@given(names, knowns)
def test_a_weight_of_zero_sends_everything_to_stable(episode: str, known: Known | None) -> None:
    assert assign(episode, TrafficState(revision=3), "", known, None, True).subset == "stable"


@given(names, knowns, st.integers(0, 10_000), st.sampled_from([None, "stable", "canary"]))
def test_without_a_canary_everything_goes_to_stable(
    episode: str, known: Known | None, weight: int, told: str | None
) -> None:
    assert assign(episode, TrafficState(1, weight), "", known, told, False).subset == "stable"  # type: ignore[arg-type]


@given(names, st.integers(1, 10_000), st.integers(1, 10_000))
def test_an_episode_stays_where_it_began_while_weights_change(episode: str, before: int, after: int) -> None:
    began = assign(episode, TrafficState(1, before, 7), "salt", None, None, True)
    assert began.begun
    goes_on = assign(episode, TrafficState(2, after, 7), "salt", Known(began.subset, 7), None, True)
    assert (goes_on.subset, goes_on.begun, goes_on.switched) == (began.subset, False, False)


def test_a_new_canary_does_not_inherit_the_episodes_of_the_last() -> None:
    moved = assign("e", TrafficState(9, 10_000, 8), "", Known("canary", 7), None, True)
    assert (moved.subset, moved.switched) == ("stable", True)


def test_an_episode_that_was_moved_says_so_until_it_ends() -> None:
    moved = assign("e", TrafficState(2, 0, 7), "", Known("canary", 7), None, True)
    assert moved.switched
    later = assign("e", TrafficState(3, 9000, 7), "", Known("stable", 7, moved.switched), None, True)
    assert (later.subset, later.switched) == ("stable", True)


def test_the_word_of_a_router_in_front_goes() -> None:
    for told in ("stable", "canary"):
        assert assign("e", TrafficState(1, 0), "", Known("stable", 0), told, True).subset == told  # type: ignore[arg-type]


def test_another_process_knows_the_episode_too_and_forgets_it_when_it_is_over(tmp_path: Path) -> None:
    one, other = Episodes(tmp_path), Episodes(tmp_path)
    key = episode_key("game 1")
    assert one.get(key, 1000.0) is None
    one.put(key, Known("canary", 65535, True), 1000.0)
    assert other.get(key, 1000.0 + table.IDLE_S) == Known("canary", 65535, True)
    assert other.get(key, 1002.0 + table.IDLE_S) is None
    other.put(key, Known("stable", 2), 5000.0)
    assert one.get(key, 5000.0) == Known("stable", 2)


def test_a_full_row_gives_up_the_episode_that_was_silent_the_longest(tmp_path: Path) -> None:
    episodes = Episodes(tmp_path)
    keys = [1 + k * table.ROWS for k in range(table.WAYS + 1)]  # all of one row
    for t, key in enumerate(keys[:-1]):
        episodes.put(key, Known("canary", 1), 100.0 + t)
    episodes.put(keys[0], Known("canary", 1), 200.0)
    episodes.put(keys[-1], Known("stable", 1), 201.0)
    assert [k for k in keys if episodes.get(k, 201.0) is None] == [keys[1]]


def test_the_table_survives_the_server(tmp_path: Path) -> None:
    first = Episodes(tmp_path)
    first.put(5, Known("canary", 3), 100.0)
    first.close()
    assert Episodes(tmp_path).get(5, 100.0) == Known("canary", 3)
