from __future__ import annotations

import os
from pathlib import Path

import pytest

from td_loop.errors import DataError, UsageError
from td_loop.files import point
from td_loop.guard import environment


@pytest.fixture(autouse=True)
def env(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in list(os.environ):
        if name.startswith("TD_GUARD_") or name == "LEARNING_RATE_MULTIPLIER":
            monkeypatch.delenv(name)
    return monkeypatch


def test_without_a_guard_everything_is_as_the_script_says() -> None:
    assert not environment.guarded()
    assert environment.attempt() is None
    assert environment.scaled(3e-4) == 3e-4
    assert environment.seed(7) == 7
    assert environment.resume_path() is None
    assert environment.staging() is None
    assert environment.checkpoint_every(10) == 10


def test_the_first_attempt_keeps_the_scripts_own_seed(env: pytest.MonkeyPatch) -> None:
    env.setenv("TD_GUARD_SEED", "1000")
    env.setenv("TD_GUARD_ATTEMPT", "0")
    assert environment.seed(7) == 7
    env.setenv("TD_GUARD_ATTEMPT", "1")
    assert environment.seed(7) == 1000
    assert environment.guarded()


def test_rates_and_schedules_are_scaled(env: pytest.MonkeyPatch) -> None:
    env.setenv("LEARNING_RATE_MULTIPLIER", ".25")  # as bc writes it
    assert environment.scaled(4e-4) == 1e-4
    assert environment.scaled(lambda left: 4 * left)(0.5) == 0.5


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LEARNING_RATE_MULTIPLIER", "half"),
        ("LEARNING_RATE_MULTIPLIER", "0"),
        ("LEARNING_RATE_MULTIPLIER", "nan"),
        ("TD_GUARD_ATTEMPT", "-1"),
        ("TD_GUARD_CHECKPOINT_EVERY", "0"),
        ("TD_GUARD_CHECKPOINT_EVERY", "1.5"),
    ],
)
def test_what_a_variable_cannot_mean_names_it(env: pytest.MonkeyPatch, name: str, value: str) -> None:
    env.setenv(name, value)
    with pytest.raises(UsageError, match=f"{name} is '{value}'"):
        (environment.multiplier(), environment.attempt(), environment.checkpoint_every(1))


def test_a_checkpoint_is_where_the_link_leads(env: pytest.MonkeyPatch, tmp_path: Path) -> None:
    link = tmp_path / "active"
    env.setenv("TD_GUARD_ACTIVE", str(link))
    assert environment.resume_path() is None  # no link yet: training starts anew
    (tmp_path / "model.zip").write_text("weights")
    point(link, "model.zip")
    assert environment.resume_path() == (tmp_path / "model.zip").resolve()
    (tmp_path / "model.zip").unlink()
    with pytest.raises(DataError, match=r"model\.zip, which is not there"):
        environment.resume_path()


def test_a_pointer_file_leads_where_there_are_no_symlinks(env: pytest.MonkeyPatch, tmp_path: Path) -> None:
    env.setenv("TD_GUARD_ACTIVE", str(tmp_path / "active"))
    (tmp_path / "model.zip").write_text("weights")
    (tmp_path / "active.txt").write_text("model.zip\n")
    assert environment.resume_path() == (tmp_path / "model.zip").resolve()
