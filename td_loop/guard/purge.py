"""The purge command: whoever keeps a replay buffer is told what of it to throw away after a rollback."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from td_loop.errors import TdLoopError, UsageError
from td_loop.guard.children import FOLDER, Child
from td_loop.guard.config import PurgeSettings
from td_loop.guard.stop import Family, stop
from td_loop.signals import Signals

LOG = "purge.log"


@dataclass(frozen=True, slots=True)
class Polluted:
    """What was gathered after the snapshot that a rollback went back to.

    Attributes:
        from_step: the first step after it.
        to_step: the last step that was heard of; smaller than `from_step` if none was.
        from_time, to_time: when the snapshot was announced and when the worker was gone, Unix seconds.
    """

    from_step: int
    to_step: int
    from_time: float
    to_time: float

    def environment(self) -> dict[str, str]:
        """TD_GUARD_FROM_STEP, TD_GUARD_TO_STEP, TD_GUARD_FROM_TIME, TD_GUARD_TO_TIME."""
        return {f"TD_GUARD_{name.upper()}": str(value) for name, value in asdict(self).items()}


class PurgeFailed(TdLoopError):
    """The purge command did not do its work; the worker stays stopped."""

    exit_code = 1


def purge(settings: PurgeSettings, what: Polluted, folder: Path, signals: Signals, grace_s: float) -> None:
    """Run the purge command to its end; its output goes to `purge.log` and to ours.

    Args:
        folder: the guard's.
        signals: reach the command, too.

    Raises:
        PurgeFailed: it failed, or took too long; nothing of it is left running.
        Interrupted: SIGINT or SIGTERM came.
    """
    words = [word.format(**asdict(what)) for word in settings.command]
    if not words:
        return
    family = Family(folder)
    env: Mapping[str, str] = {**os.environ, **what.environment(), FOLDER: str(folder.absolute())}
    try:
        child = Child(words, env, folder / LOG, echo=True)
    except UsageError as e:
        raise PurgeFailed(f"[purge] command: {e}; nothing is started again before it works") from e
    signals.group = child.pid
    deadline, late = time.monotonic() + settings.timeout_s, False
    try:
        signals.forward()
        while not child.ended and signals.received is None and not late:
            child.output.wait(0.05)
            late = time.monotonic() > deadline
    finally:
        proof = stop(child, family, grace_s=grace_s, pump=child.output.copy, ask=signals.received is None)
        signals.group = None
        child.close()
    signals.check()
    if late or proof.exit_code:
        how = f"took more than {settings.timeout_s:g} s" if late else f"ended with {proof.exit_code}"
        raise PurgeFailed(
            f"the purge command {how} (see {folder / LOG}), so the worker is not started again: it would learn "
            "from what it gathered while it diverged; see to the command, then run again"
        )
