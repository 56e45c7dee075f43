"""Threads that may hang: whoever waits is told in time, and nobody else is delayed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import pytest

from td_loop.deploy.server.pool import MOST_WAITING, SLOW_S, Busy, Late, Pool

T = TypeVar("T")
SOON, FOR_EVER = 0.05, 60.0


@contextmanager
def pool_of(size: int, most_stuck: int) -> Iterator[tuple[Pool, threading.Event]]:
    """A pool, and what calls can hang on until the block ends."""
    pool, gate = Pool("test", size, most_stuck), threading.Event()
    try:
        yield pool, gate
    finally:
        gate.set()
        pool.close()


async def ask(pool: Pool, work: Callable[[], T], within: float = FOR_EVER) -> T:
    return await pool.ask(work, asyncio.get_running_loop().time() + within)


async def hang(pool: Pool, gate: threading.Event) -> None:
    """Have one more thread of the pool hang on `gate`, given up."""
    begun = threading.Event()

    def wait() -> None:
        begun.set()
        gate.wait()

    while not begun.is_set():  # a thread that was slow to begin has not begun at all
        with pytest.raises(Late):
            await ask(pool, wait, SOON)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(FOR_EVER):
        while not condition():
            await asyncio.sleep(0.001)


def test_results_and_exceptions_come_back() -> None:
    async def run() -> None:
        with pool_of(2, 0) as (pool, _):
            assert await ask(pool, lambda: 7) == 7
            with pytest.raises(ZeroDivisionError):
                await ask(pool, lambda: 1 // 0)
            with pytest.raises(RuntimeError, match="SystemExit"):
                await ask(pool, lambda: (_ for _ in ()).throw(SystemExit(3)))

    asyncio.run(run())


def test_who_waits_for_a_call_that_hangs_is_told_at_the_deadline_and_the_next_is_served() -> None:
    async def run() -> None:
        with pool_of(1, 2) as (pool, gate):
            await hang(pool, gate)
            assert pool.stuck == 1
            assert await ask(pool, lambda: 7) == 7

    asyncio.run(run())


def test_calls_that_waited_behind_one_that_hangs_are_served_by_another_thread() -> None:
    async def run() -> None:
        with pool_of(1, 2) as (pool, gate):
            hanging = asyncio.ensure_future(ask(pool, gate.wait, SOON))
            await asyncio.sleep(0)
            behind = asyncio.ensure_future(ask(pool, lambda: 7))
            with pytest.raises(Late):
                await hanging
            assert await behind == 7

    asyncio.run(run())


def test_calls_are_served_though_the_one_before_them_began_late_and_hangs() -> None:
    class Slow(Pool):
        """Its first thread takes longer to begin than a call may take before others are started."""

        def _start_thread(self) -> None:
            self._threads += 1
            threading.Timer(5 * SLOW_S if self._threads == 1 else 0.0, self._work).start()

    async def run() -> None:
        pool, gate = Slow("test", 1, 2), threading.Event()
        hanging = asyncio.ensure_future(ask(pool, gate.wait))
        await asyncio.sleep(0)
        try:
            assert await ask(pool, lambda: 7) == 7
            assert not hanging.done()
        finally:
            gate.set()
            pool.close()
        await hanging

    asyncio.run(run())


def test_when_all_threads_hang_the_next_is_refused_at_once_and_served_once_one_is_back() -> None:
    async def run() -> None:
        with pool_of(1, 2) as (pool, gate):
            for _ in range(3):
                await hang(pool, gate)
            assert pool.stuck == 3
            with pytest.raises(Busy):
                await ask(pool, lambda: 7)
            gate.set()
            await until(lambda: pool.stuck == 0)
            assert await ask(pool, lambda: 7) == 7

    asyncio.run(run())


def test_threads_that_hung_do_not_pile_up() -> None:
    async def run() -> None:
        before = threading.active_count()
        with pool_of(2, 4) as (pool, _):
            for _ in range(10):
                gate = threading.Event()
                await hang(pool, gate)
                assert await ask(pool, lambda: 7) == 7
                gate.set()
                await until(lambda: pool.stuck == 0)
            await until(lambda: threading.active_count() <= before + 2)

    asyncio.run(run())


def test_a_call_that_was_given_up_while_it_waited_is_never_made() -> None:
    async def run() -> None:
        made = []
        with pool_of(1, 0) as (pool, gate):
            first = asyncio.ensure_future(ask(pool, gate.wait))
            await asyncio.sleep(0)
            with pytest.raises(Late):
                await ask(pool, lambda: made.append(1), SOON)
            gate.set()
            await first
            assert await ask(pool, lambda: 7) == 7
        assert made == []

    asyncio.run(run())


def test_so_many_calls_may_wait_and_no_more() -> None:
    async def run() -> None:
        with pool_of(1, 0) as (pool, gate):
            calls = [asyncio.ensure_future(ask(pool, gate.wait))]
            await asyncio.sleep(0.05)
            calls += [asyncio.ensure_future(ask(pool, lambda: True)) for _ in range(MOST_WAITING)]
            await asyncio.sleep(0)
            with pytest.raises(Busy):
                await ask(pool, lambda: 7)
            gate.set()
            assert all(await asyncio.gather(*calls))

    asyncio.run(run())


def test_what_follows_a_result_is_done_in_the_thread_and_nobody_waits_for_it() -> None:
    async def run() -> None:
        with pool_of(1, 1) as (pool, gate):
            seen: list[object] = []

            def after(x: int) -> None:
                gate.wait()
                seen.append((x, threading.current_thread().name))

            deadline = asyncio.get_running_loop().time() + FOR_EVER
            assert await pool.ask(lambda: 7, deadline, after) == 7
            assert seen == []
            gate.set()
            await until(lambda: bool(seen))
            assert seen == [(7, "test")]

    asyncio.run(run())


def test_every_thread_does_its_part_once() -> None:
    with pool_of(3, 0) as (pool, _):
        seen: list[int] = []
        pool.on_each(lambda: seen.append(threading.get_ident()), FOR_EVER)
        assert len(set(seen)) == len(seen) == 3


def test_a_closed_pool_refuses() -> None:
    async def run() -> None:
        pool = Pool("test", 1, 0)
        assert await ask(pool, lambda: 7) == 7
        pool.close()
        with pytest.raises(Busy):
            await ask(pool, lambda: 7)

    asyncio.run(run())
