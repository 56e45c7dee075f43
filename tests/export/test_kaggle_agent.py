"""kaggle_agent: an answer in time whatever the child process does."""

from __future__ import annotations

import gc
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from td_loop.games.orbit_wars.kaggle_agent import LATENCY, RESERVE, planned
from tests.export.fakes import OBEDIENT, RULES_MOVE, fake_submission, observation

QUICK = {"actTimeout": 0.3, "episodeSteps": 500}
REAL = {"actTimeout": 1.0, "episodeSteps": 500}


def is_rules(moves: list[list[Any]]) -> bool:
    return [(move[0], move[2]) for move in moves] == [RULES_MOVE]


def test_what_the_search_decides_is_played(tmp_path: Path) -> None:
    agent = fake_submission(tmp_path, OBEDIENT)
    assert [agent(observation(step), REAL) for step in (1, 2, 3)] == [[[0, 0.5, step]] for step in (1, 2, 3)]


def test_moves_that_are_no_launch_are_left_out(tmp_path: Path) -> None:
    moves = [[0, 0.5, 0], [0, float("nan"), 5], [1, 0.5, 5], [0, 0.5, 60], [0, 0.5, 60], [7, 0.5, 1]]
    worker = f"nan = float('nan')\nsay(ready=True)\nfor r in requests(): say(number=r['number'], moves={moves})"
    assert fake_submission(tmp_path, worker)(observation(1), REAL) == [[0, 0.5, 60]]


def test_the_rule_plays_until_the_search_is_ready(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    worker = "while not os.path.exists('go'): time.sleep(0.01)\n" + OBEDIENT
    agent = fake_submission(tmp_path, worker)
    assert is_rules(agent(observation(0, overage=RESERVE), QUICK))
    assert "the rule plays: the search is not ready" in capsys.readouterr().err
    (tmp_path / "go").touch()
    assert agent(observation(2), REAL) == [[0, 0.5, 2]]


def test_overage_is_spent_on_getting_ready_but_for_the_reserve(tmp_path: Path) -> None:
    agent = fake_submission(tmp_path, "time.sleep(1.5)\n" + OBEDIENT)
    assert agent(observation(1, overage=RESERVE + 60.0), QUICK) == [[0, 0.5, 1]]


def test_a_late_answer_is_not_played_a_turn_later(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    worker = """
say(ready=True)
for r in requests():
    while r["obs"]["step"] == 1 and not os.path.exists("go"):
        time.sleep(0.01)
    say(number=r["number"], moves=[[0, 0.5, r["obs"]["step"]]])
"""
    agent = fake_submission(tmp_path, worker)
    assert is_rules(agent(observation(1, overage=1.0), {**REAL, "actTimeout": 2.0}))
    assert "the search is late" in capsys.readouterr().err
    (tmp_path / "go").touch()
    assert agent(observation(2), REAL) == [[0, 0.5, 2]]


def test_a_child_that_ends_is_started_anew(tmp_path: Path) -> None:
    worker = """
say(ready=True)
for r in requests():
    if n_starts == 1:
        os._exit(1)
    say(number=r["number"], moves=[[0, 0.5, 9]])
"""
    agent = fake_submission(tmp_path, worker)
    assert is_rules(agent(observation(1), REAL))
    assert agent(observation(2), REAL) == [[0, 0.5, 9]]


def test_a_child_that_always_ends_is_given_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    agent = fake_submission(tmp_path, "os._exit(1)")
    assert all(is_rules(agent(observation(step), REAL)) for step in range(8))
    assert len((tmp_path / "starts").read_text()) == 4
    assert "the search ended too often" in capsys.readouterr().err


@pytest.mark.parametrize("line", ["no json", "[1, 2]", '{"number": 1}', '{"number": 1, "moves": 7}'])
def test_an_answer_that_makes_no_sense_never_raises(tmp_path: Path, line: str) -> None:
    worker = f"say(ready=True)\nfor r in requests(): print({line!r}, flush=True)"
    agent = fake_submission(tmp_path, worker)
    assert all(isinstance(agent(observation(step, overage=1.0), QUICK), list) for step in (1, 2))


def test_a_python_that_cannot_be_started_leaves_the_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", str(tmp_path / "nowhere"))
    assert is_rules(fake_submission(tmp_path, OBEDIENT)(observation(1), REAL))


def test_seats_that_are_dead_still_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    worker = "say(ready=True)\nfor r in requests(): say(number=r['number'], error=f\"seats {r['n_players']}\")"
    agent = fake_submission(tmp_path, worker)
    four = [*observation(0)["planets"], [3, 3, 90.0, 10.0, 2.0, 1, 1]]
    for obs in (observation(0, planets=four), observation(1), observation(0)):  # the last is of another game
        agent(obs, REAL)
    said = capsys.readouterr().err.splitlines()
    assert said == [f"the rule plays: seats {n}" for n in (4, 4, 2)]


def test_the_child_ends_with_the_game(tmp_path: Path) -> None:
    worker = OBEDIENT.replace("say(ready=True)", "open('pid', 'w').write(str(os.getpid()))\nsay(ready=True)")
    agent = fake_submission(tmp_path, worker)
    assert agent(observation(18), {**REAL, "episodeSteps": 20}) == [[0, 0.5, 18]]
    assert not Path("/proc", (tmp_path / "pid").read_text()).exists()


def test_the_child_ends_with_its_agent(tmp_path: Path) -> None:
    worker = OBEDIENT.replace("say(ready=True)", "open('pid', 'w').write(str(os.getpid()))\nsay(ready=True)")
    agent = fake_submission(tmp_path, worker)
    agent(observation(1), REAL)
    assert Path("/proc", (tmp_path / "pid").read_text()).exists()
    del agent
    gc.collect()
    assert not Path("/proc", (tmp_path / "pid").read_text()).exists()


def test_a_long_observation_gets_through(tmp_path: Path) -> None:
    agent = fake_submission(tmp_path, OBEDIENT)
    fleets = [[i, 1, 5.0, 5.0, 0.123456789012345, 2, 1] for i in range(5000)]
    assert agent(observation(1, fleets=fleets), {**REAL, "actTimeout": 10.0}) == [[0, 0.5, 1]]


@given(st.floats(0.0, 5.0), st.floats(0.0, 60.0), st.integers(1, 500))
def test_plans_keep_to_what_is_free_and_a_share_of_the_overage(act: float, overage: float, left: int) -> None:
    plan = planned(act, overage, left)
    assert 0.0 <= plan <= act + max(0.0, overage - RESERVE) / left
    assert plan <= planned(act, overage + 1.0, left)
    if act >= 1.0 and overage <= RESERVE:
        assert plan <= act - LATENCY
    assert planned(act, 0.0, left) == 0.0


def test_no_overage_leaves_the_rule_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    agent = fake_submission(tmp_path, OBEDIENT)
    agent(observation(1), REAL)
    began = time.monotonic()
    assert is_rules(agent(observation(2, overage=0.0), REAL))
    assert "the clock runs short" in capsys.readouterr().err
    assert time.monotonic() - began < 1.0  # generous: milliseconds are needed


def test_it_finds_its_folder_when_the_loader_does_not_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_submission(tmp_path / "here", OBEDIENT)
    monkeypatch.setattr("sys.path", ["/nowhere", str(tmp_path / "here")])
    names: dict[str, Any] = {}
    exec(compile((tmp_path / "here" / "main.py").read_text(), "<string>", "exec"), names)
    assert names["HERE"] == tmp_path / "here"
    assert [v for v in names.values() if callable(v)][-1] is names["agent"]
