from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from td_loop.games.orbit_wars.board import new_game
from td_loop.games.orbit_wars.engine import step
from td_loop.games.orbit_wars.forecast import (
    HORIZON,
    MARK_FAR,
    MARK_NEAR,
    NEVER,
    RANGE,
    REACH_UNIT,
    TICKS,
    Forecast,
    begin,
    forecast_for,
    holding,
    send,
    spare,
)
from td_loop.games.orbit_wars.paths import path_table
from td_loop.games.orbit_wars.state import (
    CENTER,
    EPISODE,
    N_FLEETS,
    N_PLANETS,
    STEP,
    SUN_RADIUS,
    Position,
    copy_state,
)
from tests.orbit_wars.strategies import positions as drawn
from tests.orbit_wars_agents.positions import known_only
from tests.orbit_wars_play.values import played


def forecast(pos: Position, gamma: float = 0.97) -> Forecast:
    fc = forecast_for(pos, gamma)
    begin(fc, pos.board, path_table(pos.board), pos.state)
    return fc


def by_identity(pos: Position) -> dict[tuple[int, int], tuple[int, int]]:
    """(owner, ships) of the planets by what does not move up in the list when comets leave."""
    s = pos.state
    return {
        (int(s.p_comet[i]), int(s.p_member[i]) if s.p_comet[i] >= 0 else i): (int(s.p_owner[i]), int(s.p_ships[i]))
        for i in range(s.head[N_PLANETS])
    }


def assert_foretells(fc: Forecast, pos: Position) -> None:
    """The forecast names every planet's owner and garrison in every turn in which nobody launches."""
    names = list(by_identity(pos))
    now = pos
    for tick in range(1, int(fc.span[TICKS]) + 1):
        now = step(now, [None] * pos.board.n_players)
        truth = by_identity(now)
        for i, name in enumerate(names):
            assert holding(fc, i, tick) == truth.get(name, (-1, 0)), (name, tick)


@settings(max_examples=25)
@given(played())
def test_without_launches_every_planet_goes_as_forecast(pos: Position) -> None:
    pos = known_only(pos)
    assert_foretells(forecast(pos), pos)


@settings(max_examples=25)
@given(drawn(max_fleets=60))
def test_any_crowd_of_fleets_lands_and_fights_as_forecast(pos: Position) -> None:
    # Planets must stand where the step says: `drawn` leaves them where they start.
    pos.state.head[STEP] = 1
    # Nor does it know fleets inside the sun: the engine burns them on their way in.
    burning = np.hypot(pos.state.f_x - CENTER, pos.state.f_y - CENTER) < SUN_RADIUS
    pos.state.f_x[burning] = 1.0
    pos = known_only(pos)
    assert_foretells(forecast(pos), pos)


@settings(max_examples=30)
@given(played())
def test_marks_agree_with_the_timeline(pos: Position) -> None:
    fc = forecast(pos)
    for m, tick in enumerate((0, MARK_NEAR, MARK_FAR)):
        for i in range(pos.state.head[N_PLANETS]):
            if tick < fc.gone[i]:
                assert holding(fc, i, tick) == (fc.owner_at[m, i], fc.ships_at[m, i])
                assert fc.prod_at[m, i] == fc.prod[i]
            else:
                assert fc.prod_at[m, i] == 0


@settings(max_examples=30)
@given(played(), st.floats(0.8, 1.0))
def test_c_prod_is_the_discounted_sum_of_what_each_seat_makes(pos: Position, gamma: float) -> None:
    fc = forecast(pos, gamma)
    left = int(pos.board.cfg[EPISODE]) - 1 - int(pos.state.head[STEP])
    for i in range(pos.state.head[N_PLANETS]):
        want = np.zeros(4)
        for k in range(1, left + 1):
            # Tick k's production goes to whoever holds the planet after tick k - 1; a comet's last to nobody.
            owner, _ = holding(fc, i, min(k - 1, HORIZON))
            if owner >= 0 and k < fc.gone[i]:
                want[owner] += gamma**k * fc.prod[i]
        np.testing.assert_allclose(fc.c_prod[i], want, rtol=1e-9, atol=1e-9)


def test_c_prod_by_hand() -> None:
    # One planet, three turns left, production 2: it changes hands in the second of them.
    pos = known_only(quiet(2))
    pos.state.head[STEP] = int(pos.board.cfg[EPISODE]) - 4
    pos.state.p_owner[:] = -1
    pos.state.p_owner[0] = 0
    pos.state.p_ships[0] = 5
    pos.state.p_prod[0] = 2
    fc = forecast(pos, 0.5)
    send(fc, 1, 1, 0, 100, 2)
    assert fc.c_prod[0].tolist() == [2 * (0.5 + 0.25), 2 * 0.125, 0.0, 0.0]
    assert holding(fc, 0, 2) == (1, 100 - (5 + 2 + 2))


@settings(max_examples=30)
@given(played(), st.data())
def test_a_launch_taken_back_leaves_no_trace(pos: Position, data: st.DataObject) -> None:
    fc = forecast(pos)
    before = [a.copy() for a in fc]
    n = int(pos.state.head[N_PLANETS])
    sent = []
    for _ in range(data.draw(st.integers(1, 12))):
        src, dst = data.draw(st.integers(0, n - 1)), data.draw(st.integers(0, n - 1))
        launch = (
            data.draw(st.integers(0, 1)),
            src,
            dst,
            data.draw(st.integers(1, 50)),
            data.draw(st.integers(1, 100)),
        )
        send(fc, *launch)
        sent.append(launch)
    for seat, src, dst, ships, eta in data.draw(st.permutations(sent)):
        send(fc, seat, src, dst, -ships, eta)
    for name, a, b in zip(fc._fields, fc, before, strict=True):
        if name != "ticks":  # scrap beyond n_ticks
            assert np.array_equal(a, b), name
    for i in range(n):
        assert np.array_equal(fc.ticks[i, : fc.n_ticks[i]], np.sort(fc.ticks[i, : fc.n_ticks[i]]))


@settings(max_examples=30)
@given(played(), st.data())
def test_what_is_kept_up_by_differences_is_what_adding_up_gives(pos: Position, data: st.DataObject) -> None:
    fc = forecast(pos)
    s, n, seats = pos.state, int(pos.state.head[N_PLANETS]), range(pos.board.n_players)
    late = fc.late.copy()
    for _ in range(data.draw(st.integers(0, 8))):
        seat, ships = data.draw(st.sampled_from(seats)), data.draw(st.integers(1, 50))
        src, dst = data.draw(st.integers(0, n - 1)), data.draw(st.integers(0, n - 1))
        eta = data.draw(st.integers(1, 100))
        send(fc, seat, src, dst, ships, eta)
        late[:, seat] += ships * (eta > fc.mark)
    np.testing.assert_array_equal(fc.late, late)
    apart = np.hypot(s.p_x[:n, None] - s.p_x[:n], s.p_y[:n, None] - s.p_y[:n])
    close = np.round(REACH_UNIT * np.exp(-apart / RANGE))
    for seat in seats:
        there = np.where(fc.owner_at[1, :n] == seat, fc.ships_at[1, :n], 0)
        np.testing.assert_allclose(fc.reach[seat, :n], there @ close, atol=np.abs(there).sum() + 1e-9)


@settings(max_examples=25)
@given(played())
def test_spare_ships_can_go_and_no_more(pos: Position) -> None:
    fc = forecast(pos)
    for i in range(pos.state.head[N_PLANETS]):
        owner = int(fc.owner[i])
        if owner < 0:
            continue
        last = min(HORIZON, int(fc.gone[i]) - 1)
        holds = [holding(fc, i, t)[0] == owner for t in range(last + 1)]
        n = spare(fc, i)
        assert 0 <= n <= fc.ships[i]
        if n < fc.ships[i] and all(holds):
            fc.ships[i] -= n
            assert all(holding(fc, i, t)[0] == owner for t in range(last + 1))
            fc.ships[i] -= 1
            assert not all(holding(fc, i, t)[0] == owner for t in range(last + 1))
            fc.ships[i] += n + 1


def test_ships_on_a_comet_that_leaves_in_the_coming_tick_count_as_lost() -> None:
    pos = next(p for p in comet_flights() if forecast(p).gone.min() == 1)
    fc = forecast(pos)
    comets = np.flatnonzero(fc.gone[: pos.state.head[N_PLANETS]] == 1)
    assert len(comets) == 4
    assert (fc.ships_at[1:, comets] == 0).all()
    assert (fc.ships_at[0, comets] == pos.state.p_ships[comets]).all()
    assert (fc.c_prod[comets] == 0).all()


def quiet(n_players: int) -> Position:
    pos = new_game(3, n_players)
    return Position(pos.board, copy_state(pos.state))


def comet_flights() -> list[Position]:
    pos = quiet(2)
    flights = []
    for _ in range(100):
        pos = step(pos, [None, None])
        if pos.state.head[N_PLANETS] > len(pos.board.home_x):
            flights.append(pos)
    assert flights
    return flights


def test_what_never_lands_within_sight_counts_as_under_way() -> None:
    pos = quiet(2)
    s = copy_state(pos.state)
    s.head[N_FLEETS] = 0
    fc = forecast(Position(pos.board, s))
    send(fc, 0, int(np.flatnonzero(s.p_owner == 0)[0]), 0, 4, NEVER)
    assert fc.late[:, 0].tolist() == [4, 4, 4]
