"""The judge itself: each invariant, broken in a run that ended well, is found."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.crash.invariants import differences, ending, temporary_files, violations
from tests.crash.sweep import Sweep

Break = Callable[[Path], Any]


@pytest.fixture(scope="module")
def ended(sweep: Sweep, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run that ended undisturbed, and its bootstrap."""
    folder = tmp_path_factory.mktemp("ended")
    with sweep.lend("whole") as bench:
        bench.count()
        shutil.copytree(bench.run_dir, folder / "run", symlinks=True)
        shutil.copy(bench.work / "bootstrap.npz", folder)
    return folder


@pytest.fixture
def run(ended: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(ended / "run", tmp_path / "run", symlinks=True))


def manifest(change: Callable[[dict[str, Any]], Any]) -> Break:
    def apply(run: Path) -> None:
        content = json.loads((run / "manifest.json").read_bytes())
        change(content)
        (run / "manifest.json").write_text(json.dumps(content))

    return apply


def cache(**changes: Callable[[Any], Any]) -> Break:
    """Change arrays of iteration 2's cache, in place or by what is returned."""

    def apply(run: Path) -> None:
        path = run / "iter2" / "branch_data.npz"
        with np.load(path) as z:
            arrays = {name: z[name] for name in z.files}
        for name, change in changes.items():
            changed = change(arrays[name])
            arrays[name] = arrays[name] if changed is None else changed
        np.savez(path, **arrays)

    return apply


def put(at: Any, value: Any) -> Callable[[Any], Any]:
    def change(array: Any) -> None:
        array[at] = value

    return change


def dead_focal(run: Path) -> None:
    cache(alive_at_s_for_rows_r=put((slice(None), slice(None)), False))(run)


def validation_game(run: Path) -> None:
    with np.load(run / "mc_rows.npz") as z:
        frame_id = z["frame_id"][z["is_validation"]][0]
    cache(branch_r_frame_id=put(0, frame_id))(run)


def mass_on_the_dead(run: Path) -> None:
    with np.load(run / "iter2" / "branch_data.npz") as z:
        row, seat = np.argwhere(~z["alive_at_s_for_rows_r"])[0]
    cache(branch_r_target=put((row, seat), 0.5))(run)


def relink(target: str) -> Break:
    def apply(run: Path) -> None:
        (run / "latest_good.npz").unlink()
        (run / "latest_good.npz").symlink_to(target)

    return apply


def edit(name: str) -> Break:
    return lambda run: (run / name).write_bytes((run / name).read_bytes() + b"x")


@pytest.mark.parametrize(
    ("spoil", "found"),
    [
        (cache(branch_r_target=lambda a: a[1:]), "I1: "),
        (cache(branch_r_target=put((0, 0), np.nan)), "I2: "),
        (cache(branch_a_target=lambda a: a * 0.9), "I2: "),
        (cache(branch_a_n_players=put(slice(None), 2)), "I3: "),
        (dead_focal, "I4: "),
        (mass_on_the_dead, "I5: "),
        (cache(branch_a_features=put((0, 0, 0), np.inf)), "I6: "),
        (validation_game, "I7: "),
        (edit("iter2/weights.npz"), "I8: .*sha256"),
        (relink("iter1/weights.npz"), "I8: .*not promoted"),
        (relink("iter9/weights.npz"), "I8: .*not promoted"),
        (lambda run: (run / "latest_good.npz").unlink(), "I8: .*no link"),
        (manifest(lambda m: m.update(latest_good="iter0/weights.npz")), "I8: latest_good"),
        (edit("manifest.json"), "I9: .*parse"),
        (lambda run: (run / "iter0" / "weights.npz").unlink(), "I9: .*not there"),
        (edit("iter2/validation.json"), "validation.json does not parse"),
        (edit("iter0/V_snap.npz"), "I11: "),
        (lambda run: (run / "manifest.json").unlink(), "no manifest"),
        (manifest(lambda m: m["iters"].append(m["iters"][-1])), "promoted twice"),
        (manifest(lambda m: m["iters"].pop(0)), "iterations"),
        (manifest(lambda m: m["iters"][0].update(status="reverted")), "not promoted"),
        (manifest(lambda m: m["best_val"].update(val_mc_nll=0.0)), "best_val"),
    ],
)
def test_what_is_broken_is_found(ended: Path, run: Path, spoil: Break, found: str) -> None:
    assert violations(run, ended / "bootstrap.npz") == []
    spoil(run)
    wrong = violations(run, ended / "bootstrap.npz")
    assert any(re.search(found, line) for line in wrong), wrong


@pytest.mark.parametrize(
    ("spoil", "found"),
    [
        (edit("iter2/weights.npz"), "other weights .*/iter2"),
        (cache(branch_r_has_mc=put(0, True), branch_r_mc_target=put(0, 0.25)), "other targets .*/iter2"),
        (manifest(lambda m: m["iters"][1]["fit"].update(final_val_mc_nll=0.5)), "other manifest .*/iters/1/fit"),
        (relink("iter1/weights.npz"), "other links .*/latest_good"),
        (lambda run: (run / "iter0" / "notes").touch(), "other files .*iter0/notes"),
    ],
)
def test_an_ending_that_differs_is_found(ended: Path, run: Path, spoil: Break, found: str) -> None:
    wanted = ending(ended / "run")
    assert differences(run, wanted) == []
    spoil(run)
    assert any(re.search(found, line) for line in differences(run, wanted))


def test_wall_times_are_no_difference_and_temporary_files_are_found(ended: Path, run: Path) -> None:
    manifest(lambda m: m["iters"][0]["fit"].update(wall_s=99.0))(run)
    assert differences(run, ending(ended / "run")) == temporary_files(run) == []
    (run / "iter1" / ".weights.npz.abc.tmp").touch()
    assert temporary_files(run) == ["left behind: iter1/.weights.npz.abc.tmp"]
