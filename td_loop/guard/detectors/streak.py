"""How many consecutive steps were bad.

A step is bad if any of its records is: several writers (one a machine) may report the same step, and three lines
of one step are no three steps. A step without the metric is not passed to `advance`: it neither counts nor resets.
"""

from __future__ import annotations

Streak = list[int]
"""[step of the last record, bad steps in a row before that step, bad steps in a row with it]."""


def start() -> Streak:
    """Before the first record."""
    return [-1, 0, 0]


def advance(streak: Streak, step: int, bad: bool) -> Streak:
    """The streak after one more record; its last number is the count."""
    last, before, count = streak
    if step == last:
        return [last, before, before + 1 if bad or count > before else 0]
    return [step, count, count + 1 if bad else 0]
