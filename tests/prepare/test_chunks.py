"""A prepare that is killed goes on from its finished chunks, and ends with the bytes of one that was not."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from td_loop.errors import CacheError, Interrupted, StorageError, TdLoopError
from td_loop.games.base import Budget
from td_loop.journal import Journal, read_records
from td_loop.npz import load_npz
from td_loop.prepare import run as run_module
from td_loop.prepare.chunks import ChunkKeeper, chunks_path
from td_loop.prepare.config import PrepareConfig, WorkerPolicy
from td_loop.prepare.run import prepare
from td_loop.value.io import save_weights
from td_loop.value.model import SplineValue
from tests.prepare.conftest import Arrays, Run
from tests.prepare.test_run import assert_equal

FLAGS: dict[str, Any] = {"n": 120, "k": 0.5}


@pytest.fixture
def chunks(tmp_path: Path) -> Path:
    """Where `run` keeps its chunks."""
    return chunks_path(tmp_path / "branch_data.npz")


@pytest.fixture
def stop(monkeypatch: pytest.MonkeyPatch, run: Run) -> Callable[..., None]:
    """Run prepare and stop it when `after` chunks are kept."""

    def stop(after: int, **flags: Any) -> None:
        kept, keep = [0], ChunkKeeper.keep

        def keep_or_stop(self: ChunkKeeper, chunk: Any) -> None:
            if kept[0] == after:
                raise Interrupted(signal.SIGTERM)
            kept[0] += 1
            keep(self, chunk)

        with monkeypatch.context() as m, pytest.raises(Interrupted):
            m.setattr(ChunkKeeper, "keep", keep_or_stop)
            run(**FLAGS | flags)

    return stop


@pytest.fixture(scope="module")
def whole(weights: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Arrays, bytes]:
    """What an undisturbed run writes, and its chunks."""
    folder = tmp_path_factory.mktemp("whole")
    out, kept, remove = folder / "branch_data.npz", list[bytes](), ChunkKeeper.remove

    def read_and_remove(keeper: ChunkKeeper) -> None:
        kept.append(keeper.path.read_bytes())
        remove(keeper)

    with pytest.MonkeyPatch.context() as m:
        m.setattr(ChunkKeeper, "remove", read_and_remove)
        prepare(
            PrepareConfig(weights, out, budget=Budget(evals=3), game="tests.toy_game:GAME", cache=folder, **FLAGS)
        )
    return load_npz(out)[0], kept[0]


@pytest.mark.parametrize(("before", "after", "kept"), [(1, 1, 0), (2, 1, 1), (1, 5, 20), (5, 2, 40)])
def test_any_number_of_workers_before_and_after_gives_the_same_bytes(
    run: Run,
    stop: Callable[..., None],
    whole: tuple[Arrays, bytes],
    chunks: Path,
    before: int,
    after: int,
    kept: int,
) -> None:
    stop(kept, workers=before)
    assert len(list(read_records(chunks))) == 1 + kept
    arrays, meta, report = run(workers=after, **FLAGS)
    assert not chunks.exists()
    assert sum(w["rows"] for w in meta["workers"]) == 120
    assert meta["wall_s"] == report.wall_s
    assert_equal(arrays, whole[0])


def test_chunks_cut_or_damaged_anywhere_give_the_same_bytes(
    run: Run, whole: tuple[Arrays, bytes], chunks: Path
) -> None:
    arrays, kept = whole
    flipped = bytearray(kept)
    flipped[len(kept) // 3] ^= 1
    for left in (kept[:30], kept[: len(kept) // 2], kept[:-1], bytes(flipped)):
        chunks.write_bytes(left)
        assert_equal(run(**FLAGS)[0], arrays)


def test_finished_chunks_are_not_computed_again(
    run: Run, whole: tuple[Arrays, bytes], chunks: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    chunks.write_bytes(whole[1])
    arrays, meta, _ = run(game="BAD_START", **FLAGS)  # no worker of this game can start
    assert_equal(arrays, whole[0])
    assert [w["rows"] for w in meta["workers"]] == [120]
    assert f"prepare: going on from 120 of 120 rows in {chunks}\n" in capfd.readouterr().err


def test_counts_and_seconds_of_the_killed_run_are_kept(
    run: Run, stop: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TD_LOOP_TEST_MARKS", str(tmp_path))
    clock = SimpleNamespace(monotonic=iter(range(0, 10**6, 1000)).__next__)  # a thousand seconds a chunk
    monkeypatch.setattr(run_module, "time", clock)
    stop(30, game="DIES_ONCE")
    _, meta, report = run(**FLAGS)
    assert report.retries == sum(w["retries"] for w in meta["workers"]) > 0
    assert report.wall_s > 30 * 1000


def test_searches_that_were_given_up_stay_so(
    run: Run, stop: Callable[..., None], capfd: pytest.CaptureFixture[str]
) -> None:
    policy = WorkerPolicy(give_up_after=1, hang_grace_s=20.0)
    stop(20, game="DIES_ALWAYS", policy=policy, n=40, k=1.0)
    assert "were lost" in capfd.readouterr().err
    with pytest.raises(TdLoopError, match="none of the 40 agent rows was decided"):
        run(game="DIES_ALWAYS", policy=policy, n=40, k=1.0)
    assert "were lost" not in capfd.readouterr().err


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"n": 121}, "n 120, now it is 121, other rows"),
        ({"k": 0.4}, "k 0.5, now it is 0.4, other rows"),
        ({"seed": 1}, "seed 0, now it is 1, other rows"),
        ({"iter_index": 1}, "iter_index 0, now it is 1, other rows"),
        (
            {"budget": Budget(evals=4)},
            "budget {'seconds': None, 'evals': 3}, now it is {'seconds': None, 'evals': 4}",
        ),
        ({"partial_input_p": 0.25}, "partial_input_p 0.5, now it is 0.25"),
        ({"mc_target_p": 0.25}, "mc_target_p 0.5, now it is 0.25"),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, dict) else "",
)
def test_chunks_of_other_flags_are_said_in_one_line_and_not_used(
    run: Run,
    stop: Callable[..., None],
    chunks: Path,
    capfd: pytest.CaptureFixture[str],
    flags: dict[str, Any],
    words: str,
) -> None:
    stop(2)
    capfd.readouterr()
    run(**FLAGS | flags)
    line = f"prepare: {chunks}: starting anew: the chunks there were made with {words}\n"
    assert capfd.readouterr().err == line


def test_chunks_of_other_weights_or_kernels_are_not_used(
    run: Run,
    stop: Callable[..., None],
    value: SplineValue,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    other = tmp_path / "other.npz"
    save_weights(other, SplineValue(value.knots, -value.coef, value.feature_names, dict(value.meta)))
    stop(5)
    run(weights=other, **FLAGS)
    assert "v_snap_sha256 " in (err := capfd.readouterr().err)
    assert err.count("\n") == 1
    stop(5)
    monkeypatch.setattr(run_module, "sources_hash", lambda: "0123")
    run(**FLAGS)
    assert "now it is '0123'" in capfd.readouterr().err


def test_a_file_that_is_not_ours_is_refused_and_left_alone(run: Run, chunks: Path) -> None:
    chunks.write_text("my notes")
    with pytest.raises(CacheError, match=r"branch_data\.chunks: is not a journal"):
        run(**FLAGS)
    assert chunks.read_text() == "my notes"


def test_a_full_disk_stops_it_and_what_was_kept_is_used_later(
    run: Run, whole: tuple[Arrays, bytes], chunks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append, kept = Journal.append, [0]

    def append_until_full(self: Journal, payload: bytes) -> None:
        kept[0] += 1
        if kept[0] <= 10:
            append(self, payload)
            return
        with monkeypatch.context() as m:
            m.setattr(os, "write", lambda fd, data: (_ for _ in ()).throw(OSError(errno.ENOSPC, "No space left")))
            append(self, payload)

    with monkeypatch.context() as m, pytest.raises(StorageError, match=r"branch_data\.chunks: No space left"):
        m.setattr(Journal, "append", append_until_full)
        run(**FLAGS)
    assert len(list(read_records(chunks))) == 11
    assert_equal(run(**FLAGS)[0], whole[0])


def test_a_run_that_fails_on_one_row_keeps_the_others(run: Run, whole: tuple[Arrays, bytes], chunks: Path) -> None:
    with pytest.raises(TdLoopError, match="is nan"):
        run(game="BAD_FEATURES", **FLAGS)
    assert len(list(read_records(chunks))) > 1
    assert_equal(run(**FLAGS)[0], whole[0])


def test_chunks_that_cannot_be_removed_are_warned_of(
    run: Run,
    whole: tuple[Arrays, bytes],
    chunks: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def refuse(self: Journal) -> None:
        raise StorageError(f"cannot write {self.path}: Permission denied")

    with monkeypatch.context() as m:
        m.setattr(Journal, "remove", refuse)
        run(**FLAGS)
    assert "prepare: warning: cannot write" in capfd.readouterr().err
    assert chunks.exists()
    assert_equal(run(**FLAGS)[0], whole[0])
    assert not chunks.exists()


def test_sigkill_of_the_whole_group_loses_what_was_not_finished_and_no_more(
    run: Run, weights: Path, tmp_path: Path, chunks: Path
) -> None:
    command = [sys.executable, "-m", "td_loop", "prepare", "--game", "tests.toy_game:GAME"]
    command += ["--weights", str(weights)]
    command += ["--out", str(tmp_path / "branch_data.npz"), "--cache-dir", str(tmp_path), "--workers", "2"]
    command += ["--n", "1500", "--k", "0.5", "--budget-evals", "3"]
    root = Path(__file__).parents[2]
    env = {**os.environ, "PYTHONPATH": str(root)}
    for _ in range(2):
        process = subprocess.Popen(command, cwd=root, env=env, start_new_session=True)
        before = len(list(read_records(chunks)))
        until = time.monotonic() + 60
        while len(list(read_records(chunks))) < before + 12 and process.poll() is None:
            assert time.monotonic() < until
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert len(list(read_records(chunks))) >= 12
    flags = {"n": 1500, "k": 0.5, "workers": 2}
    arrays = run(**flags)[0]
    assert sum(w["rows"] for w in load_npz(tmp_path / "branch_data.npz")[1]["workers"]) == 1500
    assert_equal(arrays, run(**flags)[0])
