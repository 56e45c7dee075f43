"""Threads that compute for a server's event loop, where a call that hangs costs one thread and nobody's answer.

Nothing can stop a thread that hangs in foreign code. So whoever waited is told at the deadline, and long before
that others take its place: a call that has run for SLOW_S does not count among the `size` threads that are there
for the next ones, and up to `most_stuck` more are started. When all of them hang, and whoever waited for them has
given up, a new call is refused at once. A thread that comes back to find enough others ends.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

T = TypeVar("T")

MOST_WAITING = 256
"""Calls that may wait for a thread: far more than can be computed within any deadline."""
SLOW_S = 0.005
"""Seconds after which a call may be one that hangs: an answer takes a tenth of that."""
LET_GO_S = 0.0005
"""Seconds that the loop gets to send a result before its thread goes on: both need the interpreter, and the thread
would keep it (0.2 ms of 2 for a client)."""


class Busy(Exception):
    """Every thread of the pool hangs, or too many calls are waiting."""


class Late(Exception):
    """There was no answer at the deadline."""


class _Call(Generic[T]):
    """Work that waits, then runs. `is_given_up`: nobody waits for it any more."""

    def __init__(self, work: Callable[[], T], after: Callable[[T], None] | None) -> None:
        self.work, self.after = work, after
        self.since = 0.0  # when it began to run; 0 before
        self.is_given_up = self.is_done = False


class Pool:
    """Threads of one purpose (a policy, say), started when they are needed, ended with `close`.

    Attributes:
        name: of the threads.
    """

    def __init__(self, name: str, size: int, most_stuck: int) -> None:
        """`size` threads compute; up to `most_stuck` more may be started for those that hang."""
        self.name = name
        self._size, self._most = size, size + most_stuck
        self._queue: SimpleQueue[tuple[_Call[Any], Callable[[Any, BaseException | None], None]] | None]
        self._queue = SimpleQueue()
        self._lock = threading.Lock()
        self._threads = self._waiting = 0
        self._looked_after: asyncio.AbstractEventLoop | None = None
        self._running: set[_Call[Any]] = set()
        self._closed = False

    @property
    def stuck(self) -> int:
        """Threads that nobody waits for any more, and that have not come back."""
        with self._lock:
            return self._given_up()

    async def ask(self, work: Callable[[], T], deadline: float, after: Callable[[T], None] | None = None) -> T:
        """What `work` returns.

        Args:
            work: called in one of the threads.
            deadline: of the running loop's clock.
            after: called in that thread with the result, once that is on its way; nobody waits for it.

        Raises:
            Busy: nobody could take the call.
            Late: there was no result at the deadline.
            Exception: whatever `work` raises.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        call: _Call[T] = _Call(work, after)

        def settle(result: T, error: BaseException | None) -> None:
            if future.done():  # given up
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        def tell(result: T, error: BaseException | None) -> None:
            loop.call_soon_threadsafe(settle, result, error)

        def give_up() -> None:
            if not future.done() and self._give_up(call):
                future.set_exception(Late())

        if self._submit(call, tell):
            self._look_after(loop)
        timer = loop.call_at(deadline, give_up)
        try:
            return await future
        finally:
            timer.cancel()

    def on_each(self, work: Callable[[], object], timeout_s: float) -> None:
        """Call `work` once in every thread, and wait for that, from a thread that is none of them.

        What each thread makes for itself, buffers say, is then there before anybody waits for a call.

        Raises:
            TimeoutError: it took too long.
        """
        with self._lock:
            while self._threads < self._size:
                self._start_thread()
            n = self._threads
            barrier, done = threading.Barrier(n), threading.Semaphore(0)

            def wait_and_work() -> None:
                barrier.wait(timeout_s)  # nobody takes two
                work()

            for _ in range(n):
                self._waiting += 1
                self._queue.put((_Call(wait_and_work, None), lambda *_: done.release()))
        if not all(done.acquire(timeout=timeout_s) for _ in range(n)):
            raise TimeoutError(f"{self.name}: a thread did not do its part within {timeout_s:g} s")

    def close(self) -> None:
        """Take no more calls, and let the threads end; those that hang end with the process."""
        with self._lock:
            self._closed = True
            for _ in range(self._threads):
                self._queue.put(None)

    def _submit(self, call: _Call[T], tell: Callable[[T, BaseException | None], None]) -> bool:
        """Hand it to a thread; True if none is free for it at this moment."""
        with self._lock:
            self._grow()
            if self._closed or self._given_up() == self._threads or self._waiting >= MOST_WAITING:
                raise Busy
            self._waiting += 1
            self._queue.put((call, tell))
            return self._waiting > self._threads - len(self._running)

    def _look_after(self, loop: asyncio.AbstractEventLoop) -> None:
        """Reinforce soon, and again as long as calls wait: the threads before them may hang, or begin to."""
        if self._looked_after is not loop:
            self._looked_after = loop
            loop.call_later(SLOW_S, self._reinforce, loop)

    def _reinforce(self, loop: asyncio.AbstractEventLoop) -> None:
        self._looked_after = None
        with self._lock:
            if not self._waiting:
                return
            self._grow()
        self._look_after(loop)

    def _grow(self) -> None:
        while not self._closed and self._threads < self._most and self._threads - self._slow() < self._size:
            self._start_thread()

    def _slow(self) -> int:
        end = time.monotonic() - SLOW_S
        return sum(call.since < end for call in self._running)

    def _given_up(self) -> int:
        return sum(call.is_given_up for call in self._running)

    def _start_thread(self) -> None:
        self._threads += 1
        threading.Thread(target=self._work, name=self.name, daemon=True).start()

    def _give_up(self, call: _Call[T]) -> bool:
        """Wait no longer for a call; False if it has just been done."""
        with self._lock:
            if not call.since:
                self._waiting -= 1
            call.is_given_up = not call.is_done
            return call.is_given_up

    def _work(self) -> None:
        while True:
            taken = self._queue.get()
            if taken is None:
                return
            call, tell = taken
            with self._lock:
                if call.is_given_up:
                    continue
                call.since = time.monotonic()
                self._running.add(call)
                self._waiting -= 1
            result, error = None, None
            try:
                result = call.work()
            except BaseException as e:  # a policy's runner may raise anything, but a future does not take it all
                error = e if isinstance(e, Exception) else RuntimeError(repr(e))
            with self._lock:
                self._running.discard(call)
                call.is_done = not call.is_given_up
            try:
                if call.is_done:
                    tell(result, error)
            except RuntimeError:  # the loop has ended
                return
            if call.is_done and error is None and call.after is not None:
                if not self._waiting:  # else another thread takes the next one, and the interpreter
                    time.sleep(LET_GO_S)
                call.after(result)
            with self._lock:
                if self._threads - self._slow() > self._size:  # others have taken its place
                    self._threads -= 1
                    return
