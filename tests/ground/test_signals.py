"""signals: one exception for SIGINT and SIGTERM."""

from __future__ import annotations

import signal
import threading

import pytest

from td_loop.errors import Interrupted
from td_loop.signals import STOP_SIGNALS, interruptible


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
    before = [signal.getsignal(s) for s in STOP_SIGNALS]
    with interruptible():
        assert [signal.getsignal(s) for s in STOP_SIGNALS] != before
    assert [signal.getsignal(s) for s in STOP_SIGNALS] == before


def test_another_thread_may_use_it_without_effect() -> None:
    seen = []

    def work() -> None:
        with interruptible():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGTERM)]
