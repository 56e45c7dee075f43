"""A callback for Lightning 2.

    from td_loop.guard import resume_path, scaled, seed
    from td_loop.guard.adapters.lightning import GuardCallback

    lightning.seed_everything(seed(0))
    model = MyModule(lr=scaled(1e-3))
    trainer = lightning.Trainer(callbacks=[GuardCallback()], ...)
    trainer.fit(model, ckpt_path=resume_path())

One record is one step of the optimizer; its step is the trainer's `global_step`. Without the guard the callback
does nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from td_loop.guard.environment import multiplier, resume_path, scaled, seed
from td_loop.guard.staging import Staging
from td_loop.guard.telemetry import Telemetry

try:
    from lightning.pytorch.callbacks import Callback
except ImportError as e:
    raise ImportError(
        f"the callback for Lightning needs {e.name}; pip install 'td-loop[guard-lightning]'", name=e.name
    ) from e

__all__ = ["GuardCallback", "resume_path", "scaled", "seed"]

EVERY = 100
"""Steps between two checkpoints."""


class GuardCallback(Callback):
    """Reports every step of the optimizer, and hands checkpoints to the guard.

    A record holds what the module has logged in this step with `self.log`, under the names that it gave; `names`
    says which of them are `kl`, `entropy` and so on. If none is `value_loss`, the loss that `training_step`
    returned goes by that name. `grad_norm` is the norm of all gradients before they are clipped, `lr` the first
    rate of the first optimizer.

    A checkpoint of Lightning brings the rates of the attempt that made it along, those in its schedulers too. The
    callback sees to it that the multiplier of *this* attempt holds.
    """

    def __init__(
        self,
        telemetry: Telemetry | None = None,
        *,
        names: Mapping[str, str] | None = None,
        checkpoint_every: int = EVERY,
        grad_norm: bool = True,
    ) -> None:
        """
        Args:
            telemetry: where to report; None: what the guard says.
            names: what a metric of the module is called in telemetry, by its own name.
            checkpoint_every: steps between two checkpoints, unless TD_GUARD_CHECKPOINT_EVERY says otherwise.
            grad_norm: measure it.
        """
        self.telemetry = Telemetry() if telemetry is None else telemetry
        self._names = dict(names or {})
        self._every = checkpoint_every
        self._wants_norm = grad_norm and self.telemetry.where is not None
        self._square: Any = None  # of the norm of the gradients of this step
        self._reported: dict[str, Any] = {}
        self._step = 0
        self._staging: Staging | None = None
        self._multiplier = multiplier()
        self._loaded: float | None = None  # the multiplier of the attempt whose checkpoint was loaded

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps: the multiplier that its rates were made with."""
        return {"multiplier": self._multiplier}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take it back."""
        self._loaded = float(state_dict["multiplier"])

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Put the rates right, and save what training starts from."""
        if self._loaded is not None:
            _scale_rates(trainer, self._multiplier / self._loaded)
            self._loaded = None
        self._step = trainer.global_step
        if self._staging is None:  # a second call of `fit` starts from nothing new
            leads = trainer.is_global_zero
            self._staging = Staging(
                self.telemetry, trainer.save_checkpoint, suffix=".ckpt", every=self._every, leads=leads
            )
            self._staging.begin(self._step)

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        """Measure the gradients: they are whole, and nobody has clipped them."""
        if self._wants_norm:
            parameters = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
            squares = [p.grad.detach().square().sum() for p in parameters]
            self._square = sum(squares, 0.0 if self._square is None else self._square)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Report the step that has been made, if one has: some batches only add to the gradient."""
        if trainer.global_step == self._step:
            return
        self._step = trainer.global_step
        if self.telemetry.where is not None and trainer.is_global_zero:
            values = self._new_metrics(trainer.callback_metrics)
            loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
            values.setdefault("value_loss", loss)
            if trainer.optimizers:
                values["lr"] = trainer.optimizers[0].param_groups[0]["lr"]
            if self._square is not None:
                values["grad_norm"] = self._square**0.5
                self._square = None
            self.telemetry.log(self._step, **values)
        assert self._staging is not None
        self._staging.after_step(self._step)

    def _new_metrics(self, metrics: Mapping[str, Any]) -> dict[str, Any]:
        """What was logged since the last record. The trainer keeps old values, of a validation say, for good."""
        # An old value lies where it lay. No new one can lie there, as long as the old one is held on to.
        old = {name: x.data_ptr() for name, x in self._reported.items()}
        self._reported = dict(metrics)
        return {
            self._names.get(name, name): x
            for name, x in metrics.items()
            if x.data_ptr() != old.get(name) and name.removesuffix("_step") not in metrics.keys() - {name}
        }


def _scale_rates(trainer: Any, by: float) -> None:
    """Multiply all learning rates, and those from which schedulers compute them."""
    for optimizer in trainer.optimizers:
        for group in optimizer.param_groups:
            for key in ("lr", "initial_lr"):
                if key in group:
                    group[key] *= by
    for config in trainer.lr_scheduler_configs:
        for key in ("base_lrs", "_last_lr", "min_lrs", "max_lrs"):
            if isinstance(rates := getattr(config.scheduler, key, None), list):
                setattr(config.scheduler, key, [rate * by for rate in rates])
