"""compute and pool: workers load the kernels that the parent compiled, and compile none."""

from __future__ import annotations

from td_loop.pool import Pool
from td_loop.prepare.compute import compile_kernels
from td_loop.value.model import SplineValue
from tests.ground.pool_recipes import Values
from tests.toy_game import GAME


def test_workers_load_what_the_parent_compiled(value: SplineValue) -> None:
    compile_kernels(GAME, value)
    todo = [3]
    with Pool(Values(value), 1) as pool:
        (outcome,) = pool.run(lambda: todo.pop() if todo else None, lambda _: 60.0)
    assert outcome.result == []
