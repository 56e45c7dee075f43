"""Games on both engines, compared bit for bit: some of every kind; `benchmarks/parity.py` plays more."""

from __future__ import annotations

from types import ModuleType

import pytest

from benchmarks import parity

SHORT = {"launch-heavy v launch-heavy": 70, "4: launch-heavy": 90, "4: adversarial": 70, "4: hunters": 80}
FLEETS = {"4: launch-heavy": 200}  # so many must be in the air at once, or the sample is not what it says
SEEDS = {kind.name: 31 + i for i, kind in enumerate(parity.KINDS)}


@pytest.mark.parametrize("kind", parity.KINDS, ids=lambda k: k.name)
def test_no_bit_differs(official: ModuleType, kind: parity.Kind) -> None:
    outcome = parity.compare(kind, SEEDS[kind.name], episode_steps=SHORT.get(kind.name, 120))
    assert outcome.difference is None
    assert outcome.turns > 30
    assert outcome.fleets > FLEETS.get(kind.name, 0)


def test_a_difference_is_found_and_named(official: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    from td_loop.games.orbit_wars import engine, environment

    real = engine.step

    def off_by_one_bit(pos, actions):  # type: ignore[no-untyped-def]
        after = real(pos, actions)
        if after.state.head[0] == 3:
            after.state.p_x[0] += 1e-14
        return after

    monkeypatch.setattr(environment.engine, "step", off_by_one_bit)
    difference = parity.compare(parity.KINDS[0], 1, episode_steps=6).difference
    assert difference is not None
    assert difference.startswith("steps[3][0].observation.planets[0][2]: official")
