"""What the property tests of the guard draw from."""

from __future__ import annotations

import math

from hypothesis import strategies as st

from td_loop.guard.record import Record

numbers = st.sampled_from([math.nan, math.inf, -math.inf]) | st.floats(-1e3, 1e3) | st.floats()
values = st.dictionaries(st.sampled_from(["kl", "entropy", "value_loss", "reward", "grad_norm", "lr"]), numbers)


@st.composite
def telemetry(draw: st.DrawFn, max_size: int = 60) -> list[Record]:
    """Records whose steps go on, repeat, or fall back now and then."""
    found = draw(st.lists(st.tuples(st.integers(-2, 2), values), max_size=max_size))
    step = 0
    records = []
    for by, metrics in found:
        step = max(0, step + by)
        records.append(Record(step, metrics))
    return records
