"""The driver with stages that do what they should, and fits that end worse than they began."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from td_loop.errors import Reverted, RunInUse, UsageError, WeightsError
from td_loop.files import sha256
from td_loop.loop.config import RunConfig
from td_loop.loop.driver import drive
from td_loop.loop.lock import run_lock
from td_loop.loop.manifest import Status, read_manifest
from td_loop.npz import load_npz
from tests.loop.fakes import Stages, fit_to, prepare, reverts
from tests.loop.test_manifest import KEYS, RECORD_KEYS

Config = Callable[..., RunConfig]


def content(run: Path) -> Any:
    return orjson.loads((run / "manifest.json").read_bytes())


def test_a_run_promotes_every_good_iteration(config: Config, run: Path, bootstrap: Path) -> None:
    drive(config(iters=3), runner=Stages())
    manifest = content(run)
    assert list(manifest) == KEYS
    assert manifest["bootstrap_sha256"] == sha256(bootstrap) == sha256(run / "iter0" / "V_snap.npz")
    assert manifest["hyperparams"] == manifest["hyperparams_current"] == config(iters=3).hyperparams()
    assert [r["status"] for r in manifest["iters"]] == ["promoted"] * 3
    for i, record in enumerate(manifest["iters"]):
        assert list(record) == RECORD_KEYS
        assert record["v_snap"] == ("iter0/V_snap.npz" if i == 0 else f"iter{i - 1}/weights.npz")
        assert record["v_snap_sha256"] == sha256(run / record["v_snap"])
        assert record["weights_sha256"] == sha256(run / record["weights"])
        assert record["prepare"] | {"wall_s": 0} == {
            "wall_s": 0,
            "exit_code": 0,
            "n_r": 14,
            "n_a": 6,
            "engine_fallback_rate": 0.0,
        }
        assert record["fit"] | {"wall_s": 0} == {"wall_s": 0, "exit_code": 0, "final_val_mc_nll": 0.6}
        assert record["promoted_to_latest_good"] is True
        assert record["knot_coverage"]["available"] is True
    assert (run / "latest_good.npz").readlink() == Path("iter2/weights.npz")
    assert manifest["best_val"] == {"iter": 0, "val_mc_nll": 0.6, "path": "iter0/weights.npz"}
    assert (run / "best_val.npz").readlink() == Path("iter0/weights.npz")
    assert not (run / "trimmed").exists()


def test_every_check_stands_in_validation_json(config: Config, run: Path) -> None:
    drive(config(), runner=Stages())
    validation = orjson.loads((run / "iter1" / "validation.json").read_bytes())
    assert validation["status"] == "promoted"
    assert set(validation["stage3"]) == {f"S3.{i}" for i in range(1, 8)} | {"config"}
    assert set(validation["stage4"]) == {f"S4.{i}" for i in range(1, 5)} | {"config"}
    record = content(run)["iters"][1]
    assert (record["stage3_validation"], record["stage4_validation"]) == (
        validation["stage3"],
        validation["stage4"],
    )
    assert record["knot_coverage"] == validation["knot_coverage"]
    drift = record["stage3_validation"]["S3.7"]
    assert drift["numbers"]["rows"] == 7  # half of the replay rows are common to all iterations
    assert drift["numbers"]["kl"] > 0


def test_stages_get_the_flags_of_the_seed_document(config: Config, run: Path) -> None:
    stages = Stages()
    drive(config(seed=5, budget_evals=9, lr_peak=0.02), runner=stages)
    assert stages.flags("prepare", 1) == {
        "--weights": str(run / "iter0/weights.npz"),
        "--out": str(run / "iter1/branch_data.npz"),
        "--mc-rows": str(run / "mc_rows.npz"),
        "--seed": "5",
        "--iter-index": "1",
        "--n": "20",
        "--k": "0.3",
        "--budget-s": "0.2",
        "--budget-evals": "9",
        "--workers": "2",
        "--partial-input-p": "0.5",
        "--mc-target-p": "0.5",
        "--game": "orbit_wars",
    }
    assert stages.flags("fit", 1) == {
        "--resume": str(run / "iter0/weights.npz"),
        "--td-cache": str(run / "iter1/branch_data.npz"),
        "--mc-rows": str(run / "mc_rows.npz"),
        "--output": str(run / "iter1/weights.npz"),
        "--lr": "0.02",
        "--lr-warmup-frac": "0.1",
        "--lr-hold-frac": "0.4",
        "--lr-floor-frac": "0.1",
        "--epochs": "10",
        "--batches-per-epoch": "64",
        "--batch-size": "128",
        "--lambda-mc": "0.3",
        "--lambda-td": "0.7",
        "--val-blowup-tau": "0.25",
        "--seed": "6",  # fit does not know the iteration
    }


def test_best_val_follows_the_lowest_loss_and_latest_good_the_last(config: Config, run: Path) -> None:
    stages = Stages({("fit", 0): fit_to(0.6, 0.50), ("fit", 1): fit_to(0.6, 0.40), ("fit", 2): fit_to(0.6, 0.41)})
    manifest = drive(config(iters=3), runner=stages)
    assert manifest.best_val is not None
    assert (manifest.best_val.iter, manifest.best_val.val_mc_nll) == (1, 0.40)
    assert (run / "best_val.npz").readlink() == Path("iter1/weights.npz")
    assert (run / "latest_good.npz").readlink() == Path("iter2/weights.npz")


def test_a_reverted_iteration_stops_the_loop_and_moves_nothing(config: Config, run: Path) -> None:
    with pytest.raises(Reverted, match=r"iteration 1 .*S4\.3.*latest_good is unchanged") as e:
        drive(config(iters=3), runner=Stages({("fit", 1): reverts}))
    assert e.value.exit_code == 3
    manifest = content(run)
    assert [r["status"] for r in manifest["iters"]] == ["promoted", "reverted"]
    record = manifest["iters"][1]
    assert record["promoted_to_latest_good"] is False
    assert record["weights_sha256"] == sha256(run / record["weights"])
    assert manifest["latest_good"] == "iter0/weights.npz"
    assert (run / "latest_good.npz").readlink() == Path("iter0/weights.npz")


def test_a_retry_runs_the_iteration_again_with_half_the_rate_and_another_seed(config: Config, run: Path) -> None:
    stages = Stages({("fit", 1): reverts})
    drive(config(iters=3, on_fail="retry-then-abort", seed=3, lr_peak=0.04), runner=stages)
    first, retry = stages.flags("prepare", 1), stages.flags("prepare", 2)
    assert (first["--seed"], retry["--seed"]) == ("3", "1003")
    assert first["--iter-index"] == retry["--iter-index"] == "1"
    assert first["--weights"] == retry["--weights"] == str(run / "iter0/weights.npz")
    assert retry["--out"] == str(run / "iter1_retry1/branch_data.npz")
    assert (stages.flags("fit", 2)["--lr"], stages.flags("fit", 2)["--seed"]) == ("0.02", "1004")
    assert (stages.flags("fit", 3)["--lr"], stages.flags("fit", 3)["--seed"]) == ("0.04", "5")
    record = content(run)["iters"][1]
    assert list(record) == [*RECORD_KEYS, "previous_attempt"]
    assert (record["i"], record["attempt"], record["iter_dir"], record["status"]) == (
        1,
        1,
        "iter1_retry1",
        "promoted",
    )
    assert list(record["previous_attempt"]) == RECORD_KEYS
    assert (record["previous_attempt"]["attempt"], record["previous_attempt"]["status"]) == (0, "reverted")
    assert record["previous_attempt"]["weights_sha256"] == sha256(run / "iter1" / "weights.npz")
    assert content(run)["iters"][2]["v_snap"] == "iter1_retry1/weights.npz"


def test_a_retry_that_reverts_too_stops_the_loop(config: Config, run: Path) -> None:
    stages = Stages({("fit", 0): reverts, ("fit", 1): reverts})
    with pytest.raises(Reverted, match="iteration 0"):
        drive(config(on_fail="retry-then-abort"), runner=stages)
    assert len(stages.calls) == 4
    (record,) = content(run)["iters"]
    assert (record["attempt"], record["status"]) == (1, "reverted")
    assert record["previous_attempt"]["status"] == "reverted"
    assert (run / "latest_good.npz").readlink() == Path("iter0/V_snap.npz")


def test_retention_prunes_the_cache_of_the_iteration_before_last_and_nothing_else(
    config: Config, run: Path
) -> None:
    script = {("fit", 1): reverts}
    drive(config(iters=4, on_fail="retry-then-abort"), runner=Stages(script))
    caches = sorted(str(p.parent.relative_to(run)) for p in run.glob("*/branch_data.npz"))
    assert caches == ["iter2", "iter3"]
    for name in ("iter0", "iter1", "iter1_retry1", "iter2", "iter3"):
        kept = {p.name for p in (run / name).iterdir()} - {"branch_data.npz", "V_snap.npz"}
        assert kept == {"weights.npz", "weights.training.json", "validation.json", "provenance.json"}
    assert (run / "iter0" / "V_snap.npz").exists()


@pytest.mark.parametrize(("k", "n_r", "n_a"), [(0.0, 20, 0), (1.0, 0, 20)])
def test_a_run_of_one_branch_alone_is_promoted(config: Config, run: Path, k: float, n_r: int, n_a: int) -> None:
    manifest = drive(config(k=k), runner=Stages())
    for record in manifest.iters:
        assert record.status is Status.PROMOTED
        assert record.prepare is not None
        assert (record.prepare["n_r"], record.prepare["n_a"]) == (n_r, n_a)
        assert (record.prepare["engine_fallback_rate"] is None) is (n_a == 0)


@pytest.mark.parametrize(("limit", "passed"), [(None, False), (0.4, False), (0.5, True)])
def test_too_many_fallbacks_are_a_warning_on_the_record_and_the_loop_goes_on(
    config: Config, run: Path, limit: float | None, passed: bool
) -> None:
    def half_undecided(flags: dict[str, str]) -> int:
        return prepare(flags, branch_a_engine_fallback=np.arange(6) % 2 == 0)

    (record,) = drive(
        config(iters=1, max_fallback_rate=limit), runner=Stages({("prepare", 0): half_undecided})
    ).iters
    assert record.status is Status.PROMOTED
    assert record.stage3_validation is not None
    verdict = record.stage3_validation["S3.5"]
    assert (verdict["severity"], verdict["passed"]) == ("soft", passed)
    assert verdict["numbers"] == {"rate": 0.5, "limit": 0.2 if limit is None else limit}
    assert record.stage3_validation["config"]["max_fallback_rate"] == verdict["numbers"]["limit"]


def test_three_iterations_without_change_are_called_a_plateau(
    config: Config, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def unmoved(flags: dict[str, str]) -> int:
        from tests.loop.fakes import fit

        return fit(flags, coef=load_npz(Path(flags["--resume"]))[0]["coef"])

    # Weights that never change make the same targets for the common rows.
    drive(config(iters=5), runner=Stages({("fit", i): unmoved for i in range(5)}))
    checks = [r["stage3_validation"]["S3.7"] for r in content(run)["iters"]]
    assert [c["passed"] for c in checks] == [None, True, True, False, False]
    assert "[S3.7] iteration 3: " in capsys.readouterr().err


def test_knot_drift_is_reported_and_stops_nothing(
    config: Config, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stats = {"c_prod": {"frac_above_top_knot": 0.4, "frac_below_first_interior_knot": 0.0}}
    stages = Stages({("fit", 0): fit_to(0.6, training={"knot_coverage_stats": stats})})
    drive(config(iters=1), runner=stages)
    assert "[knot-drift] iteration 0: c_prod: 40.0%" in capsys.readouterr().err
    record = content(run)["iters"][0]
    assert record["status"] == "promoted"
    assert record["knot_coverage"]["drift_flag"] is True
    assert record["knot_coverage"]["coverage"] == stats


def test_a_second_driver_is_refused_and_changes_nothing(config: Config, run: Path) -> None:
    drive(config(), runner=Stages())
    before = {p: p.read_bytes() for p in run.rglob("*") if p.is_file() and p.name != ".lock"}
    with run_lock(run / ".lock"), pytest.raises(RunInUse, match=str(run)):
        drive(config(iters=5), runner=Stages())
    assert {p: p.read_bytes() for p in run.rglob("*") if p.is_file() and p.name != ".lock"} == before


def test_a_missing_or_damaged_bootstrap_leaves_no_run_behind(config: Config, run: Path, bootstrap: Path) -> None:
    with pytest.raises(WeightsError, match=r"no bootstrap weights at .*nothing\.npz"):
        drive(config(bootstrap=bootstrap.with_name("nothing.npz")), runner=Stages())
    data = bytearray(bootstrap.read_bytes())
    at = data.find(np.arange(5.0).tobytes())
    data[at] ^= 1
    bootstrap.write_bytes(data)
    with pytest.raises(WeightsError, match=f"{bootstrap.name}: damaged"):
        drive(config(), runner=Stages())
    assert not run.exists()


def test_a_stage_program_that_does_not_exist_is_a_usage_error(config: Config, run: Path) -> None:
    with pytest.raises(UsageError, match="--fit-cmd: there is no program 'no-such-program'"):
        drive(config(fit_cmd="no-such-program --fast"))
    assert not run.exists()


def test_the_manifest_and_the_links_can_be_read_at_any_time(config: Config, run: Path) -> None:
    """At every stage of every iteration, the links resolve to what the manifest names (I8, I9)."""
    seen = []

    class Watching(Stages):
        def __call__(self, argv: Any, log: Path, signals: Any) -> int:
            manifest = read_manifest(run)
            assert manifest is not None
            assert (run / "latest_good.npz").readlink() == Path(manifest.latest_good)
            seen.append(sha256(run / "latest_good.npz"))
            return super().__call__(argv, log, signals)

    drive(config(iters=3), runner=Watching())
    assert len(set(seen)) == 3
