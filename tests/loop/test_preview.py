"""`--dry-run`: what a run would do, told without doing any of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from td_loop.errors import HardAbort, Interrupted, ManifestError, Reverted, UsageError, WeightsError
from td_loop.loop.config import RunConfig
from td_loop.loop.driver import drive
from td_loop.loop.lock import run_lock
from td_loop.loop.preview import preview
from tests.loop.fakes import Flags, Stages, prepare, reverts, stopped_after

Config = Callable[..., RunConfig]


def snapshot(folder: Path) -> dict[str, Any]:
    """Every name below `folder`, with its bytes or its target."""
    return {
        str(p.relative_to(folder)): p.readlink() if p.is_symlink() else p.read_bytes() if p.is_file() else None
        for p in folder.rglob("*")
    }


def told(config: RunConfig) -> list[str]:
    """The lines about stages; nothing on disk may change."""
    before = snapshot(config.bootstrap.parent)
    lines = preview(config)
    assert snapshot(config.bootstrap.parent) == before
    assert lines[0].startswith(f"run '{config.tag}' in ")
    return lines[1:]


def test_a_new_run_is_told_and_not_made(config: Config, run: Path) -> None:
    assert told(config()) == [
        "iter0: prepare runs: there is nothing to take up",
        "iter0: fit runs: its targets are new",
    ]
    assert not run.exists()


def test_a_finished_run_has_nothing_to_do(config: Config) -> None:
    drive(config(), runner=Stages())
    assert told(config()) == ["nothing to run: all iterations are done"]
    assert told(config(iters=3))[0] == "iter2: prepare runs: there is nothing to take up"


@pytest.mark.parametrize("i", [0, 1])
def test_what_a_resume_takes_back_is_told(config: Config, i: int) -> None:
    with pytest.raises(Reverted):
        drive(config(), runner=Stages({("fit", i): reverts}))
    aside = f"iter{i}: set aside, in trimmed/"
    taken = f"iter{i}: prepare is taken from iter{i}, made from the same"
    assert told(config()) == [aside, taken, f"iter{i}: fit is taken from iter{i}, made from the same"]
    assert told(config(lr_peak=0.01)) == [
        aside,
        taken,
        f"iter{i}: fit runs again: lr_peak was 0.03 and is 0.01 (iter{i})",
    ]
    assert told(config(k=0.5)) == [
        aside,
        f"iter{i}: prepare runs again: k was 0.3 and is 0.5 (iter{i})",
        f"iter{i}: fit runs: its targets are new",
    ]
    with pytest.raises(HardAbort):  # set aside by this, and found there
        drive(config(k=0.5), runner=Stages({("prepare", 0): lambda _: 1}))
    assert told(config())[1] == f"iter{i}: prepare is taken from trimmed/iter{i}, made from the same"


def test_what_is_told_is_what_is_run(config: Config) -> None:
    with pytest.raises(Interrupted):
        drive(config(), runner=Stages({("prepare", 1): stopped_after(prepare)}))
    assert told(config())[1:] == [
        "iter1: prepare is taken from iter1, made from the same",
        "iter1: fit runs: there is nothing to take up",
    ]
    stages = Stages()
    drive(config(), runner=stages)
    assert [stage for stage, _ in stages.calls] == ["fit"]


def test_a_run_that_is_in_use_is_told(config: Config, run: Path) -> None:
    drive(config(), runner=Stages())
    with run_lock(run / ".lock"):
        assert re.match(
            r"in use by process \d+ on .*: the run itself would be refused, exit code 5", told(config())[0]
        )


def test_chunks_of_a_stopped_prepare_are_told(config: Config) -> None:
    def half(flags: Flags) -> int:
        Path(flags["--out"]).with_suffix(".chunks").write_bytes(b"some")
        return 0

    with pytest.raises(Interrupted):
        drive(config(), runner=Stages({("prepare", 1): stopped_after(half)}))
    assert told(config())[1] == "iter1: prepare goes on from the chunks of iter1"
    assert told(config(k=0.5))[1] == "iter1: prepare runs again: k was 0.3 and is 0.5 (iter1)"


def test_what_would_stop_the_run_stops_the_preview(config: Config, run: Path, tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="no bootstrap weights"):
        preview(config(bootstrap=tmp_path / "none.npz"))
    with pytest.raises(UsageError, match="no program"):
        preview(config(fit_cmd="no-such-program"))
    drive(config(), runner=Stages())
    (run / "iter0" / "weights.npz").unlink()
    with pytest.raises(ManifestError, match=r"iter0/weights\.npz: promoted weights are missing"):
        preview(config())
