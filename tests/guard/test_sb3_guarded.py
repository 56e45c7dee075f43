"""A real PPO under the real guard: one that cannot learn at its rate, and one that can.

The rate of the first is so far too high that the policy is deterministic, and wrong, within a few rounds. When the
guard notices depends on the machine, and so does where each attempt ends; what must come of it does not.
"""

from __future__ import annotations

import json
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from td_loop.cli import main
from td_loop.guard.breaker import Event, Transition
from td_loop.guard.breaker_log import NAME, read_log

if find_spec("stable_baselines3") is None:  # only the programs under guard import it
    pytest.skip("the extra guard-sb3 is not installed", allow_module_level=True)

ROOT = Path(__file__).parents[2]
TOO_HIGH, SUITS = 6e-2, 2e-3
LEARNED = 100.0
"""A return that PPO without a guard comes to at SUITS, and at TOO_HIGH not: there it ends with 9 to 50."""


@pytest.fixture(autouse=True)
def unguarded(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("TD_GUARD_", "LEARNING_RATE_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def guarded(folder: Path, lr: float, steps: int) -> tuple[int, dict[str, Any], list[Transition]]:
    """Exit code, what the program came to, and the breaker's transitions."""
    out = folder / "result.json"
    script = str(ROOT / "benchmarks" / "guard_train_sb3.py")
    program = [script, "PPO", "--steps", str(steps), "--lr", str(lr), "--episodes", "5", "--out", str(out)]
    flags = ["--dir", str(folder / "guard"), "--max-retries", "5"]
    code = main(["guard", "run", *flags, "--", sys.executable, *program])
    return code, json.loads(out.read_text()), read_log(folder / "guard" / NAME)


def test_ppo_with_a_rate_far_too_high_is_rolled_back_until_it_learns(tmp_path: Path) -> None:
    code, result, transitions = guarded(tmp_path, TOO_HIGH, 6144)
    trips = [t for t in transitions if t.event is Event.TRIP]
    restarts = [t for t in transitions if t.event is Event.RESTART]
    assert code == 0
    assert 1 <= len(trips) == len(restarts) <= 5
    assert [t.attempt for t in restarts] == list(range(1, len(restarts) + 1))
    assert all(t.reason.startswith(("kl: ", "entropy: ")) for t in trips)
    assert result["rate"] == pytest.approx(TOO_HIGH / 2 ** len(restarts))
    assert result["return"] > LEARNED


def test_ppo_at_a_rate_that_suits_it_is_left_alone(tmp_path: Path) -> None:
    code, result, transitions = guarded(tmp_path, SUITS, 4096)
    assert code == 0
    assert transitions == []
    assert result["rate"] == SUITS
    assert result["return"] > LEARNED
