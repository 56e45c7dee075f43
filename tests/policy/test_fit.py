"""fit: it learns what it is taught, the same command makes the same policy, and what is held out stays out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from td_loop.cli import main
from td_loop.errors import Interrupted, UsageError
from td_loop.games.base import Budget
from td_loop.games.orbit_wars.game import GAME
from td_loop.kernels import cache_dir
from td_loop.policy.artefact import read_artefact
from td_loop.policy.config import PolicyFitConfig
from td_loop.policy.export import export_untrained
from td_loop.policy.fit import run_fit
from td_loop.policy.network import NumpyNetwork
from td_loop.policy.rows import HELD_OUT, Row, padded, play_rows
from td_loop.policy.runtimes import RUNTIMES, open_runner
from td_loop.policy.shape import NetworkSize, start
from td_loop.policy.train import PolicyTrainer
from td_loop.value.io import load_weights

WEIGHTS = Path(__file__).parents[2] / "models" / "value_spline_v2.npz"
TINY = PolicyFitConfig(games=1, rounds=2, teacher_evals=3, labelled=0.05, replay_rows=30, epochs=1, last_epochs=1)
SMALL = NetworkSize(width=16, heads=2, hidden=16, pointer=8)


@pytest.fixture(scope="module")
def taught() -> list[Row]:
    """A few decisions of the search on its way through a game."""
    search, rng = GAME.make_search(load_weights(WEIGHTS)), np.random.default_rng(0)
    state, rows = GAME.initial(7, 2), []
    for turn in range(60):
        actions = [search(state, seat, Budget(evals=60), rng).action for seat in range(2)]
        for seat, action in enumerate(actions):
            rows.append(Row(state, seat, GAME.options_of(state, seat, action), turn))
        state = GAME.step(state, actions)
    return rows


def test_it_learns_what_it_is_taught(taught: list[Row]) -> None:
    config = PolicyFitConfig(batch=20, lr=5e-3)
    parameters = start(GAME.contract, NetworkSize(width=32, hidden=32), np.random.default_rng(0))
    trainer = PolicyTrainer(GAME, parameters, config, np.random.default_rng(0))
    before = trainer.figures(taught)
    trainer.fit(taught, 40, lambda _: None)
    after = trainer.figures(taught)
    assert before.launch_agreement < 0.2
    assert after.launch_agreement > 0.4
    assert after.loss < 0.3 * before.loss
    assert after.agreement > before.stay  # better than never to move
    assert after.slots == before.slots > len(taught)


def test_the_policy_plays_what_it_was_trained_for(taught: list[Row]) -> None:
    parameters = start(GAME.contract, SMALL, np.random.default_rng(0))
    trainer = PolicyTrainer(GAME, parameters, PolicyFitConfig(batch=30, lr=1e-2), np.random.default_rng(0))
    trainer.fit(taught, 1, lambda _: None)
    batch, options = padded(GAME, taught[:8])
    run = NumpyNetwork(trainer.parameters, GAME.contract)
    together = run(batch)
    for b, row in enumerate(taught[:8]):
        alone = run(GAME.policy_inputs(row.state, row.seat))[0]
        s, o = alone.shape
        np.testing.assert_allclose(together[b, :s, :o], alone, rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(options[b, : len(row.options)], row.options)
        assert (options[b, len(row.options) :] == -1).all()


def test_the_same_settings_make_the_same_file(tmp_path: Path) -> None:
    a, b = (run_fit(GAME, TINY, tmp_path / name, WEIGHTS, size=SMALL).artefact for name in ("a.onnx", "b.onnx"))
    assert a.sha256 == b.sha256
    other = PolicyFitConfig(**{**vars(TINY), "seed": 1})
    assert run_fit(GAME, other, tmp_path / "c.onnx", WEIGHTS, size=SMALL).artefact.sha256 != a.sha256


def test_an_artefact_says_what_it_was_made_from_and_its_cases_repeat(tmp_path: Path) -> None:
    first = export_untrained(tmp_path / "first.onnx", GAME, size=SMALL, n=20)
    out = tmp_path / "second.onnx"
    run_fit(GAME, TINY, out, WEIGHTS, resume=tmp_path / "first.onnx", command="as typed")
    found = read_artefact(out, GAME.contract)
    assert found.meta.parents["policy"] == first.sha256
    assert {"weights", "data"} < set(found.meta.parents)
    assert found.meta.training["command"] == "as typed"
    assert found.meta.training["settings"]["games"] == 1
    assert len(found.meta.training["rounds"]) == 2
    assert NumpyNetwork(found.weights, GAME.contract).size == SMALL
    for runtime in RUNTIMES:
        run = open_runner(found, runtime)
        for case in found.meta.cases:
            np.testing.assert_allclose(run(case.inputs), case.logits, rtol=1e-4, atol=1e-4)


def test_winners_of_replays_are_learnt_from(tmp_path: Path) -> None:
    bundled = Path(GAME.open_replays(None, cache_dir()).path)
    said: list[str] = []
    result = run_fit(GAME, TINY, tmp_path / "a.onnx", WEIGHTS, replays=bundled, size=SMALL, say=said.append)
    assert said[0].startswith("30 moves of winners from ")
    assert result.artefact.meta.training["rows"] > 30
    assert "replays" in result.artefact.meta.parents


def test_games_are_split_and_repeat() -> None:
    teacher = GAME.make_search(load_weights(WEIGHTS))
    config = PolicyFitConfig(games=2, teacher_evals=5, labelled=0.02)
    a, b = (play_rows(GAME, config, 1, teacher, None, lambda _: None) for _ in range(2))
    assert [(r.game, r.seat, r.options.tolist()) for r in a] == [(r.game, r.seat, r.options.tolist()) for r in b]
    assert {r.game for r in a} == {2, 3}
    assert {GAME.n_players(r.state) for r in a} == {2, 4}
    assert [Row(None, 0, np.zeros(1, np.int64), g).held_out for g in range(HELD_OUT)] == [True] + [False] * 9


def test_an_interrupted_fit_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> None:
        raise Interrupted(2)

    monkeypatch.setattr(PolicyTrainer, "figures", stop)
    with pytest.raises(Interrupted):
        run_fit(GAME, TINY, tmp_path / "a.onnx", WEIGHTS, size=SMALL)
    assert list(tmp_path.iterdir()) == []


def test_the_command_says_what_it_cannot_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    there = tmp_path / "there.onnx"
    there.write_bytes(b"")
    for flags, message in (
        (["--out", "policy.npz"], "must end in .onnx"),
        (["--out", str(there)], "there already"),
        (["--out", str(tmp_path / "a.onnx"), "--games", "0"], "games must be 1 or more"),
        (["--out", str(tmp_path / "a.onnx"), "--game", "tests.toy_game:GAME"], "no policy can be fitted"),
    ):
        assert main(["policy", "fit", *flags]) == UsageError.exit_code
        assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "wrong",
    [{"rounds": 0}, {"labelled": 0.0}, {"labelled": 1.5}, {"lr": 0.0}, {"seed": -1}, {"weight_decay": -1.0}],
)
def test_impossible_settings_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        PolicyFitConfig(**wrong)  # type: ignore[arg-type]
