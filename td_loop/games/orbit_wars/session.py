"""A game being played, as agents of other programs see it: official observations in, raw answers out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from td_loop.games.orbit_wars import engine, observe
from td_loop.games.orbit_wars.launches import Launch, accepted, legal_launches, to_action
from td_loop.games.orbit_wars.state import N_FLEETS, NEXT_FLEET_ID, Action, Position


class OrbitSession:
    """The session protocol of `games/base.py`."""

    def __init__(self, position: Position) -> None:
        self.state = position
        self._labels: observe.Labels = {}
        self._read: dict[int, list[Launch]] = {}  # this turn's, of the seats that gave raw answers

    def observation(self, seat: int, overage_s: float) -> dict[str, Any]:
        """The official observation."""
        return observe.observation(self.state, seat, labels=self._labels, overage=overage_s)

    def read(self, seat: int, raw: Any) -> Action:
        """The launches that the official engine would take; see `launches`."""
        self._read[seat] = legal_launches(self.state, seat, accepted(raw))
        return to_action(self._read[seat])

    def step(self, actions: Sequence[Action | None]) -> None:
        """One tick of the engine."""
        before = self.state
        self.state = engine.step(before, actions)
        if self._read:
            made = [
                self._read[seat] if seat in self._read else _launches(before, seat, action)
                for seat, action in enumerate(actions)
            ]
            self._labels = relabelled(self._labels, before, made, self.state)
            self._read = {}


def _launches(position: Position, seat: int, action: Action | None) -> list[Launch]:
    """Those launches of `action` that take effect."""
    rows = [] if action is None else action.tolist()
    return legal_launches(position, seat, [[int(planet), angle, ships] for planet, angle, ships in rows])


def relabelled(
    labels: observe.Labels, before: Position, made: Sequence[Sequence[Launch]], after: Position
) -> dict[int, tuple[Any, Any]]:
    """`labels` after a turn: with the fleets that were launched, without those that are gone.

    Args:
        labels: of the fleets in `before`.
        before: the position in which `made` was chosen.
        made: the launches that took effect, one list a seat, in seat order.
        after: the position that they led to.
    """
    first = int(before.state.head[NEXT_FLEET_ID])
    launched = {first + k: (x.angle, x.from_id) for k, x in enumerate(x for one in made for x in one)}
    flying = set(after.state.f_id[: after.state.head[N_FLEETS]].tolist())
    return {k: v for k, v in {**labels, **launched}.items() if k in flying}
