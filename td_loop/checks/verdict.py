"""What a check says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Severity(StrEnum):
    """What a failed check costs."""

    HARD = "hard"
    """The loop halts."""
    SOFT = "soft"
    """It is logged; S4.3 alone also reverts the iteration."""
    LOG = "log"
    """Information only."""


@dataclass(frozen=True)
class Verdict:
    """Answer of one check.

    Attributes:
        id: its number in docs/td_outer_loop.md: "S3.1".
        severity: what a failure costs.
        passed: True, False, or None where there was nothing to judge: no data is neither good nor bad.
        message: one sentence with the numbers that decided.
        numbers: the same numbers, for programs. Non-finite ones are kept.
    """

    id: str
    severity: Severity
    passed: bool | None
    message: str
    numbers: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """What `validation.json` and the manifest keep (without the id, which is the key there)."""
        return {
            "severity": str(self.severity),
            "passed": self.passed,
            "message": self.message,
            "numbers": dict(self.numbers),
        }


def failed(verdicts: Iterable[Verdict], severity: Severity) -> tuple[Verdict, ...]:
    """The verdicts of this severity that failed; "no data" did not fail."""
    return tuple(v for v in verdicts if v.severity is severity and v.passed is False)
