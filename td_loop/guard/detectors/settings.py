"""Settings that check themselves: what a detector's fields may be, and how a table of guard.toml becomes one."""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from td_loop.errors import UsageError


@dataclass(frozen=True, slots=True)
class Range:
    """Numbers that a setting may be.

    Attributes:
        low, high: the smallest and the largest.
        open_low: whether `low` itself is too small.
        whole: whether it must be a whole number.
    """

    low: float = -math.inf
    high: float = math.inf
    open_low: bool = False
    whole: bool = False

    def __contains__(self, value: object) -> bool:
        if isinstance(value, bool) or not isinstance(value, int if self.whole else int | float):
            return False
        return (
            math.isfinite(value) and self.low <= value <= self.high and not (self.open_low and value == self.low)
        )

    def __str__(self) -> str:
        kind = "a whole number" if self.whole else "a finite number"
        limits = []
        if self.low > -math.inf:
            limits.append(f"{'above' if self.open_low else 'from'} {self.low:g}")
        if self.high < math.inf:
            limits.append(f"up to {self.high:g}")
        return " ".join([kind, *limits])


def number(default: float | None, low: float = -math.inf, high: float = math.inf, *, above: bool = False) -> Any:
    """A field for a finite number from `low` (or above it) to `high`."""
    return dataclasses.field(default=default, metadata={"range": Range(low, high, above)})


def whole(default: int | None, low: int, high: float = math.inf) -> Any:
    """A field for a whole number from `low` to `high`."""
    return dataclasses.field(default=default, metadata={"range": Range(low, high, whole=True)})


def choice(default: str, allowed: tuple[str, ...]) -> Any:
    """A field for one of several words."""
    return dataclasses.field(default=default, metadata={"allowed": allowed})


@dataclass(frozen=True)
class Settings:
    """Base of all settings.

    Raises:
        UsageError: a value is out of its range; the message names key, value, range and remedy.
    """

    TABLE: ClassVar[str]
    """Name of the table in guard.toml, for messages."""

    def __post_init__(self) -> None:
        for f in dataclasses.fields(self):
            value = getattr(self, f.name)
            allowed = f.metadata.get("range") or f.metadata.get("allowed")
            if allowed is None or value in allowed or (value is None and f.default is None):
                continue
            must = str(allowed) if isinstance(allowed, Range) else f"one of {', '.join(map(repr, allowed))}"
            self._refuse(f.name, f"must be {must}", f.default)

    @property
    def table(self) -> str:
        """Where in guard.toml these settings stand."""
        return self.TABLE

    def _refuse(self, key: str, must: str, default: object = dataclasses.MISSING) -> None:
        remedy = "" if default is dataclasses.MISSING else f"; leave it out for the default, {default!r}"
        raise UsageError(f"[{self.table}] {key} = {getattr(self, key)!r}: {must}{remedy}")

    @classmethod
    def from_mapping(cls, table: Mapping[str, Any]) -> Self:
        """Settings of a table of guard.toml; what it leaves out keeps its default.

        Raises:
            UsageError: a key that there is not, or a value out of its range.
        """
        refuse_unknown(table, (f.name for f in dataclasses.fields(cls)), cls.TABLE)
        return cls(**table)


def refuse_unknown(table: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    """Object to a key that nothing reads: a misspelt limit would leave the default in force in silence.

    Raises:
        UsageError: there is one; the message names the nearest key that exists.
    """
    known = sorted(known)
    for key in table:
        if key in known:
            continue
        near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
        meant = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(known)}"
        raise UsageError(f"[{where}] {key}: there is no such key; {meant}")


def table_of(value: object, where: str) -> Mapping[str, Any]:
    """`value`, if it is a table.

    Raises:
        UsageError: it is none.
    """
    if isinstance(value, Mapping):
        return value
    raise UsageError(f"[{where}] is {value!r}, must be a table: write [{where}] above its keys")
