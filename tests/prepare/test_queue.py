"""queue: every row is handed out once, small chunks last, lost rows again on their own."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from td_loop.errors import TdLoopError
from td_loop.games.base import Budget
from td_loop.prepare.compute import Chunk
from td_loop.prepare.config import WorkerPolicy
from td_loop.prepare.queue import AGENT_CHUNK_S, REPLAY_CHUNK, ChunkQueue
from td_loop.prepare.rows import Rows


def queue(agent: list[bool], budget: Budget, workers: int = 2, **policy: int) -> ChunkQueue:
    n = len(agent)
    rows = Rows(np.arange(n, dtype=np.int32), np.zeros(n, np.int16), np.zeros(n, np.int8), np.array(agent))
    return ChunkQueue(rows, budget, workers, WorkerPolicy(**policy))


def drain(q: ChunkQueue) -> list[Chunk]:
    return list(iter(q.take, None))


budgets = st.one_of(
    st.floats(1e-4, 100).map(lambda s: Budget(seconds=s)), st.integers(1, 10**7).map(lambda e: Budget(evals=e))
)


@given(st.lists(st.booleans(), min_size=1, max_size=700), budgets, st.integers(1, 64))
def test_every_row_is_handed_out_once_and_a_chunk_is_of_one_branch(
    agent: list[bool], budget: Budget, workers: int
) -> None:
    chunks = drain(queue(agent, budget, workers))
    assert sorted(r for c in chunks for r in c.row.tolist()) == list(range(len(agent)))
    for c in chunks:
        assert c.rows.game.tolist() == c.row.tolist()
        assert c.rows.agent.tolist() == [agent[r] for r in c.row]
        assert len(set(c.rows.agent.tolist())) == 1
        assert len(c.row) <= REPLAY_CHUNK
        if budget.seconds and c.rows.agent[0]:
            assert len(c.row) == 1 or len(c.row) * budget.seconds <= AGENT_CHUNK_S
    branches = [bool(c.rows.agent[0]) for c in chunks]
    assert branches == sorted(branches, reverse=True)  # agent rows first


def test_chunks_shrink_to_single_rows() -> None:
    for agent in (True, False):
        sizes = [len(c.row) for c in drain(queue([agent] * 3000, Budget(seconds=0.01)))]
        assert sizes == sorted(sizes, reverse=True)
        assert sizes[0] > 10
        assert sizes[-4:] == [1] * 4


def test_the_rows_of_a_lost_chunk_come_again_one_by_one() -> None:
    q = queue([True] * 100, Budget(seconds=0.01))
    first = q.take()
    assert first is not None
    assert len(first.row) > 1
    assert q.lost(first, "died", "g") == len(first.row)
    again = [q.take() for _ in first.row]
    assert [c.row.tolist() for c in again if c] == [[r] for r in first.row]
    assert all(c and c.search and c.attempt == 1 for c in again)


def test_a_row_lost_again_is_not_searched_any_more_and_in_the_end_fails_by_name() -> None:
    q = queue([True], Budget(seconds=0.01))
    searched = []
    with pytest.raises(TdLoopError, match=r"row 0 \(seed 3, turn 0, seat 0\) failed 4 times.*: died of it"):
        for _ in range(10):
            c = q.take()
            assert c is not None
            searched.append(c.search)
            q.lost(c, "died of it", "seed 3")
    assert searched == [True, True, False, False]


def lose_one(q: ChunkQueue) -> None:
    """The next row dies in both of its searches and then takes the replay's action."""
    for searched in (True, True, False):
        c = q.take()
        assert c is not None
        assert c.search == searched
        if searched:
            q.lost(c, "died", "g")
        else:
            q.done(c)


def test_when_most_searches_are_lost_the_rest_is_not_searched() -> None:
    q = queue([True] * 50, Budget(seconds=2.0), give_up_after=3)
    for _ in range(3):
        assert not q.gave_up
        lose_one(q)
    assert q.gave_up
    rest = drain(q)
    assert len(rest) == 47
    assert not any(c.search for c in rest)


def test_a_few_lost_searches_among_many_good_ones_do_not_stop_the_search() -> None:
    q = queue([True] * 50, Budget(seconds=2.0), give_up_after=3)
    for _ in range(30):
        c = q.take()
        assert c is not None
        q.done(c)
    for _ in range(10):
        lose_one(q)
    assert not q.gave_up


@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans()), min_size=1, max_size=60))
def test_rows_that_are_done_are_left_out_and_their_searches_count(rows: list[tuple[bool, bool, bool]]) -> None:
    agent, done, searched = (np.array(column) for column in zip(*rows, strict=True))
    q = queue(agent.tolist(), Budget(seconds=0.01), give_up_after=3)
    q.skip(done, searched)
    lost, decided = (agent & done & ~searched).sum(), (agent & done & searched).sum()
    assert q.gave_up is bool(lost >= 3 and lost > decided)
    assert sorted(r for c in drain(q) for r in c.row.tolist()) == np.flatnonzero(~done).tolist()


def test_the_time_limit_follows_the_budget() -> None:
    def limit(budget: Budget, agent: bool) -> float:
        q = queue([agent], budget, hang_grace_s=30)
        c = q.take()
        assert c is not None
        return q.limit_s(c)

    assert limit(Budget(seconds=5.0), agent=True) > 30 + 5.0
    assert limit(Budget(evals=10**6), agent=True) > 30 + 100
    assert limit(Budget(seconds=1000.0), agent=False) < 40
