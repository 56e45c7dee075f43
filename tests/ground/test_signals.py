"""signals: one exception for SIGINT and SIGTERM."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from td_loop.errors import Interrupted
from td_loop.signals import LIFELINE, STOP_SIGNALS, interruptible


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_raises_with_its_exit_code(signum: signal.Signals, code: int) -> None:
    with pytest.raises(Interrupted) as e, interruptible():
        signal.raise_signal(signum)
    assert e.value.exit_code == code


def test_a_second_signal_does_not_cut_the_cleaning_up_short() -> None:
    cleaned = False
    with pytest.raises(Interrupted), interruptible():
        try:
            signal.raise_signal(signal.SIGINT)
        finally:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGTERM)
            cleaned = True
    assert cleaned


def test_handlers_are_put_back() -> None:
    before = [signal.getsignal(s) for s in (*STOP_SIGNALS, signal.SIGALRM)]
    with interruptible():
        assert [signal.getsignal(s) for s in STOP_SIGNALS] != before[:2]
    with pytest.raises(Interrupted), interruptible():
        signal.raise_signal(signal.SIGTERM)
    assert [signal.getsignal(s) for s in (*STOP_SIGNALS, signal.SIGALRM)] == before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_code_that_handles_every_error_does_not_take_a_signal_for_one() -> None:
    with pytest.raises(Interrupted), interruptible(), contextlib.suppress(Exception):
        signal.raise_signal(signal.SIGINT)


def test_a_signal_that_somebodys_callback_swallowed_counts_when_the_block_ends() -> None:
    with pytest.raises(Interrupted) as e, interruptible(), contextlib.suppress(BaseException):
        signal.raise_signal(signal.SIGTERM)
    assert e.value.exit_code == 143


def test_a_block_that_does_not_end_is_ended() -> None:
    program = """
import contextlib, signal
from td_loop import signals
signals.GRACE_S = 0.05
with signals.interruptible():
    with contextlib.suppress(BaseException):
        signal.raise_signal(signal.SIGINT)
    while True:
        pass
"""
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=60).returncode == 130


def test_another_thread_may_use_it_without_effect() -> None:
    seen = []

    def work() -> None:
        with interruptible():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGTERM)]


# --- the lifeline -------------------------------------------------------------------------------------------


WATCH = """
import os, subprocess, sys, time
from td_loop.errors import Interrupted
from td_loop.signals import LIFELINE, interruptible
try:
    with interruptible():
        print(LIFELINE in os.environ, flush=True)
        time.sleep(600)
except Interrupted as e:
    print(e.exit_code)
"""


def test_a_stage_whose_driver_ends_is_interrupted() -> None:
    theirs, ours = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-c", WATCH],
        env={**os.environ, LIFELINE: str(theirs)},
        pass_fds=[theirs],
        stdout=subprocess.PIPE,
        text=True,
    ) as stage:
        os.close(theirs)
        assert stage.stdout is not None
        assert stage.stdout.readline() == "False\n"  # not for the processes that it starts
        assert stage.poll() is None
        os.close(ours)
        assert stage.communicate(timeout=60)[0] == "143\n"


@pytest.mark.parametrize("number", ["", "x", "-1", "99999", "a file"])
def test_what_is_no_lifeline_is_not_watched(number: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "file").open("w") as f:
        monkeypatch.setenv(LIFELINE, str(f.fileno()) if number == "a file" else number)
        with interruptible():
            assert not [t for t in threading.enumerate() if t.name == "lifeline"]
