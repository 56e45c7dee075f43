from __future__ import annotations

import builtins
import socket
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.guard.guarded import DIVERGING, HEALTHY, Moves, guard, started
from tests.guard.processes import wait_until

pytest.importorskip("prometheus_client")


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def values(text: str) -> dict[str, float]:
    lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {name: float(x) for name, _, x in lines}


def test_figures_are_written_for_the_textfile_collector(tmp_path: Path) -> None:
    file = tmp_path / "guard.prom"
    assert guard(tmp_path / "g", DIVERGING, HEALTHY, flags=["--metrics-file", str(file)]) == 0
    found = values(file.read_text())
    assert found['td_guard_breaker_state{state="closed"}'] == 1
    assert found['td_guard_breaker_state{state="open"}'] == 0
    assert found["td_guard_locked"] == 0
    assert found["td_guard_attempt"] == found["td_guard_retries"] == found["td_guard_trips_total"] == 1
    assert found["td_guard_learning_rate_multiplier"] == 0.5
    assert found["td_guard_step"] == 30
    assert found["td_guard_stable_step"] == 20
    assert found['td_guard_records_total{health="healthy"}'] == 20
    assert found['td_guard_snapshots{kind="stable"}'] == 3
    assert found['td_guard_telemetry{metric="kl"}'] == 0.01


def test_figures_are_served_while_the_guard_works(tmp_path: Path) -> None:
    port, go = free_port(), tmp_path / "go"
    plan: Moves = [*HEALTHY, ["until", str(go)]]

    def served() -> str:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
                return str(answer.read().decode())
        except OSError:
            return ""

    with started(tmp_path / "g", plan, flags=["--metrics-port", str(port)]) as process:
        wait_until(lambda: values(served()).get("td_guard_step") == 20)
        go.touch()
        process.communicate()
    assert process.returncode == 0


def test_a_port_that_is_taken_is_a_usage_error(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        port = s.getsockname()[1]
        assert guard(tmp_path, HEALTHY, flags=["--metrics-port", str(port)]) == 64
    assert f"127.0.0.1:{port} cannot be listened on" in capfd.readouterr().err


def test_a_file_that_cannot_be_written_costs_no_training(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert guard(tmp_path / "g", HEALTHY, flags=["--metrics-file", str(tmp_path / "file" / "x")]) == 0
    assert "warning: cannot write " in capfd.readouterr().err


def test_without_the_package_it_is_said_which_extra_to_install(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def missing(name: str, *args: object) -> object:
        if name.startswith("prometheus_client"):
            raise ImportError(name)
        return real(name, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", missing)
    monkeypatch.delitem(sys.modules, "prometheus_client", raising=False)
    assert guard(tmp_path, HEALTHY) == 0  # nobody asks for figures
    assert guard(tmp_path, HEALTHY, flags=["--metrics-file", str(tmp_path / "x")]) == 64
    assert "pip install 'td-loop[guard-metrics]'" in capfd.readouterr().err
