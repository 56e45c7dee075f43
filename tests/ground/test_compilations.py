"""kernels.compilations: who compiles, and who only loads."""

from __future__ import annotations

import numba

from td_loop.kernels import compilations


def test_a_first_call_is_a_compilation_and_a_second_is_not() -> None:
    @numba.njit  # without the cache on disk: compiled afresh in every run
    def twice(x: float) -> float:
        return x * 2.0

    with compilations() as first:
        assert twice(2.0) == 4.0
    with compilations() as second:
        twice(3.0)
    assert any("twice" in name for name in first)
    assert second == []
