"""tournament: idempotent, resumable to the same end, and deaf to a worker's death."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from td_loop.arena.contestants import Contestant, Kind
from td_loop.arena.rounds import Round
from td_loop.arena.sprt import Sprt, Verdict
from td_loop.arena.store import read_store
from td_loop.arena.tournament import Results, Tournament, run, score
from td_loop.errors import TdLoopError, UsageError
from tests.arena.agents import write_agent
from tests.arena.build import contestant, duel

ROOT = Path(__file__).parents[2]
Make = Callable[..., Tournament]
Weights = Callable[[int], Path]


def outcomes(rounds: tuple[Round, ...]) -> list[Any]:
    """What must not depend on when and by whom a game was played."""
    return [(g.fixture, g.shares, g.turns, g.faults, g.moves) for r in rounds for g in r.games]


def test_a_second_time_plays_nothing_and_says_the_same(tournament: Make, weights: Weights, tmp_path: Path) -> None:
    config = tournament(str(weights(1)), "rusher", str(write_agent(tmp_path, "one")))
    first = run(config)
    assert (first.played, first.known, len(first.rounds)) == (18, 0, 9)
    second = run(config)
    assert (second.played, second.known) == (0, 18)
    assert outcomes(second.rounds) == outcomes(first.rounds)
    more = run(replace(config, rounds=4))
    assert (more.played, more.known) == (6, 18)


def test_workers_change_the_time_only(tournament: Make, weights: Weights, tmp_path: Path) -> None:
    specs = (str(weights(1)), str(weights(2)), "random", "rusher")
    one = run(tournament(*specs, seats=4, store=tmp_path / "one"))
    two = run(tournament(*specs, seats=4, store=tmp_path / "two", workers=2))
    assert outcomes(one.rounds) == outcomes(two.rounds)


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGINT])
def test_a_stopped_one_goes_on_to_the_same_end(
    tournament: Make, weights: Weights, tmp_path: Path, signum: signal.Signals
) -> None:
    specs = [str(weights(1)), str(weights(2))]
    whole = run(tournament(*specs, rounds=150, store=tmp_path / "whole"))
    store = tmp_path / "stopped"
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "td_loop", "tournament", *specs, "--game", "tests.toy_game:GAME"),
            *("--rounds", "150", "--budget-evals", "3", "--workers", "2", "--store", str(store)),
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None and _games(store) < 10:
        time.sleep(0.01)
    process.send_signal(signum)
    _, said = process.communicate(timeout=60)
    assert process.returncode in (-signum, 128 + signum)
    assert 10 <= _games(store) < 300
    if signum == signal.SIGINT:
        assert "the same command goes on from there" in said
    results = run(tournament(*specs, rounds=150, store=store))
    assert results.known + results.played == 300
    assert 0 < results.played < 300
    assert outcomes(results.rounds) == outcomes(whole.rounds)


def _games(store: Path) -> int:
    return len(read_store(store)[1]) if store.exists() else 0


def test_a_worker_that_dies_costs_its_game_a_second_try(
    tournament: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ARENA_TEST_MARK", str(tmp_path / "mark"))
    results = _run_faulty(tournament, "dies_once")
    assert len(results.rounds) == 3
    assert "exit code 9" in capsys.readouterr().err


def test_an_error_of_our_own_ends_the_tournament_with_its_traceback(tournament: Make) -> None:
    with pytest.raises(TdLoopError, match=r"(?s)was lost 3 times.*our own bug"):
        _run_faulty(tournament, "raises")


def _run_faulty(tournament: Make, name: str) -> Results:
    faulty = Contestant(name, Kind.BUILT_IN, name, f"built-in:{name}")
    config = tournament("idle", "random", game="tests.arena.faulty:GAME")
    return run(replace(config, contestants=(config.contestants[0], faulty)))


def test_a_sequential_test_stops_early_and_at_the_same_round_whoever_plays(
    tournament: Make, tmp_path: Path
) -> None:
    flags: dict[str, Any] = {"sprt": Sprt(0, 100), "rounds": 400}
    one = run(tournament("rusher", "idle", **flags))
    assert one.sprt is not None
    assert one.sprt.verdict is Verdict.ACCEPTED
    assert len(one.rounds) == one.sprt.rounds < 40
    assert one.played < 100
    two = run(tournament("rusher", "idle", **flags, workers=2, store=tmp_path / "two"))
    assert two.sprt == one.sprt
    again = run(tournament("rusher", "idle", **flags))
    assert (again.played, again.sprt) == (0, one.sprt)
    other = run(tournament("idle", "rusher", **flags))
    assert other.sprt is not None
    assert other.sprt.verdict is Verdict.REJECTED


def test_a_sequential_test_of_four_seats(tournament: Make) -> None:
    results = run(tournament("rusher", "idle", seats=4, sprt=Sprt(0, 200), rounds=100))
    assert results.sprt is not None
    assert results.sprt.verdict is Verdict.ACCEPTED


def test_rounds_run_out(tournament: Make) -> None:
    results = run(tournament("random", "rusher", sprt=Sprt(0, 1), rounds=2))
    assert results.sprt is not None
    assert results.sprt.verdict is Verdict.UNDECIDED


def test_the_score_of_a_round() -> None:
    a, b = contestant("a"), contestant("b")
    assert score(duel(1, 1), a, b) == 1.0
    assert score(duel(1, 0.5), a, b) == 0.75
    assert score(duel(1, 0.5), b, a) == 0.25


@pytest.mark.parametrize(
    ("specs", "flags"),
    [
        (("idle",), {}),
        (("idle", "rusher"), {"focus": "random"}),
        (("idle", "rusher", "random"), {"sprt": Sprt(0, 10)}),
        (("idle", "rusher"), {"sprt": Sprt(0, 10), "focus": "idle"}),
    ],
)
def test_what_cannot_be_played_is_refused(tournament: Make, specs: tuple[str, ...], flags: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        tournament(*specs, **flags)
