"""Checkpoints on their way from a training process to the guard."""

from __future__ import annotations

import contextlib
import logging
import shutil
from collections.abc import Callable
from pathlib import Path

from td_loop.errors import StorageError, UsageError
from td_loop.guard import environment
from td_loop.guard.telemetry import Telemetry

Save = Callable[[Path], object]
"""Writes a checkpoint to a path that does not exist yet."""


class Staging:
    """Saves a checkpoint every so many steps into TD_GUARD_STAGING and announces it; does nothing without a guard.

    A checkpoint that cannot be saved (disk full, read-only) is counted, and the training goes on: the guard still
    has the ones before.

    Attributes:
        every: steps between two checkpoints.
        saved: how many have been saved.
        failed: how many could not be.
    """

    def __init__(self, telemetry: Telemetry, save: Save, *, suffix: str, every: int, leads: bool = True) -> None:
        """
        Args:
            telemetry: where checkpoints are announced.
            save: writes one; an OSError or StorageError of it costs that checkpoint alone.
            suffix: how its name ends; "" for a folder.
            every: steps between two, from 1, where TD_GUARD_CHECKPOINT_EVERY does not say otherwise.
            leads: False in a process that has to take part in saving, while another one does it.

        Raises:
            UsageError: `every`, or the variable, is no whole number from 1.
        """
        if every < 1:
            raise UsageError(f"checkpoints every {every} steps: must be a whole number from 1")
        self._telemetry = telemetry
        self._save = save
        self._suffix = suffix
        self._leads = leads
        self._folder = environment.staging()
        self.every = environment.checkpoint_every(every)
        self.saved = 0
        self.failed = 0
        self._steps = 0

    def begin(self, step: int) -> None:
        """Save what training starts from, unless that is a checkpoint of the guard itself."""
        if environment.resume_path() is None:
            self._stage(step, initial=True)

    def after_step(self, step: int) -> None:
        """Count one step, and save a checkpoint if it is time. `step`: its number, as in telemetry."""
        self._steps += 1
        if self._steps % self.every == 0:
            self._stage(step, initial=False)

    def _stage(self, step: int, *, initial: bool) -> None:
        if self._folder is None:
            return
        # With the attempt in it, no two checkpoints ever have one name.
        path = self._folder / f"step_{step:09d}_a{self._telemetry.attempt or 0}{self._suffix}"
        temporary = path.with_name(f".{path.stem}.tmp{self._suffix}")  # some writers look at the suffix
        if not self._leads:
            self._save(temporary)
            return
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            _remove(temporary)
            self._save(temporary)
            temporary.rename(path)
        except (OSError, StorageError) as e:
            self.failed += 1
            logging.getLogger("td_loop.guard").warning("checkpoint of step %d cannot be saved: %s", step, e)
            with contextlib.suppress(OSError):
                _remove(temporary)
            return
        self.saved += 1
        self._telemetry.checkpoint(step, path, initial)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
