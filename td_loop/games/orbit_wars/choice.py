"""Out of a policy's logits, launches; and out of launches, the options that come nearest to them.

Option 0 of a slot is to stay; option 1 + 4 * dst + size sends a fleet of that size (see `sizes`) to planet dst.
`S` slots: the seat's planets in their order. `O` options.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from td_loop.errors import OutputError
from td_loop.games.orbit_wars.aim import LAUNCH_GAP, aim, trace
from td_loop.games.orbit_wars.forecast import TICKS, Forecast, begin, send, spare
from td_loop.games.orbit_wars.paths import PathTable, path_table
from td_loop.games.orbit_wars.propose import glance
from td_loop.games.orbit_wars.sizes import NEED, SIZES, need_at, ships_of, size_of
from td_loop.games.orbit_wars.state import F64, I64, N_PLANETS, Action, Board, Position, State
from td_loop.games.orbit_wars.tokens import desk_for, policy_inputs, slots_of
from td_loop.games.served import STAY, Inputs, Tensor
from td_loop.kernels import inlined, kernel

_TRIES = 4
"""Options of a slot that are tried, most likely first, until one can be carried out."""
_ROUNDS = 4
"""Sizes tried until a fleet that is just enough is so at its own speed, too."""

Options = npt.NDArray[np.int64]
"""[S] option of each slot."""


def open_options(inputs: Inputs, n_slots: int, n_options: int) -> npt.NDArray[np.bool_]:
    """bool[S, O]: what each slot may choose."""
    shown = inputs["open"][0]
    out = np.zeros((n_slots, n_options), np.bool_)
    out[:, STAY] = True
    s, n, _ = shown.shape
    if n_slots < s or n_options < 1 + n * len(SIZES):
        raise OutputError(
            f"{n_slots} slots of {n_options} options are too few for {s} slots and {n} planets: "
            f"the policy must answer [{s}, {1 + n * len(SIZES)}] or more"
        )
    out[:s, 1 : 1 + n * len(SIZES)] = shown.reshape(s, -1) > 0
    return out


def choose(position: Position, seat: int, inputs: Inputs, logits: Tensor) -> Action:
    """The launches that `logits` f32[S, O] ask for: of every slot the most likely option that can be carried out.

    The surest slot comes first, and each in view of what those before it sent. An option cannot be carried out
    when no way to its target is clear, or when its target needs no ships any more. `inputs` are the position's.

    Raises:
        OutputError: the shape is wrong, or a logit of an open option is not finite.
    """
    if logits.ndim != 2:
        raise OutputError(f"logits of shape {logits.shape}, not [slots, options]")
    is_open = open_options(inputs, *logits.shape)
    if (broken := is_open & ~np.isfinite(logits)).any():
        slot, option = np.argwhere(broken)[0]
        raise OutputError(f"the logit of slot {slot}, option {option} is {logits[slot, option]}")
    masked = np.where(is_open, logits, -np.inf).astype(np.float64)
    own = slots_of(position, seat)
    out = np.zeros((len(own), 3))
    board, state = position
    order = _surest_first(masked[: len(own)])
    desk = desk_for(position)
    if desk.shown is not inputs:
        begin(desk.forecast, board, path_table(board), state)
    desk.shown = None  # launches are sent in the forecast
    n = _carry_out(out, masked, order, desk.forecast, board, path_table(board), state, seat, own)
    return out[:n].copy()


def _surest_first(logits: F64) -> I64:
    """Slots by the probability of their most likely option; equals in their order."""
    top = logits.max(axis=1)
    surprise = np.log(np.exp(logits - top[:, None]).sum(axis=1))
    order: I64 = np.argsort(surprise, kind="stable")
    return order


@kernel
def _carry_out(
    out: F64, logits: F64, order: I64, fc: Forecast, board: Board, paths: PathTable, state: State, seat: int,
    own: I64,
) -> int:  # fmt: skip
    """Write launches to `out`; returns how many. `fc` is the position's; tried options are crossed out."""
    n = 0
    for slot in order:
        row = logits[slot]
        for _ in range(_TRIES):
            option = 0
            for o in range(1, len(row)):
                if row[o] > row[option]:
                    option = o
            if option == STAY:
                break
            row[option] = -np.inf
            dst, size = (option - 1) // len(SIZES), (option - 1) % len(SIZES)
            ships, angle, eta = _launch_of(fc, board, paths, state, seat, own[slot], dst, size)
            if ships > 0:
                out[n, 0], out[n, 1], out[n, 2] = own[slot], angle, ships
                n += 1
                send(fc, seat, own[slot], dst, ships, eta)
                break
    return n


@inlined
def _launch_of(
    fc: Forecast, board: Board, paths: PathTable, state: State, seat: int, src: int, dst: int, size: int
) -> tuple[int, float, int]:
    """(ships, angle, ticks of flight) of an option as things stand in `fc`; 0 ships when it cannot be done."""
    free = spare(fc, src)
    eta, _ = glance(board, paths, state, src, dst, max(1, fc.ships[src]))
    ships = size_of(fc, src, free, need_at(fc, dst, seat, eta), size)
    for _ in range(_ROUNDS):
        if ships < 1:
            break
        ok, angle, eta = aim(board, paths, state, src, dst, ships)
        if not ok or eta > fc.span[TICKS]:
            break
        if size != NEED:
            return ships, angle, eta
        need = need_at(fc, dst, seat, eta)
        if need <= ships:
            return ships if need > 0 else 0, angle, eta
        ships = need if need <= fc.ships[src] else 0
    return 0, 0.0, 0


def options_of(position: Position, seat: int, action: Action) -> Options:
    """The options that come nearest to an action: of several launches of one planet the largest alone.

    -1 for a slot whose launch no open option resembles: it lands nowhere, or on a way that looks blocked.
    """
    board, state = position
    desk = desk_for(position)
    own = slots_of(position, seat)
    out = np.zeros(max(1, len(own)), np.int64)
    if len(own) and len(action):
        inputs = policy_inputs(position, seat)  # and the forecast on the desk
        _nearest(out, action, inputs["open"][0], desk.forecast, board, path_table(board), state, seat, own)
    return out


@kernel
def _nearest(
    out: Options, action: F64, shown: Tensor, fc: Forecast, board: Board, paths: PathTable, state: State,
    seat: int, own: I64,
) -> None:  # fmt: skip
    for i in range(len(own)):
        src = own[i]
        best = -1
        for j in range(len(action)):
            if action[j, 0] == src and (best < 0 or action[j, 2] > action[best, 2]):
                best = j
        if best < 0:
            continue
        out[i] = -1
        ships = int(action[best, 2])
        angle = action[best, 1]
        gap = state.p_radius[src] + LAUNCH_GAP
        x = state.p_x[src] + math.cos(angle) * gap
        y = state.p_y[src] + math.sin(angle) * gap
        _, dst = trace(board, paths, state, x, y, angle, ships)
        if dst < 0:
            continue
        eta, _ = glance(board, paths, state, src, dst, max(1, fc.ships[src]))
        least = math.inf
        for size in range(len(SIZES)):
            if shown[i, dst, size] > 0:
                apart = abs(math.log(ships_of(fc, src, dst, seat, eta, size) / ships))
                if apart < least:
                    least = apart
                    out[i] = 1 + dst * len(SIZES) + size


def is_legal(position: Position, seat: int, action: Action) -> bool:
    """Whether the engine takes every launch of `action` as it stands."""
    s = position.state
    if action.ndim != 2 or action.shape[1] != 3 or not np.isfinite(action).all():
        return False
    left = np.where(s.p_owner == seat, s.p_ships, 0)[: s.head[N_PLANETS]]
    for planet, _, ships in action.tolist():
        if planet != int(planet) or not 0 <= planet < len(left) or ships != int(ships) or ships < 1:
            return False
        left[int(planet)] -= int(ships)
    return bool((left >= 0).all())
