"""outside: an agent of another program plays in a process of its own, and harms nobody but itself."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from td_loop.arena.outside import Fault, Limits, OutsideAgent, SeatLost
from td_loop.errors import UsageError
from tests.arena.agents import write_agent

OBS = {"player": 1, "land": [3, 3], "troops": [6, 6]}
CONFIG = {"turns": 18}


def answer(folder: Path, name: str, limits: Limits | None = None) -> object:
    with OutsideAgent(write_agent(folder, name), limits or Limits()) as agent:
        return agent.ask(OBS, CONFIG)[0]


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("one", [[1, 1]]),
        ("two", [[1, 1]]),
        ("last", [[1, 1]]),
        ("decoy", [[1, 2]]),
        ("nothing", None),
        ("array", [[1, 1]]),
    ],
)
def test_it_answers(tmp_path: Path, name: str, wanted: object) -> None:
    assert answer(tmp_path, name) == wanted


def test_it_finds_what_lies_beside_it(tmp_path: Path) -> None:
    (tmp_path / "neighbour.py").write_text("def say(obs):\n    return [[obs.player, 7]]\n")
    (tmp_path / "data.txt").write_text("")
    assert answer(tmp_path, "beside") == [[1, 7]]


@pytest.mark.parametrize(
    ("name", "fault", "text"),
    [
        ("raises", Fault.CRASH, "ValueError: no idea"),
        ("exits", Fault.CRASH, "SystemExit: 3"),
        ("dies", Fault.CRASH, "signal SIGKILL"),
        ("deaf", Fault.CRASH, "its process ended"),
        ("scribbles", Fault.INVALID, "its answer cannot be read"),
        ("syntax", Fault.CRASH, "SyntaxError"),
        ("empty", Fault.CRASH, "has no function agent"),
        ("odd", Fault.INVALID, "cannot hold a object"),
    ],
)
def test_what_it_does_wrong_costs_it_the_game(tmp_path: Path, name: str, fault: Fault, text: str) -> None:
    with pytest.raises(SeatLost, match=text) as lost:
        answer(tmp_path, name)
    assert lost.value.fault is fault


def test_its_memory_is_limited(tmp_path: Path) -> None:
    with pytest.raises(SeatLost, match="MemoryError"):
        answer(tmp_path, "hungry", Limits(memory_mb=300))
    assert answer(tmp_path, "hungry", Limits(memory_mb=1000)) == [[0, 400_000_000]]


def test_slow_moves_use_up_the_extra_time_of_a_game(tmp_path: Path) -> None:
    limits = Limits(act_timeout_s=0.05, overage_s=0.5)
    with OutsideAgent(write_agent(tmp_path, "slow"), limits) as agent:
        _, seconds = agent.ask(OBS, CONFIG)
        assert agent.overage_s == pytest.approx(0.5 - (seconds - 0.05))
        with pytest.raises(SeatLost, match="took 0") as lost:
            for _ in range(4):
                agent.ask(OBS, CONFIG)
        assert lost.value.fault is Fault.TIMEOUT


def test_one_that_never_answers_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("td_loop.arena.outside.LATE_S", 0.5)
    with pytest.raises(SeatLost, match="no answer") as lost:
        answer(tmp_path, "hangs", Limits(act_timeout_s=0.1, overage_s=0.0))
    assert lost.value.fault is Fault.TIMEOUT


def test_it_remembers_within_a_game_and_forgets_between_two(tmp_path: Path) -> None:
    path = write_agent(tmp_path, "counting")
    for _ in range(2):
        with OutsideAgent(path, Limits()) as agent:
            assert [agent.ask(OBS, CONFIG)[0] for _ in range(3)] == [[[1, 1]], [[1, 2]], [[1, 3]]]


def test_its_process_starts_without_our_libraries(tmp_path: Path) -> None:
    path = tmp_path / "modules.py"
    path.write_text("import sys\n\ndef agent(obs):\n    return [m in sys.modules for m in obs['modules']]\n")
    with OutsideAgent(path, Limits()) as agent:
        assert agent.ask({"modules": ["numpy", "numba", "torch"]}, {})[0] == [False, False, False]


def test_its_process_ends_with_ours(tmp_path: Path) -> None:
    path = tmp_path / "pid.py"
    path.write_text("import os\n\ndef agent(obs):\n    return [os.getpid()]\n")
    program = (
        "import os, sys; from pathlib import Path; from td_loop.arena.outside import *\n"
        "agent = OutsideAgent(Path(sys.argv[1]), Limits())\n"
        "print(agent.ask({}, {})[0][0], flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=False)
    pid = int(done.stdout)
    deadline = time.monotonic() + 20
    while _runs(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not _runs(pid)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()  # nobody may be there to collect it


@pytest.mark.parametrize("flags", [{"act_timeout_s": 0.0}, {"overage_s": -1.0}, {"memory_mb": 1}])
def test_limits_out_of_range_are_refused(flags: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        Limits(**flags)  # type: ignore[arg-type]
