from __future__ import annotations

import math

import pytest

from td_loop.errors import UsageError
from td_loop.fit.config import FitConfig


def test_the_defaults_are_those_of_the_seed_document() -> None:
    c = FitConfig()
    assert (c.lr, c.lr_warmup_frac, c.lr_hold_frac, c.lr_floor_frac) == (0.03, 0.10, 0.40, 0.10)
    assert (c.epochs, c.batches_per_epoch, c.batch_size, c.total_steps) == (10, 64, 128, 640)
    assert (c.lambda_mc, c.lambda_td, c.val_blowup_tau) == (0.3, 0.7, 0.25)


@pytest.mark.parametrize(
    ("field", "value", "flag"),
    [
        ("lr", 0.0, "--lr"),
        ("lr", math.nan, "--lr"),
        ("lr", math.inf, "--lr"),
        ("lr_warmup_frac", 1.5, "--lr-warmup-frac"),
        ("lr_hold_frac", -0.1, "--lr-hold-frac"),
        ("lr_hold_frac", 0.95, "--lr-warmup-frac + --lr-hold-frac"),
        ("lr_floor_frac", 2.0, "--lr-floor-frac"),
        ("epochs", 0, "--epochs"),
        ("batches_per_epoch", 0, "--batches-per-epoch"),
        ("batch_size", -3, "--batch-size"),
        ("lambda_mc", -1.0, "--lambda-mc"),
        ("lambda_td", math.nan, "--lambda-td"),
        ("val_blowup_tau", -0.1, "--val-blowup-tau"),
        ("warmup_steps", -1, "--warmup-steps"),
        ("seed", -1, "--seed"),
        ("n_knots", 2, "--n-knots"),
        ("n_knots", 33, "--n-knots"),
        ("smoothness", -1.0, "--smoothness"),
        ("l2", math.inf, "--l2"),
    ],
)
def test_a_value_out_of_range_names_its_flag(field: str, value: float, flag: str) -> None:
    with pytest.raises(UsageError) as e:
        FitConfig(**{field: value})  # type: ignore[arg-type]
    assert str(e.value).startswith(flag)


def test_no_loss_at_all_is_refused() -> None:
    with pytest.raises(UsageError, match="no loss"):
        FitConfig(lambda_mc=0, lambda_td=0)
