from __future__ import annotations

import pytest

from td_loop.text import duration, size


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0, "0s"), (59.4, "59s"), (59.6, "1m00s"), (725, "12m05s"), (11220, "3h07m"), (187200, "2d04h")],
)
def test_durations_are_readable(seconds: float, expected: str) -> None:
    assert duration(seconds) == expected


@pytest.mark.parametrize(("n", "expected"), [(0, "0 B"), (1500, "2 kB"), (95e6, "95 MB"), (3.2e12, "3.2 TB")])
def test_sizes_are_readable(n: float, expected: str) -> None:
    assert size(n) == expected
