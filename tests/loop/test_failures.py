"""Stages that fail, lie or break what they should not: each stops the loop and leaves `latest_good` alone."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from td_loop.errors import HardAbort, ManifestError, TdLoopError
from td_loop.files import read_json, write_json
from td_loop.loop.config import RunConfig
from td_loop.loop.driver import drive
from td_loop.npz import load_npz, save_npz
from tests.loop.fakes import VAL, Flags, Stages, fit, fit_to, prepare, prepare_with, write_bootstrap, write_report

Config = Callable[..., RunConfig]
BLOWUP = {"reason": "val_mc_nll above its limit", "epoch": 1, "step": 9, "val_mc_nll": 2.0, "threshold": 0.9}


def abort(
    config: RunConfig, run: Path, script: dict[tuple[str, int], Any], match: str, *, code: int = 4
) -> dict[str, Any]:
    """Run; the second iteration must be aborted, the run end with exit code `code`. Returns its record."""
    with pytest.raises(TdLoopError, match=match) as e:
        drive(config, runner=Stages(script))
    assert e.value.exit_code == code
    manifest = orjson.loads((run / "manifest.json").read_bytes())
    assert [r["status"] for r in manifest["iters"]] == ["promoted", "hard_aborted"]
    assert manifest["latest_good"] == "iter0/weights.npz"
    assert (run / "latest_good.npz").readlink() == Path("iter0/weights.npz")
    assert manifest["best_val"]["iter"] == 0
    record: dict[str, Any] = manifest["iters"][1]
    validation = orjson.loads((run / "iter1" / "validation.json").read_bytes())
    assert validation["status"] == "hard_aborted"
    assert (validation["stage3"], validation["stage4"]) == (
        record["stage3_validation"],
        record["stage4_validation"],
    )
    return record


# --- hard checks -------------------------------------------------------------------------------------------


def _mass_on_a_dead_seat(cache: dict[str, Any]) -> None:
    row, seat = np.argwhere(~cache["alive_at_s_for_rows_a"])[0]
    cache["branch_a_target"][row, seat] = 0.5


def _one_row_less(cache: dict[str, Any]) -> None:
    for name in cache:
        if name.startswith("branch_r_") or name.endswith("rows_r"):
            cache[name] = cache[name][1:]


def _nan_target(cache: dict[str, Any]) -> None:
    cache["branch_r_target"][3, 0] = math.nan


@pytest.mark.parametrize(
    ("check", "change"), [("S3.1", _mass_on_a_dead_seat), ("S3.2", _one_row_less), ("S3.3", _nan_target)]
)
def test_a_hard_check_of_stage_3_stops_the_loop_before_fit(
    config: Config, run: Path, check: str, change: Callable[[dict[str, Any]], None]
) -> None:
    record = abort(config(), run, {("prepare", 1): prepare_with(change)}, f"{check} failed")
    assert record["stage3_validation"][check]["passed"] is False
    assert record["prepare"]["exit_code"] == 0
    assert record["fit"] is record["stage4_validation"] is record["weights"] is None


@pytest.mark.parametrize(
    "val", [(0.6, math.nan), (math.inf, 0.6), (0.6, 1e9), ()], ids=["nan", "infinity", "huge", "no history"]
)
def test_losses_that_are_not_finite_stop_the_loop(config: Config, run: Path, val: tuple[float, ...]) -> None:
    record = abort(config(), run, {("fit", 1): fit_to(*val)}, r"S4\.1 failed")
    assert record["fit"]["exit_code"] == 0


def test_a_blowup_stops_the_loop(config: Config, run: Path) -> None:
    def blow_up(flags: Flags) -> int:
        write_report(flags, val=(0.7, 2.0), aborted=BLOWUP)
        return 2

    record = abort(config(), run, {("fit", 1): blow_up}, r"S4\.2 failed.*val_mc_nll 2.0, threshold 0.9")
    assert record["fit"] == {"wall_s": record["fit"]["wall_s"], "exit_code": 2, "final_val_mc_nll": 2.0}
    assert record["weights"] is None
    assert record["stage4_validation"]["S4.2"]["numbers"]["aborted"] == BLOWUP


def test_a_retry_is_only_for_reverted_iterations(config: Config, run: Path) -> None:
    abort(config(on_fail="retry-then-abort"), run, {("prepare", 1): prepare_with(_nan_target)}, "S3.3")
    assert not (run / "iter1_retry1").exists()


# --- stages that fail --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stage", "code", "ours"),
    [
        *(("prepare", 1, 4), ("prepare", 2, 4), ("prepare", 65, 65), ("prepare", 74, 74), ("prepare", 130, 4)),
        *(("fit", 1, 4), ("fit", 3, 4), ("fit", 64, 64)),
    ],
)
def test_a_stage_that_fails_is_recorded_with_its_exit_code(
    config: Config, run: Path, stage: str, code: int, ours: int
) -> None:
    record = abort(config(), run, {(stage, 1): lambda _: code}, f"{stage} exited with code {code}", code=ours)
    assert record[stage]["exit_code"] == code
    validation = record["stage3_validation" if stage == "prepare" else "stage4_validation"]
    assert f"exited with code {code}" in validation["failure"]


def test_a_stage_that_was_killed_is_recorded_with_its_signal(config: Config, run: Path) -> None:
    record = abort(config(), run, {("prepare", 1): lambda _: -9}, r"killed by signal 9 \(out of memory\?\)")
    assert record["prepare"]["exit_code"] == -9


def test_exit_code_2_without_the_marker_is_a_failed_fit(config: Config, run: Path) -> None:
    match = "fit exited with 2 without an 'aborted' marker"
    abort(config(), run, {("fit", 1): lambda flags: fit(flags, exit_code=2)}, match)


# --- stages that exit 0 without a valid output -------------------------------------------------------------


def _flip(path: str) -> Callable[[Flags], None]:
    def flip(flags: Flags) -> None:
        file = Path(flags[path])
        data = bytearray(file.read_bytes())
        data[len(data) // 3] ^= 1
        file.write_bytes(data)

    return flip


def _truncate(path: str) -> Callable[[Flags], None]:
    def truncate(flags: Flags) -> None:
        file = Path(flags[path])
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])

    return truncate


def _link(path: str) -> Callable[[Flags], None]:
    def link(flags: Flags) -> None:
        file = Path(flags[path])
        file.symlink_to(file.rename(file.with_name("elsewhere.npz")))

    return link


def _rewrite(path: str, **changes: Any) -> Callable[[Flags], None]:
    def rewrite(flags: Flags) -> None:
        arrays, meta = load_npz(Path(flags[path]))
        for name, change in changes.items():
            arrays[name] = change(arrays[name])
        save_npz(Path(flags[path]), arrays, meta)

    return rewrite


def _drop(path: str, name: str) -> Callable[[Flags], None]:
    def drop(flags: Flags) -> None:
        arrays, meta = load_npz(Path(flags[path]))
        del arrays[name]
        save_npz(Path(flags[path]), arrays, meta)

    return drop


def _remeta(**meta: Any) -> Callable[[Flags], None]:
    def remeta(flags: Flags) -> None:
        arrays, old = load_npz(Path(flags["--out"]))
        save_npz(Path(flags["--out"]), arrays, old | meta)

    return remeta


def _set(at: tuple[int, ...], value: Any) -> Callable[[Any], Any]:
    def change(array: Any) -> Any:
        array[at] = value
        return array

    return change


OUT = "--out"


@pytest.mark.parametrize(
    ("spoil", "match"),
    [
        (lambda flags: Path(flags[OUT]).unlink(), "no such file"),
        (lambda flags: Path(flags[OUT]).write_bytes(b""), "not an npz"),
        (_truncate(OUT), "damaged"),
        (_link(OUT), "is a link to"),
        (_flip(OUT), "damaged"),
        (_drop(OUT, "branch_a_engine_fallback"), "has no 'branch_a_engine_fallback'"),
        (_rewrite(OUT, branch_r_target=lambda a: a[:, :3]), r"'branch_r_target' is float32\[14, 3\]"),
        (_rewrite(OUT, branch_r_is_partial=lambda a: a[1:]), "'branch_r_is_partial' has 13 rows"),
        (_rewrite(OUT, alive_at_s_for_rows_a=lambda a: a.astype(np.int64)), "'alive_at_s_for_rows_a' is int64"),
        (_rewrite(OUT, branch_a_features=lambda a: a[:, :, :2]), "differ in the number of features"),
        (_rewrite(OUT, branch_a_n_players=_set((2,), 5)), "Branch A row 2: n_players must be 2..4"),
        (_rewrite(OUT, branch_r_focal_seat=_set((1,), -1)), "Branch R row 1: .*focal_seat"),
        (_rewrite(OUT, alive_at_s_for_rows_r=_set((4,), False)), r"row 4: the focal seat must be alive \(I4\)"),
        (_rewrite(OUT, branch_r_features=_set((5, 1, 0), np.nan)), r"row 5: a feature is not finite \(I6\)"),
        (_remeta(kind="mc_rows"), "kind 'mc_rows'"),
        (_remeta(format_version=2), "format_version 2"),
        (_remeta(v_snap_sha256="0" * 64), "made from other weights"),
        (_remeta(seed=1), "its meta says seed 1, this attempt asked for 0"),
        (_remeta(iter_index=0), "its meta says iter_index 0, this attempt asked for 1"),
    ],
)
def test_a_prepare_that_exits_0_without_a_valid_cache_has_failed(
    config: Config, run: Path, spoil: Callable[[Flags], Any], match: str
) -> None:
    def lie(flags: Flags) -> int:
        prepare(flags)
        spoil(flags)
        return 0

    record = abort(
        config(), run, {("prepare", 1): lie}, f"prepare exited with 0 but left no valid output: .*{match}"
    )
    assert record["prepare"]["n_r"] is None
    assert record["fit"] is None


WEIGHTS = "--output"


def _report(flags: Flags) -> Path:
    return Path(flags[WEIGHTS]).with_suffix(".training.json")


def _rereport(**more: Any) -> Callable[[Flags], None]:
    return lambda flags: write_json(_report(flags), read_json(_report(flags)) | more)


@pytest.mark.parametrize(
    ("spoil", "match"),
    [
        (lambda flags: Path(flags[WEIGHTS]).unlink(), "no such file"),
        (_truncate(WEIGHTS), "damaged"),
        (_flip(WEIGHTS), "damaged"),
        (_rewrite(WEIGHTS, coef=_set((0, 0, 0), np.nan)), "'coef' holds values that are not finite"),
        (_rewrite(WEIGHTS, coef=lambda a: a[:, :, :4]), "its arrays are"),
        (_drop(WEIGHTS, "knots"), "its arrays are"),
        (_rereport(output={"sha256": "0" * 64}), "it is the report of another fit"),
        (_rereport(inputs={"td_cache": {"sha256": "0" * 64}}), "it is the report of another fit"),
        (_rereport(output="x"), "it is the report of another fit"),
        (_rereport(inputs=[1]), "it is the report of another fit"),
        (_link(WEIGHTS), "is a link to"),
        (lambda f: shutil.copy(f["--resume"], f[WEIGHTS]), "report of another fit|is V_snap itself"),
        (lambda flags: _report(flags).unlink(), "no such file"),
        (lambda flags: _report(flags).write_bytes(b'{"history": '), "not valid JSON"),
        (lambda flags: _report(flags).write_bytes(b"[]"), "is not a JSON object"),
    ],
)
def test_a_fit_that_exits_0_without_valid_weights_and_report_has_failed(
    config: Config, run: Path, spoil: Callable[[Flags], Any], match: str
) -> None:
    def lie(flags: Flags) -> int:
        fit(flags)
        spoil(flags)
        return 0

    record = abort(config(), run, {("fit", 1): lie}, f"fit exited with 0 but left no valid .*{match}")
    assert record["weights"] is record["weights_sha256"] is None
    assert record["promoted_to_latest_good"] is False


def test_what_an_earlier_attempt_left_is_never_taken_for_new(config: Config, run: Path) -> None:
    """A resumed iteration whose stages do nothing must not find the output of the attempt before."""
    script: dict[tuple[str, int], Any] = {("fit", 1): lambda flags: fit(flags, val=(*VAL, math.nan))}
    abort(config(), run, script, r"S4\.1")
    for seed, stage in enumerate(("prepare", "fit"), 1):
        with pytest.raises(HardAbort, match=f"{stage} exited with 0 but left no valid .*no such file"):
            drive(config(seed=seed), runner=Stages({(stage, 0): lambda _: 0}))


def test_weights_that_change_under_a_running_loop_are_noticed(config: Config, run: Path) -> None:
    def tamper(flags: Flags) -> int:
        write_bootstrap(run / "iter0" / "weights.npz")
        return fit(flags, val=(0.6, 0.9))

    # The second iteration is reverted; its retry would start from the same weights.
    stages = Stages({("fit", 1): tamper})
    with pytest.raises(ManifestError, match=r"iter0/weights\.npz: promoted weights were changed"):
        drive(config(iters=3, on_fail="retry-then-abort"), runner=stages)
    assert len(stages.calls) == 4
