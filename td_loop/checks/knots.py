"""The knot-drift monitor: do the frozen knots still cover the features? It warns, and never stops anything."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from td_loop.errors import DataError
from td_loop.files import as_float

ABOVE, BELOW = "frac_above_top_knot", "frac_below_first_interior_knot"


@dataclass(frozen=True)
class KnotCoverage:
    """Verdict on the knots.

    Attributes:
        available: fit reported coverage.
        drift_flag: a fraction lies above its limit.
        warnings: one sentence for each such fraction.
        coverage: what fit reported.
    """

    available: bool
    drift_flag: bool
    warnings: tuple[str, ...]
    coverage: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The record's `knot_coverage`."""
        return {
            "available": self.available,
            "drift_flag": self.drift_flag,
            "warnings": list(self.warnings),
            "coverage": dict(self.coverage),
        }


def knot_coverage(stats: Any, *, above_top_tau: float, below_first_tau: float) -> KnotCoverage:
    """Judge `knot_coverage_stats` of `weights.training.json`.

    Args:
        stats: nested objects; wherever one holds `frac_above_top_knot` or `frac_below_first_interior_knot`, these
            are judged under the keys that lead there. Anything else, None included: not available.
        above_top_tau: allowed fraction of values above the top knot.
        below_first_tau: allowed fraction of values below the first interior knot.
    """
    if not isinstance(stats, Mapping):
        return KnotCoverage(False, False, ())
    warnings = []
    available = False
    for path, key, value in _fractions(stats, ()):
        available = True
        limit, where = (
            (above_top_tau, "above the top knot")
            if key == ABOVE
            else (
                below_first_tau,
                "below the first interior knot",
            )
        )
        # A fraction that is no number is worth a look as well.
        if not value <= limit:
            warnings.append(
                f"{' '.join(path) or 'all'}: {value:.1%} of the values lie {where} (limit {limit:.0%})"
            )
    return KnotCoverage(available, bool(warnings), tuple(warnings), stats)


def _fractions(node: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str, float]]:
    for key, value in node.items():
        if isinstance(value, Mapping):
            yield from _fractions(value, (*path, key))
        elif key in (ABOVE, BELOW):
            try:
                yield path, key, as_float(value)
            except DataError:
                yield path, key, math.nan
