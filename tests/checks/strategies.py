"""Hypothesis strategies for valid branch_data arrays."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.checks.caches import make_cache

seeds = st.integers(0, 2**32 - 1)
counts = st.integers(0, 40)


@st.composite
def caches(draw: st.DrawFn) -> dict[str, Any]:
    """Valid caches with at least one row; either branch may be empty."""
    n_r, n_a = draw(st.tuples(counts, counts).filter(lambda pair: sum(pair) > 0))
    return make_cache(draw(seeds), n_r, n_a)


@st.composite
def caches_and_row(draw: st.DrawFn) -> tuple[dict[str, Any], str, int]:
    """A valid cache, one of its branches, and a row of it."""
    cache = draw(caches())
    b = draw(st.sampled_from([b for b in "ra" if len(cache[f"branch_{b}_target"])]))
    return cache, b, draw(st.integers(0, len(cache[f"branch_{b}_target"]) - 1))
