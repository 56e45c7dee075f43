"""verify: exact games are called exact, and the first thing that differs is named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from td_loop.games.orbit_wars.replays.parse import parse_episode
from td_loop.games.orbit_wars.replays.record import GameRecord
from td_loop.games.orbit_wars.replays.sources import Reader, find_sources
from td_loop.games.orbit_wars.replays.verify import DIFFERS, EXACT, STEPWISE, Difference, verdict
from tests.replays.conftest import Json

Edit = Callable[[bytes, Callable[[Json], object]], bytes]


@pytest.mark.parametrize("which", ["game_2p", "game_4p", "crashed_game", "game_won_by_1"])
def test_official_games_are_exact(which: str, request: pytest.FixtureRequest) -> None:
    record = parse_episode(request.getfixturevalue(which), which)
    assert verdict(record).status == EXACT
    assert verdict(replace(record, seed=None)).status == STEPWISE


def test_real_ladder_games_are_exact(real_replays: Path) -> None:
    sources = [s for s in find_sources([real_replays]) if s.path.suffix == ".gz"]
    assert sources
    with Reader() as reader:
        for source in sources:
            record = parse_episode(reader.read(source), source.name)
            assert record.outcome_or_why[0] is not None
            assert (source.name, verdict(record).label) == (source.name, EXACT)


def _observation(d: Json, k: int) -> Any:
    return d["steps"][k][0]["observation"]


def _bump(rows: Any, row: int, column: int, by: float = 1) -> None:
    rows[row][column] += by


def _fleet_ships(d: Json) -> None:
    _bump(_observation(d, 12)["fleets"], 3, 6)


def _no_comet(d: Json) -> None:
    obs = _observation(d, 55)
    obs.update(comets=[], planets=obs["planets"][:24])


CHANGES: dict[str, tuple[Callable[[Json], object], int, str]] = {
    "planet ships": (lambda d: _bump(_observation(d, 17)["planets"], 3, 5), 17, "planets[3].ships"),
    "planet x": (lambda d: _bump(_observation(d, 17)["planets"], 3, 2, 1e-12), 17, "planets[3].x"),
    "planet y": (lambda d: _bump(_observation(d, 17)["planets"], 3, 3, 1e-12), 17, "planets[3].y"),
    "planet radius": (lambda d: _bump(_observation(d, 17)["planets"], 3, 4, 0.5), 17, "planets[3].radius"),
    "planet production": (lambda d: _bump(_observation(d, 17)["planets"], 3, 6), 17, "planets[3].production"),
    "planet owner": (lambda d: _bump(_observation(d, 17)["planets"], 3, 1, -1), 17, "planets[3].owner"),
    "no comet": (_no_comet, 55, "len(planets)"),
    "fleet ships": (_fleet_ships, 12, "fleets[3].ships"),
    "fleet id": (lambda d: _bump(_observation(d, 12)["fleets"], 3, 0, 500), 12, "fleets[3].id"),
    "fleet x": (lambda d: _bump(_observation(d, 12)["fleets"], 3, 2, 1e-12), 12, "fleets[3].x"),
    "fleet y": (lambda d: _bump(_observation(d, 12)["fleets"], 3, 3, 1e-12), 12, "fleets[3].y"),
    "fleet angle": (lambda d: _bump(_observation(d, 12)["fleets"], 3, 4, 1e-12), 12, "fleets[3].angle"),
    "fleet from": (lambda d: _bump(_observation(d, 12)["fleets"], 3, 5), 12, "fleets[3].from_planet_id"),
    "no fleet": (lambda d: _observation(d, 12)["fleets"].pop(), 12, "len(fleets)"),
    "next id": (lambda d: _observation(d, 12).update(next_fleet_id=5), 12, "next_fleet_id"),
    "reward": (lambda d: d.update(rewards=[-1, -1]), 59, "rewards[0]"),
}


@pytest.mark.parametrize("seeded", [True, False])
@pytest.mark.parametrize("name", sorted(CHANGES))
def test_the_first_difference_is_named(name: str, seeded: bool, game_2p: bytes, edit: Edit) -> None:
    change, turn, field = CHANGES[name]
    record = parse_episode(edit(game_2p, change), "g")
    found = verdict(record if seeded else replace(record, seed=None))
    assert found.status == DIFFERS
    assert found.difference is not None
    assert (found.difference.turn, found.difference.field) == (turn, field)
    assert found.difference.recorded != found.difference.ours


def _comets(change: Callable[[Json], object]) -> Callable[[Json], object]:
    """Change the group in every frame that shows it, as a file of other rules would have it."""
    return lambda d: [
        change(s[0]["observation"]["comets"][0]) for s in d["steps"] if s[0]["observation"]["comets"]
    ]


@pytest.mark.parametrize(
    ("change", "turn", "field"),
    [
        # Only the path ahead of the game's end differs: no frame shows it, the observation's path does.
        (_comets(lambda group: _bump(group["paths"][1], 20, 0, 1e-9)), 50, "comets[0].paths[1][20].x"),
        (_comets(lambda group: [path.pop() for path in group["paths"]]), 50, "comets[0] path length"),
        (_comets(lambda group: group.update(path_index=group["path_index"] + 1)), 49, "comets[0]"),
        (lambda d: _bump(d["steps"][0][0]["observation"]["initial_planets"], 2, 2), 0, "initial_planets[2].x"),
        (lambda d: _bump(d["steps"][0][0]["observation"]["initial_planets"], 2, 5), 0, "initial_planets[2].ships"),
        (lambda d: d["steps"][0][0]["observation"].update(angular_velocity=0.03), 0, "angular_velocity"),
        (lambda d: d["info"].update(seed=8), 0, "angular_velocity"),
    ],
)
def test_differences_from_the_seed(
    change: Callable[[Json], object], turn: int, field: str, game_2p: bytes, edit: Edit
) -> None:
    found = verdict(parse_episode(edit(game_2p, change), "g")).difference
    assert found is not None
    assert (found.turn, found.field) == (turn, field)


def test_without_a_seed_a_difference_does_not_spread(game_2p: bytes, edit: Edit) -> None:
    """Every turn starts from the recorded frame, so frames after a damaged one can be exact again."""
    record = parse_episode(edit(game_2p, _fleet_ships), "g")
    whole = parse_episode(game_2p, "g")
    kept = record.frames.head[13:].tolist()
    assert kept == whole.frames.head[13:].tolist()
    tail = _from(record, 14)
    assert verdict(tail).status == STEPWISE


def _from(record: GameRecord, turn: int) -> GameRecord:
    """The game from a frame on, as if its first frames were lost (only for stepping: turns keep their numbers)."""
    f = record.frames
    fleets, launches = int(f.fleet_end[turn - 1]), int(f.launch_end[turn - 1, -1])
    frames = f._replace(
        head=f.head[turn:],
        planet_f=f.planet_f[turn:],
        planet_i=f.planet_i[turn:],
        comet_at=f.comet_at[turn:],
        fleet_f=f.fleet_f[3 * fleets :],
        fleet_i=f.fleet_i[4 * fleets :],
        fleet_end=f.fleet_end[turn:] - fleets,
        launch=f.launch[launches:],
        launch_end=f.launch_end[turn:] - launches,
    )
    return replace(record, frames=frames, seed=None)


def test_the_label_says_all(game_2p: bytes, edit: Edit) -> None:
    found = verdict(parse_episode(edit(game_2p, _fleet_ships), "g"))
    assert found.difference is not None
    assert found.label == str(found.difference)
    assert "turn 12, fleets[3].ships: recorded" in found.label
    assert str(Difference(1, "x", 2.0, 3.0)) == "turn 1, x: recorded 2.0, ours 3.0"
