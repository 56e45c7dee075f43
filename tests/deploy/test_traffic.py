"""The split of traffic, as several processes and threads see it."""

from __future__ import annotations

import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from td_loop.deploy.traffic import FILE, Traffic, TrafficState
from td_loop.errors import DataError, UsageError


def test_a_new_folder_sends_everything_to_the_stable_policy(tmp_path: Path) -> None:
    assert Traffic.open(tmp_path / "deploy").read() == TrafficState()


@given(weight=st.integers(0, 10_000), revision=st.integers(0, 2**16 - 1), shadow=st.booleans())
def test_what_is_written_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, weight: int, revision: int, shadow: bool
) -> None:
    traffic = Traffic.open(tmp_path_factory.mktemp("traffic"))
    wanted = TrafficState(0, weight, revision, shadow)
    assert traffic.change(lambda _: wanted) == replace(wanted, generation=1)
    assert traffic.set(0) == TrafficState(2, 0, revision, shadow)
    traffic.close()


@pytest.mark.parametrize("weight", [-1, 10_001])
def test_a_weight_out_of_range_is_refused_and_changes_nothing(tmp_path: Path, weight: int) -> None:
    traffic = Traffic.open(tmp_path)
    with pytest.raises(UsageError, match=r"0\.\.10000"):
        traffic.set(weight)
    assert traffic.read() == TrafficState()


def test_another_process_sees_a_change_at_once_and_keeps_it(tmp_path: Path) -> None:
    traffic = Traffic.open(tmp_path)
    program = "import sys; from pathlib import Path; from td_loop.deploy.traffic import Traffic\n"
    program += "print(Traffic.open(Path(sys.argv[1])).set(1234).generation)"
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True, capture_output=True)
    assert traffic.read() == TrafficState(1, 1234)
    assert Traffic.open(tmp_path).read() == TrafficState(1, 1234)


def test_changes_from_many_threads_are_made_one_after_the_other(tmp_path: Path) -> None:
    def add() -> None:
        mine = Traffic.open(tmp_path)
        for _ in range(20):
            mine.change(lambda s: replace(s, canary_weight_bp=s.canary_weight_bp + 1))

    threads = [threading.Thread(target=add) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert Traffic.open(tmp_path).read() == TrafficState(80, 80)


def test_a_file_that_is_something_else_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"something else")
    with pytest.raises(DataError, match="traffic: is not a traffic file"):
        Traffic.open(tmp_path)
