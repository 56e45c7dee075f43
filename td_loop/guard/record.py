"""One line of telemetry: what a training process says of one batch.

    {"step": 1200, "kl": 0.011, "entropy": 1.32, "value_loss": 0.48, "grad_norm": "NaN", "attempt": 1}

A line is one JSON object and ends with a newline. `step` is a whole number from 0. Every other key with a number
is a metric; those of METRICS have a meaning to the detectors, any other is kept for the postmortem. A value that
is not finite is one of the strings "NaN", "Infinity", "-Infinity". A metric that was not measured is left out:
absent is absent, and never healthy or sick. null means the same as leaving it out.

Many writers put such a value without quotes, which is no JSON: NaN (Python's json), nan, inf (printf). It is read
all the same: else a run would go unseen from the moment at which it diverges.

`attempt` (whole number) is TD_GUARD_ATTEMPT of the process that wrote the line: lines of a process that was
stopped and writes late are told by it. `time` is the writer's clock (Unix seconds), for people alone: nothing is
decided by it. `checkpoint` announces, beside or without metrics, a file or folder that has been saved completely
at `step`; with `"initial": true` it is what training starts from, which no batch has touched yet.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

METRICS: Mapping[str, str] = {
    "kl": "KL divergence between the policy before and after the batch, nats",
    "entropy": "entropy of the policy, nats",
    "value_loss": "loss of the value function or critic",
    "reward": "mean reward of the batch, or return of the episodes that ended in it",
    "grad_norm": "norm of the gradient before clipping",
    "lr": "learning rate",
}
"""Metrics that detectors or the postmortem know, and what they are."""

MAX_LINE = 1 << 16
"""Bytes that a line may have, newline included. A longer one is no telemetry."""

MAX_WHOLE = 2**63 - 1
"""The largest step and attempt. A larger one is a fault of the writer's, and fits neither JSON nor arrays."""

OWN_KEYS = frozenset({"step", "attempt", "time", "checkpoint", "initial"})
"""Keys of a line that are no metrics."""

_NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_BARE = re.compile(rb"(:\s*)(?:\+|(-))?(?:(nan)|inf(?:inity)?)(?=\s*[,}])", re.IGNORECASE)
"""A value that is not finite and stands without quotes."""


class BadLine(ValueError):
    """A line that is no record; the message says why."""


@dataclass(frozen=True, slots=True)
class Record:
    """What was said of one batch.

    Attributes:
        step: number of the batch, from 0, as the training process counts.
        values: metrics by name; they may be NaN or infinite.
        attempt: of the process that wrote it; None where it does not say.
        time: by the writer's clock, Unix seconds; None where it does not say.
        checkpoint: path of a file or folder that has been saved completely; None for none.
        initial: whether the checkpoint is what training starts from.
    """

    step: int
    values: Mapping[str, float] = field(default_factory=dict)
    attempt: int | None = None
    time: float | None = None
    checkpoint: str | None = None
    initial: bool = False


def encode(record: Record) -> bytes:
    """The line of a record, newline included."""
    return encode_parts(
        record.step, record.values, record.attempt, record.time, record.checkpoint, initial=record.initial
    )


def encode_parts(
    step: int,
    values: Mapping[str, float],
    attempt: int | None = None,
    time: float | None = None,
    checkpoint: str | None = None,
    *,
    initial: bool = False,
) -> bytes:
    """The line of a record that nobody has made an object of: what a training process does in every batch.

    This module is imported by training processes, so it needs nothing but orjson, which is light; `td_loop.files`
    would bring numpy.
    """
    line: dict[str, Any] = {"step": step}
    for name, x in values.items():
        # orjson would write null, which says "not measured".
        line[name] = x if math.isfinite(x) else _spelled(x)
    if attempt is not None:
        line["attempt"] = attempt
    if time is not None:
        line["time"] = time
    if checkpoint is not None:
        line["checkpoint"] = checkpoint
    if initial:
        line["initial"] = True
    return orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)


def _spelled(x: float) -> str:
    return "NaN" if math.isnan(x) else "Infinity" if x > 0 else "-Infinity"


def parse(line: bytes) -> Record:
    """The record of a line, with or without its newline.

    Values that are neither numbers nor the three strings (texts, lists, null) are left out: loggers add such.

    Raises:
        BadLine: it is no JSON object, or has no valid `step`.
    """
    if len(line) > MAX_LINE:
        raise BadLine(f"has {len(line)} bytes, a line may have {MAX_LINE}")
    try:
        found = _loads(line)
    except orjson.JSONDecodeError as e:
        raise BadLine(f"is no JSON ({e})") from e
    if not isinstance(found, dict):
        raise BadLine("is no JSON object")
    step = _whole(found.get("step"))
    if step is None:
        raise BadLine(f"'step' is {found.get('step')!r}, must be a whole number from 0 and below 2^63")
    checkpoint = found.get("checkpoint")
    return Record(
        step=step,
        values={
            name: x for name, raw in found.items() if name not in OWN_KEYS and (x := _number(raw)) is not None
        },
        attempt=_whole(found.get("attempt")),
        time=time if (time := _number(found.get("time"))) is not None and math.isfinite(time) else None,
        checkpoint=checkpoint if isinstance(checkpoint, str) and checkpoint else None,
        initial=found.get("initial") is True,
    )


def _loads(line: bytes) -> Any:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        quoted = _BARE.sub(_quoted, line)
        if quoted == line:
            raise
        return orjson.loads(quoted)


def _quoted(found: re.Match[bytes]) -> bytes:
    colon, minus, nan = found.groups(default=b"")
    return colon + (b'"NaN"' if nan else b'"' + minus + b'Infinity"')


def _whole(x: object) -> int | None:
    """A whole number from 0 to MAX_WHOLE; None if it is none. 3.0 is one: some loggers write all as floats."""
    if isinstance(x, bool) or not isinstance(x, int | float) or not math.isfinite(x) or x < 0 or x != int(x):
        return None
    return n if (n := int(x)) <= MAX_WHOLE else None


def _number(x: object) -> float | None:
    if isinstance(x, str):
        return _NON_FINITE.get(x)
    return float(x) if isinstance(x, int | float) and not isinstance(x, bool) else None
