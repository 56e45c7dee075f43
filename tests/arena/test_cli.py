"""`td-loop tournament` as a person and as a program meet it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from td_loop import cli
from td_loop.arena.store import Store
from td_loop.cli.tournament import _sliced
from td_loop.errors import SPRT_REJECTED, SPRT_UNDECIDED, UsageError
from td_loop.files import sha256
from td_loop.loop.manifest import IterRecord, Manifest, Status, write_manifest

Weights = Callable[[int], Path]
Ask = Callable[..., tuple[int, str, str]]


@pytest.fixture
def ask(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Ask:
    def ask(*args: str) -> tuple[int, str, str]:
        flags = ("--game", "tests.toy_game:GAME", "--store", str(tmp_path / "games"), "--workers", "1")
        code = cli.main(["tournament", *args, *flags])
        said = capsys.readouterr()
        return code, said.out, said.err

    return ask


def test_tables(ask: Ask, weights: Weights) -> None:
    code, out, _ = ask("rusher", "idle", "random", f"best={weights(1)}@4e", "--rounds", "2")
    assert code == 0
    assert out.startswith("2 seats, 12 maps, 24 games")
    assert "best" in out
    assert "won by the row against the column" in out
    assert max(map(len, out.splitlines())) <= 80


def test_json(ask: Ask) -> None:
    code, out, _ = ask("rusher", "idle", "--rounds", "6", "--json")
    found = json.loads(out)
    assert code == 0
    assert (found["games_played"], found["games_known"], found["seats"]) == (12, 0, 2)
    first = found["standings"]["rows"][0]
    assert first["label"] == "rusher"
    assert first["wins"] + first["draws"] + first["losses"] == 12
    assert first["wins"] > first["losses"]
    assert sum(found["standings"]["pairs"][0]["rounds_won"]) == 6
    assert 2 * 0.5**6 <= found["standings"]["pairs"][0]["p_value"] < 1
    assert json.loads(ask("rusher", "idle", "--rounds", "6", "--json")[1])["games_played"] == 0


@pytest.mark.parametrize(
    ("specs", "elo", "code", "verdict"),
    [
        (["rusher", "idle"], ["0", "100"], 0, "H1"),
        (["idle", "rusher"], ["0", "100"], SPRT_REJECTED, "H0"),
        (["rusher", "idle"], ["-10", "1", "--rounds", "3"], SPRT_UNDECIDED, "undecided"),
    ],
)
def test_a_sequential_test_answers_by_exit_code(
    ask: Ask, specs: list[str], elo: list[str], code: int, verdict: str
) -> None:
    found, out, _ = ask(*specs, "--json", "--sprt", *elo)
    said = json.loads(out)
    assert (found, said["sprt"]["verdict"]) == (code, verdict)
    assert said["pair"]["rounds"] == said["sprt"]["rounds"]
    assert ask(*specs, "--sprt", *elo)[0] == code  # from the store, in words


def test_a_result_is_also_written_to_a_file(ask: Ask, tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    for more in ([], ["--sprt", "-10", "1"]):
        words = ask("rusher", "idle", "--rounds", "3", "--out", str(out), *more)[1]
        said = json.loads(ask("rusher", "idle", "--rounds", "3", "--json", *more)[1])
        written = json.loads(out.read_bytes())
        assert written["games_played"] + written["games_known"] == 6
        assert said == written | {"games_played": 0, "games_known": 6}
        assert "{" not in words


def test_a_sequential_test_needs_no_ratings(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "choix", None)
    assert ask("rusher", "idle", "--sprt", "0", "100")[0] == 0
    code, _, err = ask("rusher", "idle", "--rounds", "2")
    assert code == 64
    assert "td-loop[arena]" in err


@pytest.fixture
def run(tmp_path: Path, weights: Weights) -> Path:
    folder = tmp_path / "td_loop_x"
    names = ["iter0/V_snap.npz", *(f"iter{i}/weights.npz" for i in range(3))]
    for k, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(weights(k).read_bytes())
    digests = [sha256(folder / name) for name in names]
    manifest = Manifest.new("x", digests[0], {})
    for i in range(3):
        fit = {"wall_s": 1.0, "exit_code": 0, "final_val_mc_nll": 0.9 - 0.1 * i}
        where: Any = {"iter_dir": f"iter{i}", "v_snap": names[i], "v_snap_sha256": digests[i]}
        what: Any = {"weights": names[i + 1], "weights_sha256": digests[i + 1], "fit": fit}
        manifest = manifest.with_record(IterRecord(i=i, attempt=0, status=Status.PROMOTED, **where, **what))
    write_manifest(folder, manifest)
    return folder


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (["--promoted"], ["iter0", "iter1", "iter2"]),
        (["--promoted", "bootstrap"], ["bootstrap", "iter0", "iter1", "iter2"]),
        (["--promoted", "-2:", "bootstrap"], ["bootstrap", "iter1", "iter2"]),
        (["bootstrap", "latest_good", "--promoted=-1"], ["bootstrap", "latest_good"]),
        (["iter0", "best_val", "idle"], ["best_val", "idle", "iter0"]),
    ],
)
def test_checkpoints_of_a_run_play(
    run: Path, capsys: pytest.CaptureFixture[str], given: list[str], wanted: list[str]
) -> None:
    args = ["--run", str(run), "--game", "tests.toy_game:GAME", "--rounds", "1", "--workers", "1"]
    assert cli.main(["tournament", *given, *args, "--budget-evals", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert sorted(row["label"] for row in found["standings"]["rows"]) == sorted(wanted)
    assert (run / "arena" / "2p.games").is_file()
    assert cli.main(["picks", str(run)]) == 0


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["idle"], 64, "2 different contestants"),
        (["idle", "nobody"], 64, "no contestant 'nobody'"),
        (["idle", "rusher", "--seats", "3"], 64, "2 or 4 seats"),
        (["idle", "rusher", "--promoted"], 64, "--promoted needs --run"),
        (["idle", "rusher", "--sprt", "5", "0"], 64, "the smaller one first"),
        (["idle", "gone.npz"], 65, "gone.npz"),
    ],
)
def test_mistakes(ask: Ask, args: list[str], code: int, said: str) -> None:
    found, _, err = ask(*args)
    assert found == code
    assert said in err


def test_a_store_in_use(ask: Ask, tmp_path: Path) -> None:
    with Store(tmp_path / "games", {}):
        assert ask("idle", "rusher")[0] == 5


@pytest.mark.parametrize(
    ("text", "wanted"),
    [(":", "abcd"), ("1:3", "bc"), ("-2:", "cd"), ("::2", "ac"), ("-1", "d"), ("0", "a"), ("9", "")],
)
def test_slices(text: str, wanted: str) -> None:
    assert "".join(_sliced(list("abcd"), text)) == wanted


@pytest.mark.parametrize("text", ["x", "1:2:0"])
def test_what_is_no_slice(text: str) -> None:
    with pytest.raises(UsageError):
        _sliced([1], text)
