"""compute: inputs and targets mean what the design says, for any k, p, n and seed."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from td_loop.games.base import Budget, Decision
from td_loop.prepare.compute import Chunk, Computed, Recipe, RowComputer, on_alive
from td_loop.prepare.rows import Rows, sample_rows, training_spans
from td_loop.value.evaluate import evaluate
from td_loop.value.model import SplineValue
from tests.prepare import faulty
from tests.toy_game import GAME, State, Toy, ToyReplays

GAMES = 40


@pytest.fixture(scope="module")
def recipe(value: SplineValue, replays: ToyReplays) -> Recipe:
    return Recipe(
        game="tests.toy_game:GAME",
        replays=replays.path,
        content_hash=replays.content_hash,
        cache=Path(),
        value=value,
        seed=5,
        budget=Budget(evals=4),
        partial_input_p=0.5,
        mc_target_p=0.5,
    )


def chunk(replays: ToyReplays, n: int, k: float, seed: int, *, search: bool = True) -> Chunk:
    rows = sample_rows(training_spans(GAME, replays, np.zeros(GAMES, bool)), n, k, seed)
    return Chunk(np.arange(n), rows, search)


def value_of(v: SplineValue, state: State) -> np.ndarray[Any, Any]:
    outcome = GAME.outcome(state)
    if outcome is not None:
        return np.asarray(outcome)
    features = GAME.features(state, v.gamma)
    return evaluate(v, features[None], np.array([state.n], np.int8), GAME.alive(state)[None])[0]


def each(rows: Rows) -> Any:
    return enumerate(zip(*(column.tolist() for column in rows), strict=True))


@settings(deadline=None)  # the first example compiles the kernel of V
@given(
    n=st.integers(1, 60),
    k=st.floats(0, 1),
    seed=st.integers(0, 10**6),
    p=st.floats(0, 1),
    q=st.floats(0, 1),
)
def test_the_invariants_hold(
    recipe: Recipe, replays: ToyReplays, n: int, k: float, seed: int, p: float, q: float
) -> None:
    c = chunk(replays, n, k, seed)
    out = dataclasses.replace(recipe, seed=seed, partial_input_p=p, mc_target_p=q)()(c)
    beyond = np.arange(4)[None] >= out.n_players[:, None]
    assert np.isfinite(out.target).all()  # I2
    np.testing.assert_allclose(np.where(out.alive, out.target, 0).sum(1), 1, atol=1e-5)  # I2
    assert not out.target[beyond].any()  # I3
    assert not out.features[beyond].any()  # I3
    assert not out.alive[beyond].any()  # I3
    assert out.alive[np.arange(n), c.rows.seat].all()  # I4
    assert not (out.target > 0)[~out.alive].any()  # I5
    assert (out.target >= 0).all()
    assert np.isfinite(out.features).all()  # I6
    np.testing.assert_allclose(out.mc_target.sum(1), out.has_mc, atol=1e-5)
    assert not (out.mc_target > 0)[~out.alive].any()
    assert not out.fallback.any()


@given(
    mass=st.lists(st.floats(0, 1), min_size=4, max_size=4),
    alive=st.lists(st.booleans(), min_size=4, max_size=4),
)
def test_mass_ends_up_on_seats_alive_alone(mass: list[float], alive: list[bool]) -> None:
    if any(alive):
        out = on_alive(np.array([mass]), np.array([alive]))[0]
        assert out.sum() == pytest.approx(1)
        assert not out[~np.array(alive)].any()


def test_a_win_of_nobody_alive_is_shared_by_the_seats_alive() -> None:
    out = on_alive(np.array([[0.0, 0, 1, 0]]), np.array([[True, True, False, False]]))
    assert out.tolist() == [[0.5, 0.5, 0, 0]]


def test_a_replay_row_is_worth_the_next_state_of_the_replay(recipe: Recipe, replays: ToyReplays) -> None:
    c = chunk(replays, 200, 0.0, 1)
    out = recipe()(c)
    ends = 0
    for i, (g, turn, _, _) in each(c.rows):
        after = replays.state(g, turn + 1)
        ends += GAME.outcome(after) is not None
        expected = on_alive(value_of(recipe.value, after)[None], GAME.alive(replays.state(g, turn))[None])[0]
        np.testing.assert_allclose(out.target[i], expected, atol=1e-6)
    assert ends > 0  # the rule for a game's end was looked at too


class Scripted(Toy):
    """Its search always settles two troops and then marches one on seat 0."""

    def make_search(self, value: SplineValue) -> Any:
        def search(state: State, seat: int, budget: Budget, rng: Any) -> Decision[Any]:
            return Decision(np.array([[seat, 2], [0, 1]]), 1)

        return search


def test_an_agent_row_is_worth_the_state_that_the_search_leads_to(recipe: Recipe, replays: ToyReplays) -> None:
    c = chunk(replays, 200, 1.0, 2)
    out = RowComputer(recipe, Scripted(), replays)(c)
    differs = 0
    for i, (g, turn, seat, _) in each(c.rows):
        state = replays.state(g, turn)
        actions = [replays.action(g, turn, s) for s in range(4)]
        actions[seat] = np.array([[seat, 2], [0, 1]])
        after = GAME.step(state, actions)
        differs += (after.land != replays.state(g, turn + 1).land).any()
        expected = on_alive(value_of(recipe.value, after)[None], GAME.alive(state)[None])[0]
        np.testing.assert_allclose(out.target[i], expected, atol=1e-6)
    assert differs > 50


@pytest.mark.parametrize("k", [0.0, 1.0])
def test_a_partial_input_is_a_prefix_of_the_launches_of_that_turn(
    recipe: Recipe, replays: ToyReplays, k: float
) -> None:
    c = chunk(replays, 200, k, 3)
    out = RowComputer(dataclasses.replace(recipe, partial_input_p=1.0), Scripted(), replays)(c)
    prefixes = set()
    for i, (g, turn, seat, agent) in each(c.rows):
        state = replays.state(g, turn)
        action = np.array([[seat, 2], [0, 1]]) if agent else replays.action(g, turn, seat)
        fits = [
            m
            for m in range(1, len(action) + 1)
            if (out.features[i] == GAME.features(GAME.partial(state, seat, action, m), recipe.value.gamma)).all()
        ]
        assert bool(fits) == out.is_partial[i] == (len(action) > 0)
        if fits:
            prefixes.add((len(action), fits[0]))
        else:
            np.testing.assert_array_equal(out.features[i], GAME.features(state, recipe.value.gamma))
    assert {(2, 1), (2, 2)} <= prefixes  # both a part and the whole turn


def test_p_of_zero_leaves_every_input_whole_and_every_target_alone(recipe: Recipe, replays: ToyReplays) -> None:
    c = chunk(replays, 100, 0.5, 4)
    whole = dataclasses.replace(recipe, partial_input_p=0.0, mc_target_p=0.0)()(c)
    assert not whole.is_partial.any()
    assert not whole.has_mc.any()
    assert not whole.mc_target.any()
    np.testing.assert_array_equal(whole.target, recipe()(c).target)  # the input's prefix does not touch the target
    for i, (g, turn, _, _) in each(c.rows):
        np.testing.assert_array_equal(whole.features[i], GAME.features(replays.state(g, turn), recipe.value.gamma))


def test_mc_targets_are_the_outcomes_of_games_that_have_one(recipe: Recipe, replays: ToyReplays) -> None:
    c = chunk(replays, 200, 0.5, 5)
    out = dataclasses.replace(recipe, mc_target_p=1.0)()(c)
    for i, (g, _, _, _) in each(c.rows):
        outcome = replays.games[g].outcome
        assert out.has_mc[i] == (outcome is not None)
        if outcome is not None:
            np.testing.assert_allclose(out.mc_target[i], outcome, atol=1e-7)
    assert not out.has_mc.all()


@settings(deadline=None, max_examples=30)
@given(st.permutations(range(24)), st.integers(1, 24))
def test_rows_do_not_depend_on_the_order_or_size_of_chunks(
    recipe: Recipe, replays: ToyReplays, order: list[int], size: int
) -> None:
    c = chunk(replays, 24, 0.5, 6)
    together, apart = recipe()(c), Computed.empty(24, len(GAME.feature_names))
    computer = recipe()
    for start in range(0, 24, size):
        part = np.array(order[start : start + size])
        computed = computer(Chunk(part, c.rows.part(part), search=True))
        for name in Computed.ARRAYS:
            getattr(apart, name)[part] = getattr(computed, name)
    for name in Computed.ARRAYS:
        np.testing.assert_array_equal(getattr(apart, name), getattr(together, name), err_msg=name)


def test_without_a_search_an_agent_row_is_the_replay_row(recipe: Recipe, replays: ToyReplays) -> None:
    c = chunk(replays, 100, 1.0, 7, search=False)
    out = recipe()(c)
    replay = recipe()(c._replace(rows=c.rows._replace(agent=np.zeros(100, bool))))
    assert out.fallback.all()
    assert not replay.fallback.any()
    np.testing.assert_array_equal(out.target, replay.target)
    np.testing.assert_array_equal(out.features, replay.features)


@pytest.mark.parametrize(
    "game",
    [faulty.RAISES, faulty.UNDECIDED, faulty.Faulty(faulty.fail, faulty.always)],
    ids=["raises", "no", "all"],
)
def test_a_search_that_gives_no_decision_falls_back_on_its_own_row_alone(
    recipe: Recipe, replays: ToyReplays, game: faulty.Faulty
) -> None:
    c = chunk(replays, 300, 1.0, 8)
    out, good = RowComputer(recipe, game, replays)(c), recipe()(c)
    bad = np.array([game.when(replays.state(g, turn), seat) for _, (g, turn, seat, _) in each(c.rows)])
    assert bad.any()
    np.testing.assert_array_equal(out.fallback, bad)
    np.testing.assert_array_equal(out.target[~bad], good.target[~bad])


def test_exceptions_of_a_search_are_counted_with_a_traceback(recipe: Recipe, replays: ToyReplays) -> None:
    out = RowComputer(recipe, faulty.RAISES_ALWAYS, replays)(chunk(replays, 30, 1.0, 9))
    ((kind, fault),) = out.faults.items()
    assert "ZeroDivisionError in" in kind
    assert "faulty.py" in kind
    assert fault.count == 30
    assert "this search never ran" in fault.text
    assert "Traceback" in fault.text


def test_an_action_that_the_engine_refuses_is_a_fallback_too(recipe: Recipe, replays: ToyReplays) -> None:
    class Junk(Toy):
        def make_search(self, value: SplineValue) -> Any:
            return lambda *_: Decision(np.zeros((1, 3), np.int64), 1)

    out = RowComputer(recipe, Junk(), replays)(chunk(replays, 10, 1.0, 10))
    assert out.fallback.all()


def test_features_that_are_not_finite_are_refused_by_frame_and_name(recipe: Recipe, replays: ToyReplays) -> None:
    with pytest.raises(ValueError, match=r"seed \d+, turn \d+: feature \w+ of seat \d is nan"):
        RowComputer(recipe, faulty.BAD_FEATURES, replays)(chunk(replays, 200, 0.0, 11))


def test_a_seat_that_comes_back_to_life_is_refused(recipe: Recipe, replays: ToyReplays) -> None:
    class Undead(Toy):
        def alive(self, state: State) -> Any:
            return super().alive(state) & (state.turn != 2)

    with pytest.raises(ValueError, match="came back to life"):
        RowComputer(recipe, Undead(), replays)(chunk(replays, 200, 0.0, 12))


def test_a_replay_set_that_changed_meanwhile_is_refused(recipe: Recipe) -> None:
    with pytest.raises(RuntimeError, match="changed while prepare was running"):
        dataclasses.replace(recipe, content_hash="other")()
