from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from td_loop.errors import UsageError
from td_loop.loop.config import RunConfig

# The command line of docs/td_outer_loop.md, to the letter; the last rows are flags that its text names.
DOCUMENTED = {
    "tag": "default",
    "iters": 20,
    "n": 80000,
    "k": 0.3,
    "budget_s": 0.2,
    "partial_input_p": 0.5,
    "mc_target_p": 0.5,
    "epochs": 10,
    "batches_per_epoch": 64,
    "batch_size": 128,
    "lambda_mc": 0.3,
    "lambda_td": 0.7,
    "lr_peak": 0.03,
    "lr_warmup_frac": 0.10,
    "lr_hold_frac": 0.40,
    "lr_floor_frac": 0.10,
    "on_fail": "abort",
    "val_blowup_tau": 0.25,
    "val_regression_tau": 0.05,
    "seg_uniform_tau": 0.05,
    "knot_above_top_tau": 0.30,
    "knot_below_first_tau": 0.70,
    "bootstrap": "models/value_spline_v2.npz",
    "seed": 0,
}


def test_defaults_are_those_of_the_seed_document() -> None:
    hyperparams = RunConfig().hyperparams()
    assert {name: hyperparams[name] for name in DOCUMENTED} == DOCUMENTED
    assert hyperparams["workers"] >= 1


def test_flags_come_back_from_hyperparams() -> None:
    config = RunConfig.from_flags({"k": 0.5, "epochs": 3, "seg_uniform_tau": 0.1, "on_fail": "retry-then-abort"})
    assert config.prepare.k == 0.5
    assert RunConfig.from_flags(config.hyperparams()).hyperparams() == config.hyperparams()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("iters", 0),
        ("seed", -1),
        ("n", 0),
        ("workers", 0),
        ("k", 1.5),
        ("k", -0.1),
        ("k", math.nan),
        ("budget_s", 0.0),
        ("budget_s", math.inf),
        ("budget_evals", 0),
        ("partial_input_p", 1.1),
        ("mc_target_p", -0.1),
        ("epochs", 0),
        ("batches_per_epoch", 0),
        ("batch_size", 0),
        ("lambda_mc", -1.0),
        ("lr_peak", 0.0),
        ("lr_floor_frac", 1.1),
        ("val_blowup_tau", -0.1),
        ("val_regression_tau", -0.1),
        ("seg_uniform_tau", math.nan),
        ("max_fallback_rate", 1.5),
        ("knot_above_top_tau", -0.1),
        ("knot_below_first_tau", -0.1),
        ("tag", "../other"),
        ("tag", ""),
        ("prepare_cmd", " "),
        ("fit_cmd", 'unclosed "quote'),
    ],
)
def test_a_value_out_of_range_is_refused_by_the_name_of_its_flag(name: str, value: Any) -> None:
    with pytest.raises(UsageError, match="--" + name.replace("_", "-")):
        RunConfig.from_flags({name: value})


@given(st.floats(0, 1), st.floats(0, 1))
def test_warmup_and_hold_share_the_steps(warmup: float, hold: float) -> None:
    def make() -> RunConfig:
        return RunConfig.from_flags({"lr_warmup_frac": warmup, "lr_hold_frac": hold})

    if warmup + hold > 1.0 + 1e-9:
        with pytest.raises(UsageError, match="--lr-warmup-frac"):
            make()
    else:
        make()


def test_two_loss_weights_of_zero_leave_nothing_to_learn() -> None:
    with pytest.raises(UsageError, match="--lambda-mc and --lambda-td"):
        RunConfig.from_flags({"lambda_mc": 0.0, "lambda_td": 0.0})


def test_stage_commands_are_our_own_or_the_users(config: Callable[..., RunConfig]) -> None:
    assert config().stage_command("prepare") == [sys.executable, "-m", "td_loop", "prepare"]
    assert config(fit_cmd="python 'my fit.py' --fast").stage_command("fit") == ["python", "my fit.py", "--fast"]
