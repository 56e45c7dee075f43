"""The client: a few microseconds a batch, from inside a training process to whoever watches it.

    from td_loop.guard import Telemetry

    telemetry = Telemetry()  # does nothing where no guard asks for anything
    for step in range(n):
        ...
        telemetry.log(step, kl=kl, entropy=entropy, value_loss=loss)

Training comes first: nothing that happens to a disk or a reader raises, or makes a batch wait. What could not be
delivered is counted in `lost`. Importing this module brings orjson and the standard library, nothing else.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from collections.abc import Mapping
from typing import Any, SupportsIndex, SupportsInt

from td_loop.guard import environment
from td_loop.guard.record import MAX_LINE, OWN_KEYS, encode_parts
from td_loop.guard.sinks import Sink, open_sink


class Telemetry:
    """Says what each batch came to. Threads may share one; a forked child gets a connection of its own.

    Attributes:
        where: the address that lines go to; None for nowhere.
        attempt: what lines carry as their attempt; None for nothing.
    """

    def __init__(self, where: str | os.PathLike[str] | None = None, attempt: int | None = None) -> None:
        """Open what can be opened; a file or reader that is not there yet is tried again later.

        Args:
            where: a file, `unix:/path/of.sock`, or `redis://host:port/db?stream=NAME`; "" for nowhere; None for
                what TD_GUARD_TELEMETRY says, which is nowhere without a guard.
            attempt: number of the attempt; None for what TD_GUARD_ATTEMPT says.

        Raises:
            UsageError: an address or a variable that cannot be meant, or the package for the address is missing:
                before training has begun, while it costs nothing.
        """
        self.where = (os.fspath(where) if where is not None else os.environ.get(environment.TELEMETRY)) or None
        self.attempt = environment.attempt() if attempt is None else attempt
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._busy = False
        self._failed = 0
        self._sink: Sink | None = None
        self._open()

    @property
    def lost(self) -> int:
        """Lines that did not get to their file or reader, as far as can be told from here."""
        return self._failed + (self._sink.lost if self._sink is not None else 0)

    def log(self, step: SupportsInt | SupportsIndex, /, **metrics: Any) -> None:
        """Report one batch.

        Args:
            step: number of the batch, from 0.
            metrics: numbers by name, plain or scalars of numpy or torch; see `record.METRICS` for the names that
                detectors know. What is no number, None above all, is left out, and so are the names `step`,
                `attempt`, `time`, `checkpoint` and `initial`, which a line has for itself.
        """
        if self._sink is not None:
            self._send(step, metrics)

    def checkpoint(
        self, step: SupportsInt | SupportsIndex, path: str | os.PathLike[str], initial: bool = False
    ) -> None:
        """Announce a file or folder that has been saved completely.

        Args:
            step: number of the last batch that is in it.
            path: where it is.
            initial: it is what training starts from, untouched by any batch.
        """
        if self._sink is not None:
            self._send(step, {}, path, initial)

    def close(self) -> None:
        """Send what waits, as far as that takes no time, and stop. More calls do nothing."""
        if self._pid != os.getpid():
            self._after_fork()
        with self._lock:  # nobody is in the middle of a line
            sink, self._sink = self._sink, None
        if sink is not None:
            self._finalizer()
            self._failed += sink.lost

    def __enter__(self) -> Telemetry:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy, in another process or not, has a connection of its own: trainers pickle their callbacks."""
        return Telemetry, (self.where or "", self.attempt)

    def _send(
        self,
        step: SupportsInt | SupportsIndex,
        metrics: Mapping[str, Any],
        path: str | os.PathLike[str] | None = None,
        initial: bool = False,
    ) -> None:
        if self._pid != os.getpid():
            self._after_fork()
        with self._lock:
            # A signal handler may have interrupted a report: its own can neither wait for that nor mix with it.
            if self._sink is None or self._busy:
                self._failed += self._busy
                return
            self._busy = True
            try:
                self._sink.write(self._line(step, metrics, path, initial))
            except Exception:  # whatever it is, training goes on
                self._failed += 1
            finally:
                self._busy = False

    def _line(
        self,
        step: SupportsInt | SupportsIndex,
        metrics: Mapping[str, Any],
        path: str | os.PathLike[str] | None,
        initial: bool,
    ) -> bytes:
        number = int(step)
        if number != step or number < 0:
            raise ValueError(step)
        values = {}
        for name, raw in metrics.items():
            x = raw if type(raw) is float else _number(raw)
            if x is not None and name not in OWN_KEYS:
                values[name] = x
        checkpoint = None if path is None else os.path.abspath(path)  # noqa: PTH100 - no pathlib in the hot path
        line = encode_parts(number, values, self.attempt, round(time.time(), 3), checkpoint, initial=initial)
        if len(line) > MAX_LINE:
            raise ValueError(len(line))
        return line

    def _after_fork(self) -> None:
        """Begin anew in a child process: threads that it has not may hold locks, and sockets are its parent's."""
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._busy = False
        self._failed = 0
        if self._sink is not None:
            self._finalizer.detach()
            self._sink.abandon()
            self._open()

    def _open(self) -> None:
        if self.where:
            self._sink = open_sink(self.where)
            # Few scripts close what they report with; the last lines may still wait then.
            self._finalizer = weakref.finalize(self, _close, self._sink, self._pid)


def _close(sink: Sink, pid: int) -> None:
    """What happens to a client that nobody closed. A forked child leaves its parent's alone."""
    if pid == os.getpid():
        with contextlib.suppress(Exception):
            sink.close()


def _number(x: Any) -> float | None:
    """A number as a float; None for what is none."""
    if x is None or isinstance(x, str | bytes | bytearray):
        return None
    try:
        item = getattr(x, "item", None)  # numpy, torch: what `float` says of them may come with a warning
        return float(x if item is None else item())
    except Exception:
        return None
