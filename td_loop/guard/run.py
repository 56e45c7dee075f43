"""What the commands do: guard a training command to its end, and close an open breaker by hand."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from td_loop.errors import DataError, UsageError
from td_loop.files import make_dir
from td_loop.guard.breaker import State, replay
from td_loop.guard.breaker_log import NAME as LOG
from td_loop.guard.breaker_log import BreakerLog
from td_loop.guard.config import GuardConfig
from td_loop.guard.console import Console
from td_loop.guard.stop import adopting, end_left_over
from td_loop.guard.store import LOCK, Rollback, Store
from td_loop.guard.supervisor import LEFT_OVER, Supervisor
from td_loop.lock import locked
from td_loop.signals import Signals


def supervise(folder: Path, config: GuardConfig, command: Sequence[str], console: Console) -> int:
    """Guard a training command to its end: what `td-loop guard run` does (see `Supervisor.run`).

    Args:
        folder: the guard's own; made if it is not there. One that was left by an earlier guard is gone on with.
        command: words of the training command.

    Raises:
        RunInUse: another guard works in the folder, or a worker of an earlier one cannot be ended.
    """
    make_dir(folder)
    remedy = "wait for it to end, stop it, or use another --dir"
    with locked(folder / LOCK, remedy) as lock, Signals() as signals, adopting():
        lock.sign()
        ended = end_left_over(folder)
        if ended:
            what = "1 process" if ended == 1 else f"{ended} processes"
            console.say(f"warning: ended {what} that an earlier guard of this folder left behind")
        return Supervisor(folder, config, command, signals, console).run()


def reset(folder: Path) -> Rollback:
    """Close an open breaker by hand: what `td-loop guard reset` does.

    The run is led back first: to the newest stable snapshot, or to nothing. The next guard begins a new attempt.

    Returns:
        Where the run was led back to.

    Raises:
        DataError: no guard has worked in the folder.
        UsageError: the breaker is not open.
        RunInUse: one works there now, or its worker cannot be ended.
    """
    if not (folder / LOCK).exists():
        raise DataError(f"{folder}: no guard has worked here; see --dir")
    with locked(folder / LOCK, "stop it first") as lock:
        lock.sign()
        log = BreakerLog(folder / LOG)
        breaker = replay(log.transitions)
        if breaker.state is not State.OPEN:
            raise UsageError(
                f"{folder}: the breaker is {breaker.state}, which needs no reset; `td-loop guard run` goes on"
            )
        end_left_over(folder)
        if not breaker.is_stopped:
            breaker, transition = breaker.stopped(LEFT_OVER, t=time.time())
            log.append(transition)
        back = Store(folder).rollback(anew=True)
        log.append(breaker.reset("by hand", t=time.time())[1])
        return back
