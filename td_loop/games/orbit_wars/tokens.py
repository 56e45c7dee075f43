"""What a policy network sees of a position: planets, fleets that will land, pairs of an own planet and a target.

All is told relative to the seat: own, enemy, neutral, with how strong an owner is in place of its number. So the
numbers of seats and planets mean nothing, nor does where on the board north is: places enter as distances alone.
Most columns come from the forecast, as what a search thinks of does: what will stand on a planet counts.

`N` planets, `A` arrivals (fleets that land on one planet in one tick, merged by owner), `S` slots: planets of the
seat, each of which decides. `C` is the planet capacity. Counts of ships enter as log(1 + n) / 7.
"""

from __future__ import annotations

import threading

import numpy as np

from td_loop.games.orbit_wars.forecast import Forecast, forecast_for
from td_loop.games.orbit_wars.paths import path_table
from td_loop.games.orbit_wars.sizes import SIZES
from td_loop.games.orbit_wars.state import COMET_GROUP, EPISODE, I64, N_PLANETS, Position
from td_loop.games.orbit_wars.tokens_fill import ARRIVAL_LIMIT, LOG_TABLE, Tokens, fill
from td_loop.games.served import Inputs, PolicyContract, Tensor, TensorSpec

PLANET_LIMIT = 40 + COMET_GROUP

WORLD = (
    "turn", "left", "four_seats", "own_ships", "own_production", "own_planets", "top_enemy_ships",
    "top_enemy_production", "ships",
)  # fmt: skip
PLANET = (
    "own", "enemy", "neutral", "owner_ships", "owner_production", "ships", "production", "comet", "rotates",
    "from_centre", "lasts", "near_own", "near_enemy", "near_ships", "far_own", "far_enemy", "far_ships", "spare",
    "lacks", "falls_in", "own_reach", "enemy_reach", "own_landing", "enemy_landing",
)  # fmt: skip
ARRIVAL = (
    "own",
    "enemy",
    "owner_ships",
    "ships",
    "eta",
    "soon",
    "to_own",
    "to_enemy",
    "to_neutral",
    "to_production",
)
PAIR = (
    "itself", "eta", "soon", "sun", "own_then", "enemy_then", "ships_then", "need", "need_of_all", "all_suffice",
    "spare_suffices", "worth", "behind_first", "first", "others_spare", "others_suffice",
    "towards_enemy", "in_sight",
)  # fmt: skip

CONTRACT = PolicyContract(
    game="orbit_wars",
    version=1,
    inputs=(
        TensorSpec("world", ("B", len(WORLD)), WORLD),
        TensorSpec("nodes", ("B", "N", len(PLANET)), PLANET, mask="node_mask"),
        TensorSpec("node_mask", ("B", "N")),
        TensorSpec("events", ("B", "A", len(ARRIVAL)), ARRIVAL, mask="event_mask"),
        TensorSpec("event_mask", ("B", "A")),
        TensorSpec("near", ("B", "N", "N"), mask="node_mask"),
        TensorSpec("lands", ("B", "N", "A"), mask="event_mask"),
        TensorSpec("slots", ("B", "S", "N"), mask="slot_mask"),
        TensorSpec("slot_mask", ("B", "S")),
        TensorSpec("pairs", ("B", "S", "N", len(PAIR)), PAIR, mask="pair_mask"),
        TensorSpec("pair_mask", ("B", "S", "N")),
        TensorSpec("open", ("B", "S", "N", len(SIZES)), SIZES, mask="pair_mask"),
    ),
    slots="S",
    limits={"N": PLANET_LIMIT, "A": ARRIVAL_LIMIT, "S": PLANET_LIMIT},
)
"""Nodes are planets, events arrivals. `near`: exp(-distance / RANGE); `lands`: 1 where an event comes to a node;
`slots`: 1 at the node that a slot is; `open`: 1 where a slot may send a fleet of that size to that node."""


class Desk:
    """The buffers of one thread: a forecast, and more for positions of one capacity and length of game.

    Attributes:
        forecast, spares, eta: see `tokens_fill.fill`.
        shown: the inputs of whose position the forecast is, as long as nothing was sent in it.
    """

    def __init__(self, position: Position) -> None:
        capacity = position.state.p_x.shape[0]
        self.forecast: Forecast = forecast_for(position, 0.97)  # discounted production is not looked at
        self.spares: I64 = np.zeros(capacity, np.int64)
        self.eta: I64 = np.zeros((capacity, capacity), np.int64)
        self.shown: Inputs | None = None


_desks = threading.local()
_KEPT = 8


def desk_for(position: Position) -> Desk:
    """This thread's buffers for `position`."""
    key = position.state.p_x.shape[0], int(position.board.cfg[EPISODE])
    desks: dict[tuple[int, int], Desk] = _desks.__dict__.setdefault("by_size", {})
    if key not in desks:
        while len(desks) >= _KEPT:
            del desks[next(iter(desks))]
        desks[key] = Desk(position)
    return desks[key]


def slots_of(position: Position, seat: int) -> I64:
    """i64[S] planets of `seat`, in their order."""
    state = position.state
    found: I64 = np.flatnonzero(state.p_owner[: state.head[N_PLANETS]] == seat)
    return found


def policy_inputs(position: Position, seat: int) -> Inputs:
    """The tensors of `CONTRACT`, B = 1, unpadded. A seat without planets has one slot, masked."""
    board, state = position
    desk = desk_for(position)
    own = slots_of(position, seat)
    n, s = int(state.head[N_PLANETS]), max(1, len(own))

    def tensor(*shape: int) -> Tensor:
        return np.zeros(shape, np.float32)

    out = Tokens(
        tensor(len(WORLD)), tensor(n, len(PLANET)), tensor(ARRIVAL_LIMIT, len(ARRIVAL)), tensor(n, n),
        tensor(n, ARRIVAL_LIMIT), tensor(s, n), tensor(s, n, len(PAIR)), tensor(s, n, len(SIZES)),
    )  # fmt: skip
    desk.shown = None
    a = fill(out, desk.forecast, desk.spares, desk.eta, LOG_TABLE, board, path_table(board), state, seat, own)
    shown = max(1, a)
    desk.shown = {
        "world": out.world[None],
        "nodes": out.planets[None],
        "node_mask": np.ones((1, n), np.float32),
        "events": out.arrivals[None, :shown],
        "event_mask": np.full((1, shown), a > 0, np.float32),
        "near": out.near[None],
        "lands": np.ascontiguousarray(out.lands[None, :, :shown]),
        "slots": out.slots[None],
        "slot_mask": np.full((1, s), len(own) > 0, np.float32),
        "pairs": out.pairs[None],
        "pair_mask": np.full((1, s, n), len(own) > 0, np.float32),
        "open": out.open[None],
    }
    return desk.shown
