"""Games of our own agents through our own engine, and whole sets of them, repeatable from a seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from td_loop.errors import UsageError
from td_loop.games.base import Budget
from td_loop.games.orbit_wars.agents import STYLES, Agent, planned, weakened
from td_loop.games.orbit_wars.board import new_game
from td_loop.games.orbit_wars.engine import outcome, step, with_room
from td_loop.games.orbit_wars.replays.bundled import BundledGame
from td_loop.games.orbit_wars.state import EPISODE_STEPS, F64, Action, Position, copy_state
from td_loop.games.orbit_wars.turn import launch
from td_loop.rng import Stream, stream

if TYPE_CHECKING:
    from td_loop.games.orbit_wars.search import OrbitSearch

SEARCH = "search"
_LEAST_SKILL = 0.5  # below that a player mostly wastes ships, and who wins says little about positions
_LEAST_SEARCH = 1 / 8  # part of the budget that the weakest search has
_WEIGHTS = {"rusher": 0.2, "greedy": 0.25, "balanced": 0.4, "settler": 0.15}  # how often each style is drawn


class Played(NamedTuple):
    """A game that was played to its end, and its result f64[4]: winners share 1."""

    game: BundledGame
    result: F64


class Player(NamedTuple):
    """Who sits in a seat: a style of `agents.STYLES` at a skill of 0..1, or SEARCH with that part of a budget."""

    name: str
    skill: float

    def __str__(self) -> str:
        return f"{self.name} {self.skill:.2f}"


@dataclass(frozen=True)
class Recipe:
    """What a set of games is made from. Equal recipes make equal sets, unless a search is limited by seconds.

    Attributes:
        games_2p: number of games of 2 seats.
        games_4p: number of games of 4 seats.
        seed: what all maps, players and their luck are drawn from.
        weights: a value function; with it, some of the games are between searches under it, with unequal budgets.
        budget: the most that such a search may spend on a move.
        search_share: probability with which a game is one of searches, 0..1; the others are of rule-based agents.
        episode_steps: observations of a full game.
    """

    games_2p: int
    games_4p: int
    seed: int = 0
    weights: Path | None = None
    budget: Budget | None = None
    search_share: float = 0.5
    episode_steps: int = EPISODE_STEPS

    def __post_init__(self) -> None:
        if self.games_2p < 0 or self.games_4p < 0 or self.games_2p + self.games_4p == 0:
            raise UsageError("the numbers of games must be 0 or more, and not both 0")
        if self.seed < 0:
            raise UsageError(f"the seed must be 0 or more, not {self.seed}")
        if not 0.0 <= self.search_share <= 1.0:
            raise UsageError(f"the share of games of the search must be within 0..1, not {self.search_share}")
        if (self.weights is None) != (self.budget is None):
            raise UsageError("a search needs both: weights, and what it may spend on a move (seconds or evals)")

    @property
    def n_games(self) -> int:
        """Number of games."""
        return self.games_2p + self.games_4p


def line_up(recipe: Recipe, index: int) -> tuple[int, list[Player]]:
    """Episode seed and players of game `index` of a set; games of 2 seats come first."""
    rng = stream(recipe.seed, Stream.SELF_PLAY, index)
    seed = int(rng.integers(1, 2**31))
    seats = 2 if index < recipe.games_2p else 4
    if recipe.weights is not None and rng.random() < recipe.search_share:
        return seed, [Player(SEARCH, float(_LEAST_SEARCH ** rng.random())) for _ in range(seats)]
    names = rng.choice(list(_WEIGHTS), size=seats, p=list(_WEIGHTS.values()))
    return seed, [Player(str(name), float(rng.uniform(_LEAST_SKILL, 1.0))) for name in names]


def play(agents: Sequence[Agent], seed: int, *, episode_steps: int = EPISODE_STEPS) -> Played:
    """Play one game: seat i is `agents[i]`, with a random stream of its own that `seed` alone decides."""
    position = new_game(seed, len(agents), episode_steps=episode_steps)
    rngs = [stream(seed, Stream.SELF_PLAY, seat) for seat in range(len(agents))]
    actions: list[list[Action]] = []
    result = outcome(position)
    while result is None:
        turn = [
            legal(position, seat, agent(position, seat, rng))
            for seat, (agent, rng) in enumerate(zip(agents, rngs, strict=True))
        ]
        actions.append(turn)
        position = step(position, turn)
        result = outcome(position)
    return Played(BundledGame(seed, len(agents), actions), result)


def legal(position: Position, seat: int, action: Action) -> Action:
    """The launches of `action` that the engine takes, ships as whole numbers."""
    s = copy_state(with_room(position.state, len(action)))
    rows = np.column_stack([action[:, 0], action[:, 1], np.trunc(action[:, 2])])
    return rows[[launch(s, seat, *row) for row in rows]]


def play_set(recipe: Recipe, workers: int = 1) -> Iterator[tuple[list[Player], Played]]:
    """Play the games of a set, in order; more workers change the time only."""
    games = range(recipe.n_games)
    if workers <= 1:
        yield from (_play_one(recipe, i) for i in games)
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        yield from pool.map(_play_one, [recipe] * len(games), games)


def _play_one(recipe: Recipe, index: int) -> tuple[list[Player], Played]:
    seed, players = line_up(recipe, index)
    return players, play([_agent(recipe, p) for p in players], seed, episode_steps=recipe.episode_steps)


def _agent(recipe: Recipe, player: Player) -> Agent:
    name, skill = player
    if name != SEARCH:
        return planned(weakened(STYLES[name], skill))
    assert recipe.budget is not None
    seconds, evals = recipe.budget.seconds, recipe.budget.evals
    budget = Budget(seconds and seconds * skill, evals and max(1, round(evals * skill)))
    search = _search(recipe)
    return lambda position, seat, rng: search(position, seat, budget, rng).action


@lru_cache(maxsize=1)
def _search(recipe: Recipe) -> OrbitSearch:
    from td_loop.games.orbit_wars.game import GAME
    from td_loop.value.io import load_weights

    assert recipe.weights is not None
    return GAME.make_search(load_weights(recipe.weights, feature_names=GAME.feature_names))
