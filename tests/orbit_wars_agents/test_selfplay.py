from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from td_loop import files, npz
from td_loop.cli import main
from td_loop.errors import UsageError, WeightsError
from td_loop.games.base import Budget
from td_loop.games.orbit_wars.agents import AGENTS, STYLES
from td_loop.games.orbit_wars.board import new_game
from td_loop.games.orbit_wars.engine import outcome, step
from td_loop.games.orbit_wars.game import GAME
from td_loop.games.orbit_wars.replays.bundled import BUNDLED, replay
from td_loop.games.orbit_wars.selfplay import SEARCH, Recipe, legal, line_up, play, play_set
from td_loop.games.orbit_wars.state import DONE
from tests.orbit_wars_agents.positions import GAMES, positions

SHORT = Recipe(games_2p=1, games_4p=1, seed=5, episode_steps=50)


def test_a_set_is_the_same_whoever_plays_it() -> None:
    once = list(play_set(SHORT))
    again = list(play_set(SHORT, workers=2))
    for (players, a), (players_again, b) in zip(once, again, strict=True):
        assert players == players_again
        assert (a.game.seed, a.game.n_players) == (b.game.seed, b.game.n_players)
        np.testing.assert_array_equal(a.result, b.result)
        for turn_a, turn_b in zip(a.game.actions, b.game.actions, strict=True):
            for action_a, action_b in zip(turn_a, turn_b, strict=True):
                np.testing.assert_array_equal(action_a, action_b)


def test_a_game_of_a_set_does_not_depend_on_how_many_are_played() -> None:
    few, many = Recipe(games_2p=3, games_4p=0), Recipe(games_2p=30, games_4p=10)
    assert [line_up(few, i) for i in range(3)] == [line_up(many, i) for i in range(3)]


def test_line_ups_are_mixed() -> None:
    recipe = Recipe(games_2p=40, games_4p=40)
    drawn = [line_up(recipe, i) for i in range(recipe.n_games)]
    assert [len(players) for _, players in drawn] == [2] * 40 + [4] * 40
    assert len({seed for seed, _ in drawn}) == recipe.n_games
    players = [p for _, game in drawn for p in game]
    assert {p.name for p in players} == set(STYLES)
    assert min(p.skill for p in players) < 0.6
    assert max(p.skill for p in players) > 0.9


def test_searches_play_searches_with_unequal_budgets_and_only_when_asked() -> None:
    plain = Recipe(games_2p=30, games_4p=10)
    joined = replace(plain, weights=Path("w.npz"), budget=Budget(evals=10), search_share=0.5)
    games = [line_up(joined, i)[1] for i in range(40)]
    assert all(len({p.name == SEARCH for p in game}) == 1 for game in games)
    skills = [p.skill for game in games for p in game if p.name == SEARCH]
    assert 10 < len(skills) < 90
    assert min(skills) >= 1 / 8
    assert max(skills) <= 1.0
    assert len(set(skills)) == len(skills)
    assert all(p.name != SEARCH for i in range(40) for p in line_up(plain, i)[1])


def test_a_set_that_was_made_is_a_replay_set(tmp_path: Path) -> None:
    out = tmp_path / "set.npz"
    weights = Path(__file__).parents[2] / "models" / "value_spline_v1.npz"
    flags = ["selfplay", "--out", str(out), "--games-2p", "4", "--games-4p", "0", "--seed", "8"]
    assert main([*flags, "--weights", str(weights), "--search-evals", "6", "--search-share", "0.5"]) == 0
    store = GAME.open_replays(out, tmp_path / "cache")
    arrays, meta = npz.load_npz(out)
    assert [g.n_frames - 1 for g in store.games] == arrays["n_turns"].tolist()
    assert any(SEARCH in name for game in meta["about"]["players"] for name in game)
    assert GAME.open_replays(out, tmp_path / "cache").path == store.path


def test_the_actions_kept_lead_to_the_result_kept() -> None:
    played = play([AGENTS["greedy"], AGENTS["starter"]], 31)
    position = new_game(31, 2)
    for turn in played.game.actions:
        assert not position.state.head[DONE]
        position = step(position, turn)
    np.testing.assert_array_equal(outcome(position), played.result)


def test_launches_that_the_engine_would_ignore_are_not_kept() -> None:
    position = positions(*GAMES[0])[0]
    home = int(np.flatnonzero(position.state.p_owner == 0)[0])
    enemy = int(np.flatnonzero(position.state.p_owner == 1)[0])
    rows = [
        [home, 0.5, 4.7],
        [home, 0.5, 7],
        [home, 0.5, 6],
        [home, 0.5, 0.9],
        [home, np.inf, 0.9],
        [home, -np.inf, 1],
        [home, 0.5, np.nan],
        [enemy, 0, 1],
        [-1, 0, 1],
        [99, 0, 1],
    ]
    np.testing.assert_array_equal(legal(position, 0, np.array(rows)), [[home, 0.5, 4], [home, 0.5, 6]])
    assert legal(position, 0, np.array(rows[-3:])).shape == legal(position, 0, np.empty((0, 3))).shape == (0, 3)


@pytest.mark.parametrize(
    "wrong",
    [
        {"games_2p": -1},
        {"games_2p": 0, "games_4p": 0},
        {"seed": -1},
        {"search_share": 1.5},
        {"weights": Path("w.npz")},
        {"budget": Budget(evals=5)},
    ],
)
def test_recipes_that_cannot_be_meant_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        replace(SHORT, **wrong)  # type: ignore[arg-type]


def test_the_command_makes_the_same_bytes_again_and_replaces_nothing_unasked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "set.npz"
    flags = ["selfplay", "--out", str(out), "--games-2p", "1", "--games-4p", "0", "--seed", "3"]
    assert main(flags) == 0
    assert "2 seats: 1 games" in capsys.readouterr().out
    first = files.sha256(out)
    assert main(flags) == UsageError.exit_code
    assert str(out) in capsys.readouterr().err
    assert files.sha256(out) == first
    assert main([*flags, "--force"]) == 0
    assert files.sha256(out) == first


def test_weights_that_are_not_there_are_named_before_any_game(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, missing = tmp_path / "set.npz", tmp_path / "none.npz"
    flags = ["selfplay", "--out", str(out), "--weights", str(missing), "--search-evals", "5"]
    assert main(flags) == WeightsError.exit_code
    assert str(missing) in capsys.readouterr().err
    assert not out.exists()


def test_the_bundled_set_plays_again_to_its_last_turn() -> None:
    arrays, meta = npz.load_npz(BUNDLED)
    assert meta["n_games"] == len(arrays["seed"]) == len(meta["about"]["players"])
    ends = np.cumsum(arrays["n_turns"].astype(np.int64))
    launch_ends = np.cumsum(arrays["launch_count"].astype(np.int64).ravel()).reshape(-1, 4)
    launch = np.column_stack([arrays[name].astype(np.float64) for name in ("planet", "angle", "ships")])
    for game in range(0, len(ends), 23):
        first = ends[game] - int(arrays["n_turns"][game])
        base = int(launch_ends[first - 1, -1]) if first else 0
        rows = launch_ends[first : ends[game]]
        record = replay(
            int(arrays["seed"][game]),
            int(arrays["n_players"][game]),
            launch[base : int(rows[-1, -1])],
            rows - base,
            int(meta["episode_steps"]),
        )
        assert record.ended
