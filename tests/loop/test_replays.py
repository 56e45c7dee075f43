"""A run learns from one replay set: its validation rows are those of its first iteration."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from td_loop.errors import HardAbort
from td_loop.loop.config import RunConfig
from td_loop.loop.driver import drive
from tests.loop.fakes import Behaviour, Stages, prepare_with

Config = Callable[..., RunConfig]


def of_set(name: str) -> Behaviour:
    return prepare_with(replay_set_hash=name)


def records(run: Path) -> Any:
    return orjson.loads((run / "manifest.json").read_bytes())["iters"]


def test_rows_of_other_replays_are_refused_and_the_old_ones_go_on(config: Config, run: Path) -> None:
    drive(config(iters=1), runner=Stages({("prepare", 0): of_set("one")}))
    with pytest.raises(HardAbort, match=r"other replays than iteration 0.*another --tag"):
        drive(config(), runner=Stages({("prepare", 0): of_set("other")}))
    assert [r["status"] for r in records(run)] == ["promoted", "hard_aborted"]
    assert records(run)[1]["fit"] is None
    drive(config(), runner=Stages({("prepare", 0): of_set("one")}))
    assert [r["status"] for r in records(run)] == ["promoted", "promoted"]


@pytest.mark.parametrize(("promoted", "kept"), [(0, False), (1, True)])
def test_outcome_rows_make_way_for_other_replays_only_while_nothing_was_judged_by_them(
    config: Config, run: Path, tmp_path: Path, promoted: int, kept: bool
) -> None:
    with pytest.raises(HardAbort):
        drive(config(), runner=Stages({("prepare", promoted): lambda _: 1}))
    (run / "mc_rows.npz").write_bytes(b"rows")
    with pytest.raises(HardAbort):
        drive(config(), runner=Stages({("prepare", 0): lambda _: 1}))
    assert (run / "mc_rows.npz").exists()  # the same command keeps them
    drive(config(replays=tmp_path), runner=Stages())
    assert (run / "mc_rows.npz").exists() is kept
