from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from td_loop.errors import UsageError
from td_loop.fit.schedule import WARMUP_START, Schedule


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    warmup = draw(st.floats(0, 1))
    return Schedule(
        total_steps=draw(st.integers(1, 300)),
        warmup_frac=warmup,
        hold_frac=draw(st.floats(0, 1 - warmup)),
        floor_frac=draw(st.floats(0, 1)),
        flat_steps=draw(st.integers(0, 20)),
    )


def test_the_defaults_over_640_steps() -> None:
    s = Schedule(640)
    assert s.lr(0, 0.03) == pytest.approx(0.003)
    assert s.lr(32, 0.03) == pytest.approx(0.0165)  # halfway up
    assert s.lr(63, 0.03) < 0.03
    assert [s.lr(step, 0.03) for step in (64, 200, 319)] == [0.03, 0.03, 0.03]
    assert s.lr(320, 0.03) < 0.03
    assert s.lr(479, 0.03) == pytest.approx(0.0165)  # halfway down
    assert s.lr(639, 0.03) == pytest.approx(0.003)


def test_the_knot_requantize_warmup_comes_first_and_shifts_the_rest() -> None:
    plain, shifted = Schedule(100), Schedule(100, flat_steps=7)
    assert [shifted.multiplier(i) for i in range(7)] == [WARMUP_START] * 7
    assert [shifted.multiplier(i + 7) for i in range(100)] == [plain.multiplier(i) for i in range(100)]


@given(schedules())
def test_every_rate_lies_between_the_lowest_and_the_peak(s: Schedule) -> None:
    lowest = min(WARMUP_START, s.floor_frac)
    assert all(lowest - 1e-12 <= s.multiplier(i) <= 1 for i in range(s.n_steps))


@given(schedules())
def test_it_rises_then_holds_then_falls(s: Schedule) -> None:
    rates = [s.multiplier(i) for i in range(s.n_steps)]
    top, end = s.flat_steps + s.warmup_steps, s.flat_steps + s.hold_end
    assert rates[:top] == sorted(rates[:top])
    assert all(rate == 1 for rate in rates[top:end])
    assert rates[end:] == sorted(rates[end:], reverse=True)


@given(schedules())
def test_it_makes_no_jump(s: Schedule) -> None:
    up = 0.9 / max(1, s.warmup_steps)
    decay = s.total_steps - s.hold_end
    down = (1 - s.floor_frac) * 3.15 / 2 / max(1, decay)
    for i in range(1, s.n_steps):
        if i == s.flat_steps and s.warmup_steps == 0:
            continue  # without a warmup the flat phase ends in the only step there is
        change = s.multiplier(i) - s.multiplier(i - 1)
        assert -down - 1e-9 <= change <= up + 1e-9


@given(schedules())
def test_a_decay_ends_at_the_floor(s: Schedule) -> None:
    if s.hold_end < s.total_steps:
        assert s.multiplier(s.n_steps - 1) == pytest.approx(s.floor_frac, abs=1e-12)


@given(schedules(), st.floats(1e-6, 10), st.floats(1e-6, 10))
def test_groups_keep_the_ratio_of_their_base_rates(s: Schedule, a: float, b: float) -> None:
    for i in (0, s.n_steps // 2, s.n_steps - 1):
        assert s.lr(i, a) * b == pytest.approx(s.lr(i, b) * a)


@pytest.mark.parametrize("step", [-1, 10])
def test_a_step_outside_the_schedule_is_an_error(step: int) -> None:
    with pytest.raises(ValueError, match="schedule of 10 steps"):
        Schedule(10).multiplier(step)


@pytest.mark.parametrize(
    "bad",
    [
        {"warmup_frac": 0.7, "hold_frac": 0.4},
        {"warmup_frac": -0.1},
        {"hold_frac": 1.1},
        {"floor_frac": 2.0},
        {"floor_frac": float("nan")},
        {"total_steps": 0},
        {"flat_steps": -1},
    ],
)
def test_what_makes_no_schedule_is_a_usage_error(bad: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        Schedule(**{"total_steps": 10, **bad})  # type: ignore[arg-type]
