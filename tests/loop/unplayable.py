"""A game that the loop can learn and the arena cannot play."""

from __future__ import annotations


class Unplayable:
    name = "unplayable"


GAME = Unplayable()
