"""parse: an episode file becomes the game that was observed, however it spells its numbers."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from td_loop.errors import ReplayError
from td_loop.games.orbit_wars.replays.parse import parse_episode
from td_loop.games.orbit_wars.replays.record import P_COMET, P_MEMBER, P_OWNER, P_PROD, P_SHIPS, GameRecord
from td_loop.games.orbit_wars.replays.verify import EXACT, verdict
from td_loop.games.orbit_wars.state import DONE, N_FLEETS, N_PLANETS, NEXT_FLEET_ID, STEP
from tests.replays.conftest import CRASH_STEP, Json

Edit = Callable[[bytes, Callable[[Json], object]], bytes]


def assert_same_game(a: GameRecord, b: GameRecord) -> None:
    assert a.content_id == b.content_id
    for name in a.frames._fields:
        np.testing.assert_array_equal(getattr(a.frames, name), getattr(b.frames, name), err_msg=name)


@pytest.mark.parametrize("which", ["game_2p", "game_4p"])
def test_every_frame_is_kept_as_observed(which: str, request: pytest.FixtureRequest) -> None:
    data = request.getfixturevalue(which)
    f = parse_episode(data, "g").frames
    steps = orjson.loads(data)["steps"]
    end = 0
    for k, seats in enumerate(steps):
        obs = seats[0]["observation"]
        n, m = len(obs["planets"]), len(obs["fleets"])
        assert f.head[k, [STEP, N_PLANETS, N_FLEETS, NEXT_FLEET_ID]].tolist() == [k, n, m, obs["next_fleet_id"]]
        planets = np.array(obs["planets"])
        np.testing.assert_array_equal(f.planet_f[k, :, :n].T, planets[:, 2:5])
        np.testing.assert_array_equal(f.planet_i[k, [P_OWNER, P_SHIPS, P_PROD], :n].T, planets[:, [1, 5, 6]])
        fleets = np.array(obs["fleets"]).reshape(m, 7)
        np.testing.assert_array_equal(f.fleet_f[3 * end : 3 * (end + m)].reshape(3, m).T, fleets[:, 2:5])
        np.testing.assert_array_equal(f.fleet_i[4 * end : 4 * (end + m)].reshape(4, m).T, fleets[:, [0, 1, 5, 6]])
        end += m
        assert f.fleet_end[k] == end
        ids = [i for group in obs["comets"] for i in group["planet_ids"]]
        assert np.flatnonzero(f.planet_i[k, P_COMET, :n] >= 0).tolist() == ids
        assert f.planet_i[k, P_MEMBER, ids].tolist() == list(range(len(ids)))
    assert f.head[:, DONE].tolist() == [0] * (len(steps) - 1) + [1]


def test_comet_groups_come_from_the_frames(game_2p: bytes) -> None:
    f = parse_episode(game_2p, "g").frames
    shown = orjson.loads(game_2p)["steps"][50][0]["observation"]
    (group,) = shown["comets"]
    ships = shown["planets"][group["planet_ids"][0]][5]
    assert f.group[:, 0].tolist() == [50, ships, len(group["paths"][0])]
    for member, path in enumerate(group["paths"]):
        np.testing.assert_array_equal(f.path[:, 0, member, : len(path)].T, path)
    assert f.comet_at[:, 0].tolist() == [-1] * 50 + list(range(len(f.head) - 50))


def test_launches_are_those_that_became_fleets(game_2p: bytes) -> None:
    record = parse_episode(game_2p, "g")
    steps = orjson.loads(game_2p)["steps"]
    assert record.n_launches == steps[-1][0]["observation"]["next_fleet_id"]
    seen = {}  # id -> (owner, from, ships) of every fleet that lived to be observed
    for seats in steps:
        for i, owner, _, _, angle, origin, ships in seats[0]["observation"]["fleets"]:
            seen[i] = (owner, origin, angle, ships)
    counts = np.diff(record.frames.launch_end.ravel(), prepend=0)
    seats_of = np.repeat(np.tile(np.arange(4), record.n_frames), counts).tolist()
    made = [(seat, *row) for seat, row in zip(seats_of, record.frames.launch.tolist(), strict=True)]
    assert len(seen) > record.n_launches / 2
    assert all(made[i] == fleet for i, fleet in seen.items())


def _floats(x: Any) -> Any:
    if isinstance(x, dict):
        return {k: v if k in ("path_index", "step") else _floats(v) for k, v in x.items()}
    if isinstance(x, list):
        return [_floats(v) for v in x]
    return float(x) if isinstance(x, int) and not isinstance(x, bool) else x


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda d: d.update(steps=_floats(d["steps"])), id="ids and ships as floats"),
        pytest.param(
            lambda d: [s[1]["observation"].pop("step", None) for s in d["steps"]], id="seat 1 has no step"
        ),
        pytest.param(lambda d: [s[0]["observation"].pop("step") for s in d["steps"]], id="nobody has a step"),
        pytest.param(lambda d: [s[0].update(observation=None) for s in d["steps"]], id="seat 0 sees nothing"),
        pytest.param(lambda d: [s[0]["observation"].pop("next_fleet_id") for s in d["steps"][:5]], id="fleet ids"),
        pytest.param(lambda d: d.pop("info"), id="no info, so no seed"),
        pytest.param(lambda d: d["info"].update(TeamNames=["x", "y"]), id="team names"),
        pytest.param(lambda d: d.update(rewards=None, statuses=None), id="no rewards"),
        pytest.param(lambda d: [d.pop(k) for k in ("module_version", "version", "title")], id="no versions"),
        pytest.param(lambda d: d.pop("configuration"), id="no configuration"),
    ],
)
def test_the_same_game_however_it_is_spelt(change: Callable[[Json], object], game_4p: bytes, edit: Edit) -> None:
    # No configuration means episodeSteps 500, so the game must be of that length for the ids to agree.
    whole = edit(game_4p, lambda d: d["configuration"].update(episodeSteps=500))
    assert_same_game(parse_episode(edit(whole, change), "b"), parse_episode(whole, "a"))


def test_a_changed_frame_or_launch_is_another_game(game_2p: bytes, edit: Edit) -> None:
    original = parse_episode(game_2p, "a").content_id

    def angle(d: Json) -> None:
        first = next(s[0]["action"] for s in d["steps"] if s[0]["action"])
        first[0][1] += 1e-12

    def ships(d: Json) -> None:
        d["steps"][-1][0]["observation"]["planets"][0][5] += 1

    for change in (angle, ships, lambda d: d["steps"].pop(), lambda d: d["configuration"].update(episodeSteps=61)):
        assert parse_episode(edit(game_2p, change), "b").content_id != original


@pytest.mark.parametrize(
    "junk",
    [None, "hello", 5, {}, [[0, 1.0]], [[]], [None], [7], ["abc"], [[0, "x", 1]], [[0, 1.0, None]], [[None] * 3]],
)
def test_null_and_malformed_actions_are_no_launches(junk: Any, game_2p: bytes, edit: Edit) -> None:
    record = parse_episode(edit(game_2p, lambda d: d["steps"][30][0].update(action=junk)), "g")
    assert record.frames.launch_end[29, 0] == record.frames.launch_end[28, 3]
    assert record.frames.launch_end[29, 1] > record.frames.launch_end[29, 0]  # seat 1 is not touched


@pytest.mark.parametrize(
    ("info", "configuration", "seed"),
    [
        ({"seed": 7}, {"seed": None}, 7),
        ({"seed": 7}, {"seed": 8}, 7),
        ({}, {"seed": 8}, 8),
        ({"seed": None}, {"seed": 8.0}, 8),
        ({}, {}, None),
        ({"seed": True}, {"seed": "x"}, None),
        ({"seed": 2**70}, {}, 2**70),
    ],
)
def test_where_the_seed_is(info: Json, configuration: Json, seed: int | None, game_4p: bytes) -> None:
    document = orjson.loads(game_4p)
    document["info"] = info
    document["configuration"].pop("seed")
    document["configuration"].update(configuration)
    assert parse_episode(json.dumps(document).encode(), "g").seed == seed


def test_a_crash_is_recorded_though_the_final_statuses_hide_it(crashed_game: bytes) -> None:
    record = parse_episode(crashed_game, "g")
    assert orjson.loads(crashed_game)["statuses"] == ["DONE", "DONE"]
    assert record.crashes == (None, (CRASH_STEP + 1, "ERROR"))
    assert record.ended
    outcome, why = record.outcome_or_why
    assert outcome is None
    assert "seat 1 crashed (ERROR at step 21)" in why
    # Frame CRASH_STEP is where the broken decision was due: it is the last that a working agent led to.
    assert record.usable_frames == CRASH_STEP + 1
    assert record.n_frames == 60


@pytest.mark.parametrize("status", ["ERROR", "TIMEOUT", "INVALID"])
def test_every_kind_of_crash_counts(status: str, game_2p: bytes, edit: Edit) -> None:
    record = parse_episode(edit(game_2p, lambda d: d["steps"][9][0].update(status=status)), "g")
    assert record.crashes == ((9, status), None)
    assert record.usable_frames == 9


@pytest.mark.parametrize("step", [0, 1])
def test_a_crash_on_the_first_move_is_recorded_as_such(step: int, game_2p: bytes, edit: Edit) -> None:
    record = parse_episode(edit(game_2p, lambda d: d["steps"][step][0].update(status="ERROR")), "g")
    assert record.crashes == ((step, "ERROR"), None)
    assert record.usable_frames == 1
    assert record.outcome_or_why == (None, f"seat 0 crashed (ERROR at step {step})")
    assert record.n_frames == 60
    assert verdict(record).status == EXACT


def test_a_game_cut_short_has_no_outcome(game_2p: bytes, edit: Edit) -> None:
    record = parse_episode(edit(game_2p, lambda d: d.update(steps=d["steps"][:50], rewards=[1, -1])), "g")
    assert record.n_frames == 50
    assert record.outcome_or_why == (None, "cut short")


def test_winners_share(game_4p: bytes, edit: Edit) -> None:
    record = parse_episode(edit(game_4p, lambda d: d.update(rewards=[1, -1, 1, -1])), "g")
    np.testing.assert_array_equal(record.outcome_or_why[0], [0.5, 0, 0.5, 0])


def test_lost_rewards_are_computed_from_the_last_frame(game_4p: bytes, edit: Edit) -> None:
    whole = parse_episode(game_4p, "g")
    assert whole.rewards == (-1, -1, -1, 1)

    def forget(d: Json) -> None:
        d["rewards"] = [None] * 4
        for seat in d["steps"][-1]:
            seat["reward"] = None

    lost = parse_episode(edit(game_4p, forget), "g")
    assert lost.rewards == (None,) * 4
    np.testing.assert_array_equal(lost.outcome_or_why[0], whole.outcome_or_why[0])


def test_if_nobody_won_those_alive_share(game_4p: bytes, edit: Edit) -> None:
    record = parse_episode(edit(game_4p, lambda d: d.update(rewards=[-1] * 4)), "g")
    outcome = record.outcome_or_why[0]
    assert outcome is not None
    last = orjson.loads(game_4p)["steps"][-1][0]["observation"]
    alive = {row[1] for row in last["planets"] + last["fleets"]}
    assert {seat for seat in range(4) if outcome[seat] > 0} == alive - {-1}
    assert outcome.sum() == 1


def test_ids_that_are_not_rows_are_mapped(game_2p: bytes, edit: Edit) -> None:
    """Older rules: ids that do not count up with the list."""

    def renumber(d: Json) -> None:
        new = {i: 1000 - 3 * i for i in range(100)}
        for seats in d["steps"]:
            obs = seats[0]["observation"]
            for key in ("planets", "initial_planets"):
                obs[key] = [[new[p[0]], *p[1:]] for p in obs[key]]
            obs["fleets"] = [[*f[:5], new[int(f[5])], f[6]] for f in obs["fleets"]]
            obs["comet_planet_ids"] = [new[i] for i in obs["comet_planet_ids"]]
            for group in obs["comets"]:
                group["planet_ids"] = [new[i] for i in group["planet_ids"]]
            for seat in seats:
                seat["action"] = [[new[int(m[0])], *m[1:]] for m in seat["action"] or []]

    assert_same_game(parse_episode(edit(game_2p, renumber), "b"), parse_episode(game_2p, "a"))


def test_a_planet_id_that_stands_twice_is_an_error(game_2p: bytes, edit: Edit) -> None:
    def twice(d: Json) -> None:
        d["steps"][3][0]["observation"]["planets"][1][0] = 0

    with pytest.raises(ReplayError, match=r"g: steps\[3\]: two planets with one id"):
        parse_episode(edit(game_2p, twice), "g")


def test_python_s_nan_is_read(game_2p: bytes) -> None:
    document = orjson.loads(game_2p)
    document["steps"][30][0]["action"] = [[0, float("nan"), 10_000]]
    data = json.dumps(document).encode()
    assert b"NaN" in data
    assert parse_episode(data, "g").n_frames == 60


def _observation(k: int, **change: Any) -> Callable[[Json], object]:
    return lambda d: d["steps"][k][0]["observation"].update(change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.pop("steps"), "not an episode file"),
        (lambda d: d.update(steps={}), "not an episode file"),
        (lambda d: d.update(name="connectx"), "a game of 'connectx'"),
        (lambda d: d.update(steps=d["steps"][:1]), "1 step"),
        (lambda d: d.update(steps=d["steps"] * 40), "cannot be numbered"),
        (lambda d: d.update(steps=[s[:1] for s in d["steps"]]), "1 seat"),
        (lambda d: d["steps"][4].pop(), r"steps\[4\] has 1 seats"),
        (lambda d: d["steps"].pop(3), r"steps\[3\] holds the observation of step 4"),
        (lambda d: [s.update(observation={}) for s in d["steps"][5]], r"steps\[5\]: no seat's observation"),
        (_observation(5, planets=[[0, 1, 2]]), r"steps\[5\] planets\[0\] is .\[0, 1, 2\]., not 7 numbers"),
        (_observation(5, planets=[None]), r"steps\[5\] planets\[0\] is .None., not 7 numbers"),
        (_observation(5, fleets=[[0, 0, "x", 1, 1, 1, 1]]), r"steps\[5\] fleets\[0\] is .*, not 7 numbers"),
        (_observation(5, fleets=7), r"steps\[5\] fleets is .7., not a list"),
        (_observation(5, fleets=[[0, 0, None, 1, 1, 1, 1]]), r"steps\[5\] fleets\[0\]: x is nan, not a number"),
        (_observation(5, fleets=[[0, 5, 1, 1, 1, 1, 1]]), r"fleets\[0\]: owner is 5, not a whole number in 0..1"),
        (_observation(5, fleets=[[0, 0, 1, 1, 1, 1, 0]]), r"fleets\[0\]: ships is 0"),
        (_observation(5, fleets=[[0, 0, 1e5, 1, 1, 1, 1]]), r"fleets\[0\]: x is 100000"),
        (_observation(5, fleets=[[0, 0, 1, 1, 1, 77, 1]]), r"steps\[5\]: a fleet from planet 77, which never was"),
        (_observation(0, angular_velocity=float("inf")), "malformed|not finite"),
        (lambda d: d["steps"][5][0]["observation"]["planets"].pop(), r"steps\[5\]: its planets are not the 24"),
        (lambda d: d["steps"][55][0]["observation"].update(comets=[]), r"steps\[55\]: its planets are not the 24"),
        (_observation(5, fleets=[[0, 0, 1, 1, 1, 1, 1.5]]), r"steps\[5\] fleets\[0\]: ships is 1.5, not a whole"),
        (_observation(5, comets=[{"paths": []}]), "malformed"),
        (_observation(5, comets=[{"path_index": -1}]), "path_index -1"),
        (lambda d: d["steps"][0][0]["observation"].pop("angular_velocity"), "malformed"),
        (lambda d: d.update(configuration=[1]), "malformed"),
        (lambda d: d["steps"].__setitem__(3, [None, None]), "malformed"),
    ],
)
def test_a_malformed_file_says_where(
    change: Callable[[Json], object], message: str, game_2p: bytes, edit: Edit
) -> None:
    with pytest.raises(ReplayError, match=rf"^g\.json: .*{message}"):
        parse_episode(edit(game_2p, change), "g.json")


@pytest.mark.parametrize(
    "data", [b"", b"{", b"hello", b"[1, 2]", b"null", b'{"steps": [[1, 2], [3, 4]]}', b"[" * 100_000]
)
def test_what_is_no_episode_is_refused_by_name(data: bytes) -> None:
    with pytest.raises(ReplayError, match=r"^g\.json: "):
        parse_episode(data, "g.json")


JUNK = st.sampled_from([None, True, -1, 0, 1, 1.5, 41, 99, 2**40, 1e308, float("nan"), "x", [], {}, [[]]])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_is_wrong_in_a_file_it_is_a_replay_error_or_a_game_that_verifies(
    data: st.DataObject, game_2p: bytes
) -> None:
    """No damage raises anything else, and no number that gets through makes a kernel fail."""
    root = orjson.loads(game_2p)
    step = data.draw(st.sampled_from([0, 1, 10, 49, 50, 51, 59]))
    part = data.draw(st.sampled_from([("configuration",), ("steps", step), ("steps", step, 0, "observation")]))
    at: Any = part[-1]
    parent: Any = root
    for key in part[:-1]:
        parent = parent[key]
    for _ in range(data.draw(st.integers(0, 4))):
        child = parent[at]
        if not isinstance(child, list | dict) or not child:
            break
        parent, at = (
            child,
            data.draw(st.sampled_from(list(child) if isinstance(child, dict) else range(len(child)))),
        )
    parent[at] = data.draw(JUNK)
    try:
        record = parse_episode(json.dumps(root).encode(), "g")
    except ReplayError:
        return
    assert verdict(record).label
    assert verdict(replace(record, seed=None)).label


def test_the_cycle_collector_is_left_as_it_was(game_4p: bytes) -> None:
    parse_episode(game_4p, "g")
    assert gc.isenabled()
    with pytest.raises(ReplayError):
        parse_episode(b"{", "g")
    assert gc.isenabled()
