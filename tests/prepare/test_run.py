"""run: prepare from end to end, with workers that behave and workers that do not."""

from __future__ import annotations

import json
from collections import Counter
from math import inf, nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from td_loop.errors import ReplayError, TdLoopError, UsageError, WeightsError
from td_loop.files import sha256
from td_loop.games.base import Budget
from td_loop.prepare.config import WorkerPolicy, search_budget
from td_loop.prepare.split import validation_games
from td_loop.value.io import save_weights
from td_loop.value.model import SplineValue
from tests.prepare import faulty
from tests.prepare.conftest import Arrays, Run
from tests.toy_game import GAME, ToyReplays, play


def poison(arrays: Arrays, replays: ToyReplays) -> np.ndarray[Any, Any]:
    """bool[n_a]: agent rows in which the faulty games misbehave."""
    ids = {replays.games[g].frame_id(t): (g, t) for g in range(40) for t in range(replays.games[g].n_frames)}
    return np.array(
        [
            faulty.poisoned(replays.state(*ids[f]), s)
            for f, s in zip(arrays["branch_a_frame_id"].tolist(), arrays["branch_a_focal_seat"], strict=True)
        ]
    )


def assert_equal(a: Arrays, b: Arrays, *, but: tuple[str, ...] = ()) -> None:
    assert a.keys() == b.keys()
    for name in a.keys() - set(but):
        assert a[name].tobytes() == b[name].tobytes(), name


def test_the_file_has_the_arrays_and_types_of_the_contract(run: Run, weights: Path, replays: ToyReplays) -> None:
    arrays, meta, report = run(seed=3, iter_index=2, k=0.4, workers=2)
    f, n_r, n_a = len(GAME.feature_names), report.n_r, report.n_a
    assert n_r + n_a == 60  # I1
    expected = {"branch_a_engine_fallback": ("bool", (n_a,))}
    for b, n in (("r", n_r), ("a", n_a)):
        expected |= {
            f"branch_{b}_frame_id": ("int64", (n,)),
            f"branch_{b}_focal_seat": ("int8", (n,)),
            f"branch_{b}_n_players": ("int8", (n,)),
            f"branch_{b}_features": ("float32", (n, 4, f)),
            f"branch_{b}_target": ("float32", (n, 4)),
            f"alive_at_s_for_rows_{b}": ("bool", (n, 4)),
            f"branch_{b}_is_partial": ("bool", (n,)),
            f"branch_{b}_has_mc": ("bool", (n,)),
            f"branch_{b}_mc_target": ("float32", (n, 4)),
        }
    assert {name: (a.dtype.name, a.shape) for name, a in arrays.items()} == expected
    wall, counts = meta.pop("wall_s"), meta.pop("workers")
    assert wall > 0
    assert [sorted(c) for c in counts] == [["fallbacks", "retries", "rows"]] * 2
    assert sum(c["rows"] for c in counts) == 60
    assert meta == {
        "kind": "branch_data",
        "format_version": 1,
        "n": 60,
        "k": 0.4,
        "seed": 3,
        "iter_index": 2,
        "v_snap_sha256": sha256(weights),
        "game": "toy",
        "gamma": 0.97,
        "feature_names": list(GAME.feature_names),
        "replay_set_hash": replays.content_hash,
        "budget": {"seconds": None, "evals": 3},
        "partial_input_p": 0.5,
        "mc_target_p": 0.5,
        "engine_fallback_rate": 0.0,
        "n_r": n_r,
        "n_a": n_a,
    }


def test_any_number_of_workers_gives_the_same_bytes(run: Run) -> None:
    one, two, five = (run(workers=w, n=200)[0] for w in (1, 2, 5))
    assert_equal(one, two)
    assert_equal(one, five)


def test_iteration_i_of_seed_s_is_iteration_0_of_seed_s_plus_i(run: Run) -> None:
    a, b, other = run(seed=3, iter_index=4)[0], run(seed=7)[0], run(seed=3)[0]
    assert_equal(a, b)
    assert a["branch_r_frame_id"].tolist() != other["branch_r_frame_id"].tolist()


def test_rows_are_of_training_games_alone_and_never_of_a_last_frame(run: Run, replays: ToyReplays) -> None:
    arrays, _, _ = run(n=1000, budget=Budget(evals=1))
    held = validation_games(replays.games, replays.content_hash)
    allowed = {
        g.frame_id(t) for g, v in zip(replays.games, held, strict=True) if not v for t in range(g.n_frames - 1)
    }
    for b in ("r", "a"):
        assert set(arrays[f"branch_{b}_frame_id"].tolist()) <= allowed


@pytest.mark.parametrize(("k", "n_a"), [(0.0, 0), (1.0, 12)])
def test_k_of_zero_and_of_one(run: Run, k: float, n_a: int) -> None:
    arrays, meta, report = run(k=k, n=12)
    assert (report.n_r, report.n_a) == (12 - n_a, n_a)
    assert meta["engine_fallback_rate"] == 0.0
    assert len(arrays["branch_a_target"]) == n_a


@pytest.mark.parametrize("p", [0.0, 1.0])
def test_p_of_zero_and_of_one(run: Run, p: float) -> None:
    arrays, _, _ = run(partial_input_p=p, mc_target_p=p)
    for b in ("r", "a"):
        assert arrays[f"branch_{b}_is_partial"].any() == bool(p)
        assert arrays[f"branch_{b}_has_mc"].any() == bool(p)


def test_fewer_rows_than_workers(run: Run) -> None:
    arrays, meta, _ = run(n=1, workers=5)
    assert len(arrays["branch_r_target"]) + len(arrays["branch_a_target"]) == 1
    assert len(meta["workers"]) == 1


def test_a_wall_clock_budget_decides_every_row(run: Run) -> None:
    _, meta, report = run(n=8, k=1.0, budget=Budget(seconds=0.02))
    assert report.fallbacks == 0
    assert meta["budget"] == {"seconds": 0.02, "evals": None}


# --- workers that do not behave ---------------------------------------------------------------------------


def test_rows_that_kill_their_worker_once_are_tried_again_and_lose_nothing(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(faulty.MARKS, str(tmp_path))
    arrays, meta, report = run(game="DIES_ONCE", n=100, k=1.0)
    assert report.retries > 0
    assert report.fallbacks == 0
    assert sum(w["retries"] for w in meta["workers"]) == report.retries
    assert_equal(arrays, run(n=100, k=1.0)[0])


@pytest.mark.parametrize(("game", "grace", "seed"), [("DIES", 20.0, 0), ("HANGS", 2.0, 1)])
def test_rows_that_always_lose_their_worker_fall_back_and_take_no_others_along(
    run: Run, replays: ToyReplays, capfd: pytest.CaptureFixture[str], game: str, grace: float, seed: int
) -> None:
    arrays, meta, report = run(game=game, n=12, k=1.0, seed=seed, policy=WorkerPolicy(hang_grace_s=grace))
    bad = poison(arrays, replays)
    assert 0 < bad.sum() < 12
    np.testing.assert_array_equal(arrays["branch_a_engine_fallback"], bad)
    assert meta["engine_fallback_rate"] == pytest.approx(bad.mean())
    assert report.fallbacks == bad.sum() == sum(w["fallbacks"] for w in meta["workers"])
    good = run(n=12, k=1.0, seed=seed)[0]
    np.testing.assert_array_equal(arrays["branch_a_target"][~bad], good["branch_a_target"][~bad])
    assert "rows were lost and are tried again" in capfd.readouterr().err


def test_a_search_that_always_kills_is_given_up(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(
        TdLoopError, match=r"none of the 20 agent rows was decided.*its worker died .*SIGKILL.*--k 0"
    ):
        run(game="DIES_ALWAYS", n=20, k=1.0, policy=WorkerPolicy(give_up_after=1))
    assert "WARNING: most searches kill or block their worker" in capfd.readouterr().err


def test_a_search_that_raises_falls_back_and_its_traceback_is_shown_once(
    run: Run, replays: ToyReplays, capfd: pytest.CaptureFixture[str]
) -> None:
    arrays, _, report = run(game="RAISES", n=100, k=1.0)
    np.testing.assert_array_equal(arrays["branch_a_engine_fallback"], poison(arrays, replays))
    assert report.retries == 0
    err = capfd.readouterr().err
    assert err.count("Traceback") == 1
    assert f"{report.fallbacks} of 100 searches gave no decision: ZeroDivisionError" in err
    assert "WARNING" not in err


@pytest.mark.parametrize(
    ("game", "cause"),
    [
        ("RAISES_ALWAYS", "ZeroDivisionError in .*faulty.py"),
        ("UNDECIDED_ALWAYS", "the search evaluated no candidate"),
    ],
)
def test_a_search_that_decides_nothing_ends_the_run_with_its_cause_and_a_second_try_searches_again(
    run: Run, tmp_path: Path, game: str, cause: str
) -> None:
    with pytest.raises(
        TdLoopError, match=rf"none of the \d+ agent rows was decided.*Most frequent cause: {cause}"
    ):
        run(game=game, n=40)
    assert not list(tmp_path.glob("branch_data*"))
    assert run(n=40)[2].fallbacks == 0


def test_without_agent_rows_none_need_be_decided(run: Run) -> None:
    assert run(game="RAISES_ALWAYS", n=10, k=0.0)[2].n_a == 0


def test_kernels_that_workers_had_to_compile_are_named_once(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    run(game="COMPILES", n=100, k=0.0)
    err = capfd.readouterr().err
    assert err.count("workers compile kernels") == 1
    assert "forgotten" in err


def test_a_row_that_can_never_be_computed_ends_the_run_by_name_and_leaves_no_file(
    run: Run, tmp_path: Path
) -> None:
    with pytest.raises(TdLoopError, match=r"(?s)\(seed \d+, turn \d, seat \d\) failed 4 times.*is nan"):
        run(game="BAD_FEATURES")
    assert not list(tmp_path.glob("*.npz*"))


@pytest.mark.parametrize(("game", "words"), [("BAD_START", "no search today"), ("DEAD_START", "SIGKILL")])
def test_workers_that_cannot_start_end_the_run(run: Run, game: str, words: str) -> None:
    with pytest.raises(TdLoopError, match=words):
        run(game=game)


# --- input that cannot be used ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "flags",
    [
        {"k": 1.5},
        {"k": -0.1},
        {"k": float("nan")},
        {"partial_input_p": 2.0},
        {"mc_target_p": -1.0},
        {"n": 0},
        {"workers": 0},
        {"seed": -1},
        {"iter_index": -1},
    ],
    ids=str,
)
def test_values_out_of_range_are_refused_by_flag_with_the_range(run: Run, flags: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"^--[a-z-]+ \S+: must (be|lie)"):
        run(**flags)


@pytest.mark.parametrize(
    ("seconds", "evals", "flag"),
    [(0.0, None, "budget-s"), (nan, None, "budget-s"), (inf, None, "budget-s"), (0.2, 0, "budget-evals")],
)
def test_a_budget_out_of_range_is_refused_by_flag(seconds: float, evals: int | None, flag: str) -> None:
    with pytest.raises(UsageError, match=f"^--{flag} .*: must be "):
        search_budget(seconds, evals)


def test_weights_of_another_game_or_other_features_are_refused(
    run: Run, value: SplineValue, tmp_path: Path
) -> None:
    path = tmp_path / "other.npz"
    save_weights(path, SplineValue(value.knots, value.coef, value.feature_names, {"game": "chess", "gamma": 0.9}))
    with pytest.raises(WeightsError, match=r"other\.npz: made for the game 'chess', not 'toy'"):
        run(weights=path)
    names = (*value.feature_names[:-1], "danger")
    save_weights(path, SplineValue(value.knots, value.coef, names, {"game": "toy", "gamma": 0.9}))
    with pytest.raises(WeightsError, match=r"other\.npz.*danger"):
        run(weights=path)
    with pytest.raises(WeightsError, match=r"none\.npz: no such file"):
        run(weights=tmp_path / "none.npz")


def test_more_rows_than_memory_are_refused_before_the_work(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("td_loop.prepare.run.available_memory", lambda: 100_000)
    with pytest.raises(UsageError, match=r"--n 1000: needs .* GB of memory, .* give a smaller --n"):
        run(n=1000)


def test_a_failed_run_leaves_the_old_file_as_it_was(run: Run, tmp_path: Path) -> None:
    old = tmp_path / "branch_data.npz"
    old.write_bytes(b"of yesterday")
    with pytest.raises(TdLoopError):
        run(game="BAD_FEATURES")
    assert old.read_bytes() == b"of yesterday"


@pytest.mark.parametrize("content", ["[]", "{", "null"])
def test_a_replay_set_without_games_is_refused(run: Run, tmp_path: Path, content: str) -> None:
    (tmp_path / "games.json").write_text(content)
    with pytest.raises(ReplayError, match=r"games\.json"):
        run(replays=tmp_path / "games.json")


def test_games_that_one_seat_always_wins_are_warned_of(
    run: Run, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    won = Counter[int]()
    seeds = []
    for seed in range(0, 300, 3):  # games of two seats
        outcome = GAME.outcome(play(seed)[0][-1])
        if seed % 7 != 5 and outcome[1] == 1.0:
            seeds.append(seed)
            won[1] += 1
    (tmp_path / "games.json").write_text(json.dumps(seeds))
    run(replays=tmp_path / "games.json", k=0.0, n=20)
    assert f"seat 1 wins all {won[1]} games of 2 seats" in capfd.readouterr().err


def test_games_without_a_known_outcome_still_give_td_rows(
    run: Run, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "games.json").write_text("[5, 12, 19]")
    arrays, _, _ = run(replays=tmp_path / "games.json", n=20)
    assert not arrays["branch_r_has_mc"].any()
    assert "no game has a known outcome" in capfd.readouterr().err
