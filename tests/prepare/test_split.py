"""split: which games validate."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from td_loop.games.base import GameInfo, replay_set_hash
from td_loop.prepare.split import VAL_FRAC, validation_games

KNOWN = np.array([1.0, 0, 0, 0])


def make(seeds: list[tuple[int, int, bool]]) -> list[GameInfo]:
    return [
        GameInfo(f"{seed:013x}{players}".ljust(64, "0"), players, 9, KNOWN if known else None, f"{seed}")
        for seed, players, known in seeds
    ]


games = st.lists(st.tuples(st.integers(0, 500), st.integers(2, 4), st.booleans()), min_size=1, max_size=80).map(
    make
)


@given(games, st.randoms())
def test_a_game_is_on_the_same_side_wherever_it_lies_in_the_set(infos: list[GameInfo], random: object) -> None:
    shuffled = list(infos)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    sides = [
        {g.content_id: bool(v) for g, v in zip(s, validation_games(s, replay_set_hash(s)), strict=True)}
        for s in (infos, shuffled)
    ]
    assert sides[0] == sides[1]


@given(games)
def test_every_segment_with_two_games_validates_about_a_fifth_of_them(infos: list[GameInfo]) -> None:
    held = validation_games(infos, replay_set_hash(infos))
    for players in (2, 3, 4):
        mine = [i for i, g in enumerate(infos) if g.n_players == players and g.outcome is not None]
        distinct = len({infos[i].content_id for i in mine})
        count = len({infos[i].content_id for i in mine if held[i]})
        if distinct < 2:
            assert count == 0
        else:
            assert count == max(1, round(VAL_FRAC * distinct)) < distinct


@given(games)
def test_copies_of_a_game_are_on_one_side(infos: list[GameInfo]) -> None:
    held = validation_games(infos + infos, replay_set_hash(infos + infos))
    assert (held[: len(infos)] == held[len(infos) :]).all()


def test_another_set_is_split_in_another_way() -> None:
    infos = make([(i, 2, True) for i in range(60)])
    assert (validation_games(infos, "0" * 64) != validation_games(infos, "1" * 64)).any()


def test_a_game_without_an_outcome_does_not_validate() -> None:
    infos = make([(i, 2, i < 30) for i in range(60)])
    assert not validation_games(infos, replay_set_hash(infos))[30:].any()
