"""Every reason to stop, as an exception with one exit code.

    TdLoopError                70   anything that has no better name below, and faults of the program itself
    ├── UsageError             64   flags or values that make no sense together
    ├── DataError              65   a file that is missing, damaged or of the wrong kind
    │   ├── WeightsError            a weights npz
    │   ├── CacheError              a branch_data npz or an mc_rows npz
    │   ├── ReplayError             a replay file, folder or store
    │   └── ManifestError           a manifest.json or a run directory
    ├── StorageError           74   the disk is full, read-only or failing
    ├── Blowup                  2   fit: validation loss blew up in mid-run
    ├── OutputError            70   a policy network answered what is no distribution
    ├── Refused                 8   deploy: an artefact failed its admission, or has been rolled back before
    ├── Reverted                3   driver: stopped on a reverted iteration
    ├── HardAbort               4   driver: a hard check failed
    └── RunInUse                5   driver: another driver holds the run directory
    Interrupted           130/143   SIGINT / SIGTERM

A message says what is wrong, where (file, key, row), and what to do about it.
"""

from __future__ import annotations

import signal

SPRT_REJECTED = 6
"""Exit code of `td-loop tournament --sprt` when H0 is accepted: an answer, no error, so it has no exception."""
SPRT_UNDECIDED = 7
"""The same when the rounds ran out before the test had an answer."""

CANARY_ROLLED_BACK = 9
"""Exit code of `td-loop deploy canary` when the canary was withdrawn."""


class TdLoopError(Exception):
    """Base of all errors that the command line reports without a traceback."""

    exit_code: int = 70  # EX_SOFTWARE of sysexits.h


class UsageError(TdLoopError):
    """A flag or a combination of flags that cannot be meant."""

    exit_code = 64


class DataError(TdLoopError):
    """A file that is missing, damaged, or not what it should be."""

    exit_code = 65


class WeightsError(DataError):
    """A weights npz that cannot be used."""


class CacheError(DataError):
    """A branch_data or mc_rows npz that cannot be used."""


class ReplayError(DataError):
    """A replay file, folder or store that cannot be used."""


class ManifestError(DataError):
    """A manifest.json or run directory that cannot be used."""


class StorageError(TdLoopError):
    """The file system refused: full, read-only, or failing."""

    exit_code = 74


class Blowup(TdLoopError):
    """fit stopped itself: `val_mc_nll` rose above the allowed multiple of its baseline."""

    exit_code = 2


class OutputError(TdLoopError):
    """A policy network's answer has the wrong shape, or is not finite where it must be."""


class Refused(TdLoopError):
    """An artefact that gets no traffic: it failed its admission, or it has been rolled back before."""

    exit_code = 8


class Reverted(TdLoopError):
    """The driver stopped because an iteration was reverted."""

    exit_code = 3


class HardAbort(TdLoopError):
    """The driver stopped because a hard check failed."""

    exit_code = 4


class RunInUse(TdLoopError):
    """Another driver works in this run directory."""

    exit_code = 5


class Interrupted(BaseException):
    """A signal asked us to stop; the state on disk can be resumed.

    It can be raised anywhere. Like KeyboardInterrupt it is therefore no `Exception`: code that handles all errors
    of a damaged file, or of somebody's game, must not take it for one of them.
    """

    def __init__(self, signum: int, message: str = "") -> None:
        super().__init__(message or f"interrupted by {signal.Signals(signum).name}")
        self.signum = signum
        self.exit_code = 128 + signum
