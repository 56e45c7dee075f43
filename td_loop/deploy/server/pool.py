"""Threads that compute for a server's event loop, where a call that hangs costs one thread and nobody's answer.

Nothing can stop a thread that hangs in foreign code. So it is written off: whoever waited is told at the deadline,
and another thread takes its place, up to `most_stuck` of them. When all threads hang and no more may be started, a
new call is refused at once. One that comes back after all either takes work again or ends.
"""

from __future__ import annotations

import asyncio
import enum
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Generic, TypeVar

T = TypeVar("T")

MOST_WAITING = 256
"""Calls that may wait for a thread: far more than can be computed within any deadline."""


class Busy(Exception):
    """Every thread of the pool hangs, or too many calls are waiting."""


class Late(Exception):
    """There was no answer at the deadline."""


class _Phase(enum.Enum):
    WAITING = 0
    RUNNING = 1
    GIVEN_UP = 2
    DONE = 3


class _Call(Generic[T]):
    def __init__(self, work: Callable[[], T], after: Callable[[T], None] | None) -> None:
        self.work, self.after = work, after
        self.phase = _Phase.WAITING


class Pool:
    """Threads of one purpose (a policy, say), started when they are needed, ended with `close`.

    Attributes:
        name: of the threads.
    """

    def __init__(self, name: str, size: int, most_stuck: int) -> None:
        """`size` threads compute; up to `most_stuck` more may be started for those that hang."""
        self.name = name
        self._size, self._most = size, size + most_stuck
        self._queue: SimpleQueue[tuple[_Call[object], Callable[[object, BaseException | None], None]] | None]
        self._queue = SimpleQueue()
        self._lock = threading.Lock()
        self._threads = self._stuck = self._waiting = 0
        self._closed = False

    @property
    def stuck(self) -> int:
        """Threads that were written off and have not come back."""
        return self._stuck

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

        self._submit(call, tell)
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

    def _submit(self, call: _Call[T], tell: Callable[[T, BaseException | None], None]) -> None:
        with self._lock:
            free = self._threads - self._stuck
            if free < self._size and self._threads < self._most:
                self._start_thread()
                free += 1
            if self._closed or free == 0 or self._waiting >= MOST_WAITING:
                raise Busy
            self._waiting += 1
            self._queue.put((call, tell))  # type: ignore[arg-type]

    def _start_thread(self) -> None:
        self._threads += 1
        threading.Thread(target=self._work, name=self.name, daemon=True).start()

    def _give_up(self, call: _Call[T]) -> bool:
        """Wait no longer for a call; False if it has just been done."""
        with self._lock:
            if call.phase is _Phase.RUNNING:
                self._stuck += 1
                if self._waiting and self._threads < self._most:
                    self._start_thread()
            elif call.phase is _Phase.DONE:
                return False
            else:
                self._waiting -= 1
            call.phase = _Phase.GIVEN_UP
            return True

    def _work(self) -> None:
        while True:
            taken = self._queue.get()
            if taken is None:
                return
            call, tell = taken
            with self._lock:
                if call.phase is not _Phase.WAITING:
                    continue
                call.phase = _Phase.RUNNING
                self._waiting -= 1
            result, error = None, None
            try:
                result = call.work()
            except BaseException as e:  # a policy's runner may raise anything, but a future does not take it all
                error = e if isinstance(e, Exception) else RuntimeError(repr(e))
            with self._lock:
                if call.phase is _Phase.GIVEN_UP:
                    self._stuck -= 1
                    if self._threads > self._size:  # another one has taken its place
                        self._threads -= 1
                        return
                    continue
                call.phase = _Phase.DONE
            try:
                tell(result, error)
            except RuntimeError:  # the loop has ended
                return
            if error is None and call.after is not None:
                call.after(result)
