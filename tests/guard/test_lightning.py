"""With the real library, on a model of three numbers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from td_loop.guard import Telemetry
from td_loop.guard.record import Record, parse
from td_loop.guard.staging import Staging

pytest.importorskip("lightning", reason="the extra guard-lightning is not installed")

import lightning

from td_loop.guard.adapters.lightning import GuardCallback, resume_path, scaled

pytestmark = [
    pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*You're resuming from a checkpoint that ended before the epoch ended"),
]


@pytest.fixture(autouse=True)
def guard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in list(os.environ):
        if name.startswith("TD_GUARD_") or name == "LEARNING_RATE_MULTIPLIER":
            monkeypatch.delenv(name)
    monkeypatch.setenv("TD_GUARD_TELEMETRY", str(tmp_path / "telemetry.jsonl"))
    return tmp_path


class Line(lightning.LightningModule):
    def __init__(self, lr: float = 0.1) -> None:
        super().__init__()
        self.lr = lr
        self.layer = torch.nn.Linear(2, 1)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = self.layer(batch).square().mean()
        self.log("train_loss", loss, on_step=True, on_epoch=True)
        if batch_idx % 2 == 0:
            self.log("approx_kl", 0.25)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.layer(batch).square().mean())

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=self.lr)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.9**step)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def fit(
    callback: GuardCallback, model: Line, max_epochs: int = 2, ckpt_path: Path | None = None, **more: Any
) -> None:
    torch.manual_seed(0)
    data = torch.utils.data.DataLoader(torch.randn(8, 2), batch_size=2)
    trainer = lightning.Trainer(
        max_epochs=max_epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[callback],
        **more,
    )
    trainer.fit(model, data, data, ckpt_path=ckpt_path)


def records(folder: Path) -> list[Record]:
    return [parse(line) for line in (folder / "telemetry.jsonl").read_bytes().splitlines()]


def test_every_step_is_reported_with_what_was_logged_in_it(guard: Path) -> None:
    fit(GuardCallback(names={"approx_kl": "kl"}), Line())
    found = records(guard)
    assert [r.step for r in found] == list(range(1, 9))
    assert [r.step for r in found if "kl" in r.values] == [1, 3, 5, 7]
    assert [r.step for r in found if "val_loss" in r.values] == [5]  # the first one after the validation
    for r in found:
        assert r.values["value_loss"] == r.values["train_loss"]
        assert "train_loss_step" not in r.values
        assert r.values["grad_norm"] > 0
    assert [r.values["lr"] for r in found] == pytest.approx([0.1 * 0.9 ** (i + 1) for i in range(8)])


def test_a_metric_that_is_named_value_loss_is_not_overwritten(guard: Path) -> None:
    fit(GuardCallback(names={"approx_kl": "value_loss"}), Line(), max_epochs=1)
    found = records(guard)
    assert found[0].values["value_loss"] == 0.25
    assert found[0].values["train_loss"] != 0.25


def test_batches_that_only_add_to_the_gradient_are_no_steps(guard: Path) -> None:
    fit(GuardCallback(), Line(), accumulate_grad_batches=2)
    assert [r.step for r in records(guard)] == [1, 2, 3, 4]


def test_the_gradient_norm_is_that_before_clipping(guard: Path) -> None:
    fit(GuardCallback(), Line(), gradient_clip_val=1e-9)
    assert records(guard)[0].values["grad_norm"] > 1e-3


def test_without_a_guard_it_does_nothing(guard: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TD_GUARD_TELEMETRY")
    fit(GuardCallback(), Line())
    assert list(guard.iterdir()) == []


def test_checkpoints_are_announced_and_gone_on_from_at_the_new_rate(
    guard: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TD_GUARD_STAGING", str(guard / "staging"))
    monkeypatch.setenv("TD_GUARD_ACTIVE", str(guard / "active"))
    monkeypatch.setenv("TD_GUARD_CHECKPOINT_EVERY", "3")
    monkeypatch.setenv("LEARNING_RATE_MULTIPLIER", "0.5")
    fit(GuardCallback(), Line(lr=scaled(0.1)))
    saved = [r for r in records(guard) if r.checkpoint]
    assert [(r.step, r.initial) for r in saved] == [(0, True), (3, False), (6, False)]
    assert len(list((guard / "staging").iterdir())) == 3

    (guard / "active").symlink_to(str(saved[1].checkpoint))
    (guard / "telemetry.jsonl").unlink()
    monkeypatch.setenv("TD_GUARD_ATTEMPT", "2")
    monkeypatch.setenv("LEARNING_RATE_MULTIPLIER", "0.125")
    fit(GuardCallback(), Line(lr=scaled(0.1)), ckpt_path=resume_path())
    found = [r for r in records(guard) if not r.checkpoint]
    assert found[0].step == 4
    assert [r.values["lr"] for r in found] == pytest.approx([0.0125 * 0.9**r.step for r in found])
    assert {r.attempt for r in found} == {2}


def test_a_process_that_only_takes_part_saves_without_announcing(
    guard: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TD_GUARD_STAGING", str(guard / "staging"))
    calls: list[Path] = []
    with Telemetry(guard / "telemetry.jsonl") as telemetry:
        staging = Staging(telemetry, calls.append, suffix=".ckpt", every=1, leads=False)
        staging.begin(0)
        staging.after_step(1)
    assert len(calls) == 2
    assert records(guard) == []
    assert not (guard / "staging").exists()
