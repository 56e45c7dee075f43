"""The checks of the outer loop: pure functions from arrays and histories to verdicts. They read no files.

`stage3` judges what prepare made, `stage4` what fit reports, `knot_coverage` whether the frozen knots still fit.
"""

from td_loop.checks.knots import KnotCoverage, knot_coverage
from td_loop.checks.stage3 import stage3
from td_loop.checks.stage4 import stage4
from td_loop.checks.verdict import Severity, Verdict, failed

__all__ = ["KnotCoverage", "Severity", "Verdict", "failed", "knot_coverage", "stage3", "stage4"]
