"""One Typer application. Every command is a module of this folder with a `register(app)` function.

Command modules import no numba, torch or game at their top: `--help` must answer at once.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import traceback
from collections.abc import Iterator, Sequence

import typer

from td_loop.cli import (
    deploy,
    explain,
    export,
    fit,
    guard,
    knots,
    picks,
    policy,
    prepare,
    replays,
    run,
    selfplay,
    status,
    tournament,
    verify,
)
from td_loop.errors import DataError, Interrupted, StorageError, TdLoopError, UsageError
from td_loop.signals import interruptible

app = typer.Typer(
    name="td-loop",
    help="Fitted policy iteration from replays: prepare targets, fit a value function, check, promote, repeat.",
    epilog="Add --debug to any command to see the traceback of an error.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)

for command in (
    deploy,
    explain,
    export,
    fit,
    guard,
    knots,
    picks,
    policy,
    prepare,
    replays,
    run,
    selfplay,
    status,
    tournament,
    verify,
):
    command.register(app)

_CLICK_USAGE = 2  # click's exit code for a usage error; ours is 64, because fit's 2 means a blow-up


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code (see `td_loop.errors`)."""
    args = list(sys.argv[1:] if argv is None else argv)
    own = args[: args.index("--")] if "--" in args else args
    debug = "--debug" in own
    if debug:
        args.remove("--debug")
    try:
        with interruptible(), _output():
            return _command(args)
    except (TdLoopError, Interrupted) as e:
        if debug:
            traceback.print_exc()
        with contextlib.suppress(OSError):
            typer.echo(f"error: {e}", err=True)
        _let_go()
        return e.exit_code
    except Exception as e:
        # A fault of ours. Exit code 1 would be taken for an answer: guard run locks with it.
        with contextlib.suppress(OSError):
            traceback.print_exc()
            typer.echo(
                f"error: {type(e).__name__} in td-loop itself: please report it with the lines above", err=True
            )
        _let_go()
        return TdLoopError.exit_code


def _command(args: list[str]) -> int:
    """Run it, and turn the exit that click makes of every end into its code."""
    try:
        app(args=args, prog_name="td-loop")
    except SystemExit as e:
        code = e.code if isinstance(e.code, int) else (0 if e.code is None else 1)
        return UsageError.exit_code if code == _CLICK_USAGE else code
    return 0


@contextlib.contextmanager
def _output() -> Iterator[None]:
    """What a command says may go to a log on a full disk, and what it reads may refuse: errors like others."""
    try:
        yield
    except OSError as e:
        # Of a stream that cannot be written Python names no file; of all else it does.
        if e.filename is not None:
            raise DataError(f"{e.filename}: {e.strerror}; see to the file, the disk and the permissions") from e
        if e.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
            raise
        raise StorageError(f"cannot write the output: {e.strerror}; free space, then run again") from e


def _let_go() -> None:
    """Lead streams that cannot be written to nowhere: Python writes them out once more when it ends."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
