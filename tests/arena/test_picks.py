"""picks: the strongest is deployed, ties are named, and val_mc_nll decides nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from td_loop import cli
from td_loop.arena.picks import Checkpoint, pick
from td_loop.arena.schedule import Plan
from td_loop.arena.store import Store
from td_loop.errors import DataError
from td_loop.files import pointed, sha256, write_bytes
from td_loop.loop.manifest import IterRecord, Manifest, Status, write_manifest
from tests.arena.build import simulated

CHECKPOINTS = [Checkpoint(f"iter{i}", f"iter{i}/weights.npz", f"{i:064x}", 0.5 + 0.1 * i) for i in range(4)]


def identity(c: Checkpoint) -> str:
    return f"weights:{c.sha256}@0.2s"


def games(elo: list[float], rounds: int, seats: int = 2, others: tuple[str, ...] = ()) -> list:
    who = (*(identity(c) for c in CHECKPOINTS[: len(elo)]), *others)
    strengths = dict(zip(who, [*elo, *[-200.0] * len(others)], strict=True))
    return [g for r in simulated(Plan(who, seats, rounds), strengths, seed=3) for g in r.games]


def test_the_strongest_is_picked_and_those_that_cannot_be_told_from_it_are_named() -> None:
    found = pick(CHECKPOINTS, {2: games([0, 300, 300, 0], 60, others=("built-in:starter",))})
    assert {found.candidates[0].checkpoint.label, found.candidates[1].checkpoint.label} == {"iter1", "iter2"}
    assert [c.tied for c in found.candidates] == [False, True, False, False]
    assert found.candidates[0].behind == 0.0
    assert all(c.low <= c.behind <= c.high for c in found.candidates[1:])
    assert found.budget == "0.2s"
    assert found.unplayed == ()


def test_two_and_four_seats_count_the_same() -> None:
    two = games([200, 0, -100, 0], 100)
    four = games([-600, 0, 0, 0], 100, seats=4)
    assert pick(CHECKPOINTS, {2: two}).candidates[0].checkpoint.label == "iter0"
    found = pick(CHECKPOINTS, {2: two, 4: four})
    assert found.candidates[0].checkpoint.label != "iter0"
    assert set(found.rounds) == {2, 4}
    for c in found.candidates:
        assert c.mean == pytest.approx((c.elo[2] + c.elo[4]) / 2)


def test_a_checkpoint_that_did_not_play_is_not_compared() -> None:
    found = pick(CHECKPOINTS, {2: games([100, 0, 0], 20)})
    assert found.unplayed == ("iter3",)
    assert len(found.candidates) == 3


def test_without_games_there_is_no_pick() -> None:
    with pytest.raises(DataError, match="no checkpoint"):
        pick(CHECKPOINTS, {2: []})


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of a bootstrap and two promoted iterations, the second of which plays worse and has the best loss."""
    folder = tmp_path / "td_loop_x"
    names = ["iter0/V_snap.npz", "iter0/weights.npz", "iter1/weights.npz"]
    for name in names:
        write_bytes(folder / name, name.encode())
    digests = [sha256(folder / name) for name in names]
    manifest = Manifest.new("x", digests[0], {})
    for i, loss in enumerate([0.9, 0.8]):
        record = IterRecord(
            i=i,
            attempt=0,
            iter_dir=f"iter{i}",
            v_snap="iter0/V_snap.npz",
            v_snap_sha256=digests[0],
            status=Status.PROMOTED,
            weights=names[i + 1],
            weights_sha256=digests[i + 1],
            fit={"wall_s": 1.0, "exit_code": 0, "final_val_mc_nll": loss},
            promoted_to_latest_good=True,
        )
        manifest = manifest.with_record(record)
    write_manifest(folder, manifest)
    return folder


def play(run: Path, elo: list[float], rounds: int) -> None:
    who = [
        f"weights:{sha256(run / n)}@0.2s" for n in ("iter0/V_snap.npz", "iter0/weights.npz", "iter1/weights.npz")
    ]
    with Store(run / "arena" / "2p.games", {"seats": 2}) as store:
        for r in simulated(Plan(tuple(who), 2, rounds), dict(zip(who, elo, strict=True))):
            for game in r.games:
                store.add(game)


def test_the_command_says_which_and_points_deploy_at_it(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    play(run, [0, 400, -100], 40)
    assert cli.main(["picks", str(run)]) == 0
    said = capsys.readouterr().out
    assert said.startswith("deploy iter0 (iter0/weights.npz): the strongest of 3")
    assert "best_val: a floor only" in next(line for line in said.splitlines() if line.startswith("iter1"))
    assert max(map(len, said.splitlines())) <= 80
    assert pointed(run / "deploy.npz") is None
    assert cli.main(["picks", str(run), "--deploy"]) == 0
    assert pointed(run / "deploy.npz") == "iter0/weights.npz"
    assert (run / "deploy.npz").read_bytes() == b"iter0/weights.npz"


def test_ties_are_named(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    play(run, [0, 0, 0], 10)
    assert cli.main(["picks", str(run), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["tied"]) == 2
    assert found["best_val_floor"] == "iter1"
    assert found["pick"] not in found["tied"]
    cli.main(["picks", str(run)])
    assert "tied with it, as far as these games tell" in capsys.readouterr().out


def test_weights_that_changed_are_not_deployed(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    play(run, [0, 400, -100], 40)
    (run / "iter0/weights.npz").write_bytes(b"other")
    assert cli.main(["picks", str(run), "--deploy"]) == 65
    assert "iter0/weights.npz" in capsys.readouterr().err
    assert pointed(run / "deploy.npz") is None


def test_no_tournament_is_an_answer_of_its_own(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["picks", str(run)]) == 65
    assert "td-loop tournament --run" in capsys.readouterr().err
