"""`python -m td_loop` is `td-loop`: the one way in, from which a signal always leads out with an exit code."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return the code with which the process must end now."""
    for signum in _STOP_SIGNALS:
        signal.signal(signum, _leave)
    # Only now what takes time to import; nothing is there yet that would have to be tidied up.
    from td_loop.cli import main as command

    code = command(argv)
    for signum in _STOP_SIGNALS:
        signal.signal(signum, signal.SIG_IGN)  # the work is done; dying of a signal would say that it is not
        if code == 128 + signum:
            _leave(signum)
    return code


def _leave(signum: int, _frame: FrameType | None = None) -> None:
    """End here: libraries take up to seconds to tear down, and may crash when their import was interrupted."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(
            OSError, RuntimeError
        ):  # nobody reads; or the signal came while it was written to
            stream.flush()
    os._exit(128 + signum)


if __name__ == "__main__":
    sys.exit(main())
