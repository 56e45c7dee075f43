"""td-loop export: what is written is whole, works by itself, and was tried before."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from td_loop import cli
from td_loop.errors import UsageError, WeightsError
from td_loop.games.orbit_wars import export as exporting
from td_loop.games.orbit_wars.export import BrokenSubmission, export, module_closure, try_out
from td_loop.games.orbit_wars.trial import Setting
from td_loop.value.io import load_weights

WEIGHTS = Path(__file__).parents[2] / "models" / "value_spline_v2.npz"
SHORT = Setting(main="", seed=3, n_players=4, seat=1, episode_steps=16, act_timeout=0.5, broken_observations=True)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export of the shipped weights (the first on a machine compiles for half a minute)."""
    out = tmp_path_factory.mktemp("export") / "submission.tar.gz"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exporting, "TRIALS", (SHORT,))
        assert cli.main(["export", "--weights", str(WEIGHTS), "--out", str(out)]) == 0
    return out


@pytest.fixture(scope="module")
def unpacked(archive: Path) -> Path:
    folder = archive.parent / "unpacked"
    folder.mkdir()
    subprocess.run(["tar", "-xzf", archive, "-C", folder], check=True)  # tarfile's filters are not in every 3.11
    return folder


def test_it_holds_what_it_needs_and_no_more(unpacked: Path) -> None:
    assert {p.name for p in unpacked.iterdir()} == {"main.py", "fast_rule.py", "weights.npz", "td_loop", "kernels"}
    modules = {str(p.relative_to(unpacked / "td_loop")) for p in (unpacked / "td_loop").rglob("*.py")}
    assert {"kernels.py", "value/kernel.py", "games/orbit_wars/search.py", "games/orbit_wars/turn.py"} <= modules
    assert not modules & {
        "files.py",
        "value/io.py",
        "games/orbit_wars/agents.py",
        "games/orbit_wars/replays/store.py",
    }
    assert (unpacked / "weights.npz").read_bytes() == WEIGHTS.read_bytes()


def test_it_plays_where_this_package_is_not(unpacked: Path, tmp_path: Path) -> None:
    """One move in a fresh process and an empty kernel cache, as the official loader calls it."""
    code = (
        "import sys; raw = open('main.py').read(); env = {}; exec(compile(raw, 'main.py', 'exec'), env); "
        "agent = [v for v in env.values() if callable(v)][-1]; sys.path[:] = []; "
        "obs = dict(step=1, player=0, angular_velocity=0.03, next_fleet_id=0, remainingOverageTime=3000, "
        "planets=[[0,0,10,10,2,100,3],[1,-1,30,5,2,5,5],[2,1,90,90,2,9,3]], fleets=[], initial_planets=[]); "
        "print(agent(obs, {})); assert 'td_loop' not in sys.modules"
    )
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=unpacked, env={**env, "TD_LOOP_CACHE": str(tmp_path)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.startswith("[[0, ")
    assert done.stderr == ""  # the search played, and the kernels that came with it served


@pytest.mark.parametrize("official", [False, True])
def test_it_plays_in_both_environments(unpacked: Path, tmp_path: Path, official: bool) -> None:
    if official and find_spec("kaggle_environments") is None:
        pytest.skip("the official environment is not installed")
    setting = Setting(main="", seed=5, episode_steps=10, act_timeout=0.5)
    report = try_out(unpacked / "main.py", setting, tmp_path, official=official)
    assert (report.official, report.turns, report.faults) == (official, 9, [])


def test_what_is_there_is_never_replaced(archive: Path, tmp_path: Path) -> None:
    for out in (archive, tmp_path):
        with pytest.raises(UsageError, match="is there already"):
            export(WEIGHTS, out, say=print)


def test_weights_that_cannot_be_used_are_refused_first(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"nowhere\.npz"):
        export(tmp_path / "nowhere.npz", tmp_path / "out", say=lambda line: None)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "extra", "why"),
    [
        ("td_loop/games/orbit_wars/search_worker.py", "import orjson", "No module named 'orjson'"),
        ("td_loop/value/model.py", "import td_loop.files", "td_loop.files is not in the submission"),
        ("main.py", "import torch", "No module named 'torch'"),
        ("main.py", "1 / 0", "ZeroDivisionError"),
    ],
)
def test_a_broken_submission_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, extra: str, why: str
) -> None:
    files = exporting.submission_files(WEIGHTS)
    files[name] += f"\n{extra}\n".encode()
    monkeypatch.setattr(exporting, "submission_files", lambda weights: files)
    with pytest.raises(BrokenSubmission, match=why):
        export(WEIGHTS, tmp_path / "out", say=lambda line: None)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("extra", "why"),
    [
        ("def agent(o, c): raise ValueError", "status ERROR"),
        ("def agent(o, c):\n    print('no move: ', file=sys.stderr)\n    return []", "no move"),
        ("def agent(o, c):\n    print('the rule plays: slow', file=sys.stderr)\n    return []", "'slow': 9"),
    ],
)
def test_a_game_that_goes_wrong_is_a_fault(unpacked: Path, tmp_path: Path, extra: str, why: str) -> None:
    (tmp_path / "fast_rule.py").write_bytes((unpacked / "fast_rule.py").read_bytes())
    (tmp_path / "main.py").write_text((unpacked / "main.py").read_text() + f"\n{extra}\n")
    with pytest.raises(BrokenSubmission, match=why):
        try_out(tmp_path / "main.py", Setting(main="", episode_steps=10), tmp_path / "cache", official=False)


def test_imports_are_followed_but_not_into_functions() -> None:
    modules = module_closure("td_loop.games.orbit_wars.game")
    assert {
        "td_loop",
        "td_loop.games",
        "td_loop.games.orbit_wars.search",
        "td_loop.value.kernel",
    } <= modules.keys()
    assert not any("replays" in name for name in modules)  # `open_replays` imports them when it is called


def test_the_child_reads_weights_as_this_package_does() -> None:
    from td_loop.games.orbit_wars.search_worker import read_weights

    ours, childs = load_weights(WEIGHTS), read_weights(WEIGHTS)
    assert (childs.feature_names, childs.meta) == (ours.feature_names, ours.meta)
    assert childs.knots.tobytes() == ours.knots.tobytes()
    assert childs.coef.tobytes() == ours.coef.tobytes()
