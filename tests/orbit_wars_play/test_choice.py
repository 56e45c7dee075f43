"""choice: whatever a network answers, the launches are legal; whatever was launched, an option says so."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import bench_decisions as bench
from td_loop.errors import OutputError
from td_loop.games.orbit_wars.agents import AGENTS
from td_loop.games.orbit_wars.aim import LAUNCH_GAP, trace
from td_loop.games.orbit_wars.engine import alive
from td_loop.games.orbit_wars.game import GAME
from td_loop.games.orbit_wars.paths import path_table
from td_loop.games.orbit_wars.sizes import ALL, SIZES, SPARE
from td_loop.games.orbit_wars.state import Action, Position
from td_loop.games.orbit_wars.tokens import policy_inputs, slots_of
from td_loop.games.served import STAY, Tensor
from tests.orbit_wars_agents.positions import GAMES, positions

STATES = [pos for seed, seats in GAMES for pos in positions(seed, seats)]
places = st.sampled_from(range(len(STATES)))
luck = st.integers(0, 2**32 - 1)


def random_logits(position: Position, seat: int, rng: np.random.Generator) -> Tensor:
    inputs = policy_inputs(position, seat)
    n = inputs["nodes"].shape[1]
    logits: Tensor = rng.normal(size=(inputs["slots"].shape[1], 1 + n * len(SIZES))).astype(np.float32)
    return logits


def chosen(position: Position, seat: int, logits: Tensor) -> Action:
    return GAME.choose(position, seat, policy_inputs(position, seat), logits)


def target_of(position: Position, planet: float, angle: float, ships: float) -> int:
    board, s = position
    p = int(planet)
    out = s.p_radius[p] + LAUNCH_GAP
    x, y = s.p_x[p] + np.cos(angle) * out, s.p_y[p] + np.sin(angle) * out
    return int(trace(board, path_table(board), s, x, y, angle, int(ships))[1])


@given(places, luck)
def test_any_logits_give_legal_launches_that_land(k: int, seed: int) -> None:
    rng, position = np.random.default_rng(seed), STATES[k]
    for seat in range(position.board.n_players):
        action = chosen(position, seat, random_logits(position, seat, rng))
        assert GAME.is_legal(position, seat, action)
        assert bench.legal(position, seat, action)
        assert all(target_of(position, *row) >= 0 for row in action)
        assert len(set(action[:, 0])) == len(action)


@given(places, luck)
def test_spoilt_states_give_legal_launches(k: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    position = bench.spoilt(STATES[k], rng)
    for seat in np.flatnonzero(alive(position)).tolist():
        action = chosen(position, seat, random_logits(position, seat, rng))
        assert bench.legal(position, seat, action)


def test_recorded_states_give_legal_launches(real_replays_store: list[Position]) -> None:
    rng, launches = np.random.default_rng(0), 0
    for position in real_replays_store:
        for seat in np.flatnonzero(alive(position)).tolist():
            action = chosen(position, seat, random_logits(position, seat, rng))
            assert bench.legal(position, seat, action)
            launches += len(action)
    assert launches > 100


@given(places, luck)
def test_the_same_logits_give_the_same_launches_in_any_thread(k: int, seed: int) -> None:
    position = STATES[k]
    logits = random_logits(position, 0, np.random.default_rng(seed))
    alone = chosen(position, 0, logits)
    with ThreadPoolExecutor(4) as pool:
        for action in pool.map(lambda _: chosen(position, 0, logits), range(8)):
            np.testing.assert_array_equal(action, alone)


@given(places)
def test_to_stay_is_open_always_and_padding_is_closed(k: int) -> None:
    position = STATES[k]
    inputs = policy_inputs(position, 0)
    s, n = inputs["slots"].shape[1:]
    opened = GAME.open_options(policy_inputs(position, 0), s + 3, 1 + (n + 2) * len(SIZES))
    assert opened[:, STAY].all()
    assert not opened[s:, 1:].any()
    assert not opened[:, 1 + n * len(SIZES) :].any()
    np.testing.assert_array_equal(opened[:s, 1 : 1 + n * len(SIZES)], inputs["open"][0].reshape(s, -1) > 0)


@given(places)
def test_a_policy_that_stays_launches_nothing(k: int) -> None:
    position = STATES[k]
    logits = np.zeros_like(random_logits(position, 0, np.random.default_rng(0)))
    logits[:, STAY] = 1
    assert chosen(position, 0, logits).shape == (0, 3)


def test_the_most_likely_option_is_carried_out() -> None:
    position = positions(11, 2)[60]
    inputs = policy_inputs(position, 0)
    own = slots_of(position, 0)
    made = 0
    for slot, dst in np.argwhere(inputs["open"][0, :, :, SPARE] > 0):
        logits = np.full((len(own), 1 + inputs["nodes"].shape[1] * len(SIZES)), -1.0, np.float32)
        logits[:, STAY] = 0
        logits[slot, 1 + dst * len(SIZES) + SPARE] = 1
        action = chosen(position, 0, logits)
        assert len(action) <= 1
        for planet, angle, ships in action:
            assert planet == own[slot]
            assert target_of(position, planet, angle, ships) == dst
            made += 1
    assert made > 10


@given(places, places, luck)
def test_what_was_looked_at_in_between_makes_no_difference(k: int, other: int, seed: int) -> None:
    position, rng = STATES[k], np.random.default_rng(seed)
    logits = random_logits(position, 0, rng)
    wanted = chosen(position, 0, logits)
    inputs = policy_inputs(position, 0)
    chosen(STATES[other], 1, random_logits(STATES[other], 1, rng))
    for _ in range(2):  # the first one sends its fleets in the forecast
        np.testing.assert_array_equal(GAME.choose(position, 0, inputs, logits), wanted)
    policy_inputs(STATES[other], 1)
    np.testing.assert_array_equal(GAME.choose(position, 0, inputs, np.asfortranarray(logits)), wanted)


@given(places, luck, st.sampled_from([-(2.0**33), 2.0**33]))
def test_only_differences_between_logits_count(k: int, seed: int, by: float) -> None:
    rng, position = np.random.default_rng(seed), STATES[k]
    shape = random_logits(position, 0, rng).shape
    logits = rng.permuted(1024.0 * np.arange(np.prod(shape))).reshape(shape).astype(np.float32)
    moved = logits + np.float32(by)
    assert (moved - np.float32(by) == logits).all()  # nothing was lost to rounding
    np.testing.assert_array_equal(chosen(position, 0, moved), chosen(position, 0, logits))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_logit_that_is_not_finite_is_refused_where_it_counts(value: float) -> None:
    position = positions(11, 2)[60]
    logits = random_logits(position, 0, np.random.default_rng(0))
    closed = np.argwhere(~GAME.open_options(policy_inputs(position, 0), *logits.shape))[0]
    fine = logits.copy()
    fine[tuple(closed)] = value
    np.testing.assert_array_equal(chosen(position, 0, fine), chosen(position, 0, logits))
    logits[0, STAY] = value
    with pytest.raises(OutputError, match="slot 0, option 0"):
        chosen(position, 0, logits)


@pytest.mark.parametrize("wrong", [(0, 0), (1, 0), (0, 1), (0, -4)])
def test_a_wrong_shape_is_refused(wrong: tuple[int, int]) -> None:
    position = positions(11, 2)[60]
    logits = random_logits(position, 0, np.random.default_rng(0))
    few = np.zeros([max(0, n - w) if w else n for n, w in zip(logits.shape, wrong, strict=True)], np.float32)
    with pytest.raises(OutputError):
        chosen(position, 0, few if any(w > 0 for w in wrong) else logits[None])


@given(places, st.sampled_from(["greedy", "balanced", "rusher"]))
def test_the_options_of_an_action_lead_to_the_same_targets(k: int, name: str) -> None:
    position = STATES[k]
    own = slots_of(position, 0)
    if not len(own):
        return
    action = AGENTS[name](position, 0, np.random.default_rng(0))
    options = GAME.options_of(position, 0, action)
    largest = _largest(action)
    for slot, planet in enumerate(own.tolist()):
        if planet not in largest:
            assert options[slot] == STAY
        elif options[slot] > 0:
            assert (options[slot] - 1) // len(SIZES) == target_of(position, planet, *largest[planet])
            assert GAME.open_options(policy_inputs(position, 0), len(own), 10_000)[slot, options[slot]]


def _largest(action: Action) -> dict[int, tuple[float, float]]:
    """Planet -> angle and ships of its largest launch."""
    found: dict[int, tuple[float, float]] = {}
    for planet, angle, ships in action.tolist():
        if int(planet) not in found or ships > found[int(planet)][1]:
            found[int(planet)] = (angle, ships)
    return found


def test_a_launch_that_lands_nowhere_is_no_option() -> None:
    position = positions(11, 2)[0]
    planet = int(slots_of(position, 0)[0])
    angles = np.linspace(0, 2 * np.pi, 400)
    lost = next(a for a in angles if target_of(position, planet, a, 5) < 0)
    assert GAME.options_of(position, 0, np.array([[planet, lost, 5.0]])).tolist() == [-1]
    assert GAME.options_of(position, 0, np.zeros((0, 3))).tolist() == [STAY]


def test_illegal_actions_are_told_from_legal_ones() -> None:
    position = positions(11, 2)[60]
    s = position.state
    planet = int(slots_of(position, 0)[0])
    other = int(slots_of(position, 1)[0])
    have = float(s.p_ships[planet])
    assert GAME.is_legal(position, 0, np.array([[planet, 0.5, have]]))
    for wrong in (
        [[planet, 0.5, have + 1]],
        [[planet, 0.5, have], [planet, 0.5, 1]],
        [[planet, 0.5, 0]],
        [[planet, 0.5, 1.5]],
        [[planet, np.nan, 1]],
        [[planet + 0.5, 0.5, 1]],
        [[other, 0.5, 1]],
        [[999, 0.5, 1]],
        [[-1, 0.5, 1]],
    ):
        assert not GAME.is_legal(position, 0, np.array(wrong))
    assert not GAME.is_legal(position, 0, np.zeros(3))


def test_equal_sizes_are_one_option() -> None:
    position = positions(11, 2)[0]  # nothing is under way: all ships are spare
    assert not policy_inputs(position, 0)["open"][0, :, :, ALL].any()
