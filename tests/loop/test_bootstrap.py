"""The weights that a run starts from: checked first, exchanged while nothing depends on them, never silently."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from td_loop.errors import HardAbort, ManifestError, WeightsError
from td_loop.files import sha256
from td_loop.loop import outputs, rundir
from td_loop.loop.config import RunConfig
from td_loop.loop.driver import drive
from td_loop.npz import save_npz
from td_loop.value import model
from tests.loop.fakes import Stages, write_bootstrap
from tests.loop.trouble import killed_after

Config = Callable[..., RunConfig]


def content(run: Path) -> Any:
    return orjson.loads((run / "manifest.json").read_bytes())


def test_the_version_is_that_of_the_value_room() -> None:
    assert outputs.WEIGHTS_VERSION == model.FORMAT_VERSION


@pytest.mark.parametrize("version", [1, 3])
def test_an_unknown_version_is_refused_before_anything_is_made(
    config: Config, run: Path, tmp_path: Path, version: int
) -> None:
    old = write_bootstrap(tmp_path / "old.npz", version=version)
    with pytest.raises(WeightsError, match=rf"old\.npz: unknown format version {version}.*--bootstrap"):
        drive(config(bootstrap=old), runner=Stages())
    assert not run.exists()


def test_a_model_of_another_kind_is_not_asked_for_its_version(config: Config, tmp_path: Path) -> None:
    other = tmp_path / "other.npz"
    save_npz(other, {"layers": np.ones(3)}, {})
    rundir.find_bootstrap(other)


@pytest.fixture
def aborted(config: Config, run: Path) -> Path:
    """A run whose first iteration failed at once."""
    with pytest.raises(HardAbort):
        drive(config(), runner=Stages({("prepare", 0): lambda _: 1}))
    return run


def test_a_run_that_promoted_nothing_starts_from_the_bootstrap_given_now(
    config: Config, aborted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = write_bootstrap(tmp_path / "other.npz", coef=1.0)
    stages = Stages()
    drive(config(bootstrap=other), runner=stages)
    manifest = content(aborted)
    assert manifest["bootstrap_sha256"] == manifest["iters"][0]["v_snap_sha256"] == sha256(other)
    assert sha256(aborted / "iter0" / "V_snap.npz") == sha256(other)
    assert f"it now starts from {other}" in capsys.readouterr().err
    assert len(stages.calls) == 4


def test_an_unfit_bootstrap_changes_nothing_in_a_run_that_is_there(
    config: Config, aborted: Path, tmp_path: Path
) -> None:
    before = {p: p.read_bytes() for p in aborted.rglob("*.[jn]*") if p.is_file()}
    bad = write_bootstrap(tmp_path / "bad.npz", version=1)
    for path, match in ((bad, "unknown format version"), (tmp_path / "none.npz", "no bootstrap weights at")):
        with pytest.raises(WeightsError, match=match):
            drive(config(bootstrap=path), runner=Stages())
    assert {p: p.read_bytes() for p in before} == before


def test_without_a_default_the_copy_serves(
    config: Config, aborted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(rundir, "_REPOSITORY", tmp_path / "no clone")
    first = content(aborted)["bootstrap_sha256"]
    drive(config(bootstrap=RunConfig.bootstrap), runner=Stages())
    assert content(aborted)["bootstrap_sha256"] == first
    # ... if it is what it was.
    with pytest.raises(ManifestError, match="were changed"):
        write_bootstrap(aborted / "iter0" / "V_snap.npz", coef=3.0)
        drive(config(bootstrap=RunConfig.bootstrap), runner=Stages())


def test_a_kill_during_the_exchange_is_healed(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = write_bootstrap(tmp_path / "other.npz", coef=1.0)
    for moment in range(4):
        settings = {"runs_dir": tmp_path / str(moment)}
        with pytest.raises(HardAbort):
            drive(config(**settings), runner=Stages({("prepare", 0): lambda _: 1}))
        exchanged = config(**settings, bootstrap=other)
        assert killed_after(moment, lambda c=exchanged: drive(c, runner=Stages()))
        drive(exchanged, runner=Stages())
        manifest = content(tmp_path / str(moment) / "td_loop_t")
        assert manifest["bootstrap_sha256"] == manifest["iters"][0]["v_snap_sha256"] == sha256(other)


def test_a_bootstrap_that_comes_too_late_is_named_as_not_used(
    config: Config, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    drive(config(), runner=Stages())
    first = content(run)["bootstrap_sha256"]
    capsys.readouterr()
    drive(config(iters=3), runner=Stages())
    assert capsys.readouterr().err == ""
    late = write_bootstrap(tmp_path / "late.npz", coef=2.0)
    drive(config(iters=4, bootstrap=late), runner=Stages())
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert f"--bootstrap {late} is not used" in err
    assert content(run)["bootstrap_sha256"] == first
