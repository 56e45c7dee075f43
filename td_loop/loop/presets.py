"""Named sets of defaults. A flag that the user gives wins over its preset."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

PRESETS: Mapping[str, Mapping[str, Any]] = {
    # Everything for real, but small: three iterations in at most 4 minutes on 2 cores, compilation included.
    "quick": {
        "tag": "quick",
        "iters": 3,
        "n": 3000,
        "budget_s": 0.02,
        "epochs": 4,
        "batches_per_epoch": 12,
        "batch_size": 64,
    },
}


def with_preset(flags: Mapping[str, Any], preset: str | None, explicit: Collection[str]) -> dict[str, Any]:
    """`flags` with the preset's values where the user gave none; `explicit` names those that the user gave."""
    chosen = {} if preset is None else PRESETS[preset]
    return {**flags, **{name: value for name, value in chosen.items() if name not in explicit}}
