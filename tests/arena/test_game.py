"""game: seats, results, and what a seat that loses by itself does to the others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from td_loop.arena.contestants import parse
from td_loop.arena.game import Fixture, Host, PlayedGame, playable, shares
from td_loop.arena.outside import Limits
from td_loop.errors import UsageError
from td_loop.games.base import Budget
from tests.arena.agents import write_agent
from tests.toy_game import GAME


def play(specs: list[str], map_seed: int = 3, limits: Limits | None = None) -> PlayedGame:
    found = [parse(spec, GAME, Budget(evals=3), {}) for spec in specs]
    host = Host(GAME, {c.identity: c for c in found}, limits or Limits())
    return host.play(Fixture(map_seed, tuple(c.identity for c in found), 0, 1))


def test_built_in_players_play_to_the_end() -> None:
    played = play(["rusher", "idle"])
    assert played.shares == (1.0, 0.0)
    assert played.faults == ()
    assert played.turns == max(played.moves) > 0
    assert all(s >= 0 for s in played.seconds)


def test_a_game_repeats_and_its_luck_is_its_own() -> None:
    def result(played: PlayedGame) -> tuple[object, ...]:
        return played.shares, played.turns, played.moves

    games = [play(["random"] * 4, seed) for seed in (1, 1, 2, 3, 4, 5)]
    assert result(games[0]) == result(games[1])
    assert len({result(game) for game in games}) > 2


@pytest.mark.parametrize("name", ["one", "two"])
def test_an_outside_agent_plays_what_a_built_in_player_would(tmp_path: Path, name: str) -> None:
    played = play([str(write_agent(tmp_path, name)), "idle"])
    assert played.shares == (1.0, 0.0)  # it settles, the other does nothing
    assert played.faults == ()


@pytest.mark.parametrize(
    ("name", "fault"),
    [("raises", "crash"), ("dies", "crash"), ("malformed", "invalid"), ("odd", "invalid"), ("slow", "timeout")],
)
def test_an_outside_agent_that_fails_loses_its_game(tmp_path: Path, name: str, fault: str) -> None:
    limits = Limits(act_timeout_s=0.05, overage_s=0.05) if name == "slow" else Limits()
    played = play(["idle", str(write_agent(tmp_path, name))], limits=limits)
    assert played.shares == (1.0, 0.0)
    (found,) = played.faults
    assert (found.seat, found.fault, found.turn) == (1, fault, 0)
    assert played.turns == 1  # nobody is left to play against


def test_the_others_play_on_without_it(tmp_path: Path) -> None:
    played = play(["random", str(write_agent(tmp_path, "raises")), "random", "idle"])
    assert [f.seat for f in played.faults] == [1]
    assert played.shares[1] == 0.0
    assert sum(played.shares) == pytest.approx(1.0)
    assert played.turns > 1


@given(
    st.lists(st.floats(0, 1), min_size=4, max_size=4), st.sets(st.integers(0, 3)), st.integers(2, 4), st.booleans()
)
def test_shares_sum_to_one_and_who_lost_by_himself_has_none(
    won: list[float], lost: set[int], p: int, broken_off: bool
) -> None:
    lost = {seat for seat in lost if seat < p}
    found = shares(None if broken_off else np.array(won), lost, p)
    assert len(found) == p
    assert sum(found) == pytest.approx(1.0)
    if len(lost) < p:
        assert all(found[seat] == 0.0 for seat in lost)


def test_a_game_survives_the_store() -> None:
    played = play(["rusher", "idle"])
    assert PlayedGame.from_json(played.as_json()) == played


def test_a_game_that_the_arena_cannot_play_is_refused() -> None:
    with pytest.raises(UsageError, match="has no players"):
        playable("tests.arena.test_game:NOT_PLAYABLE")


class _Loop:
    configuration: object = None

    def open_session(self) -> None: ...


NOT_PLAYABLE = _Loop()
