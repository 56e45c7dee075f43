"""Every way to damage a run directory, and the one fault that is reported for it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from td_loop.cli import main
from td_loop.files import write_json
from td_loop.loop.verify import faults
from td_loop.npz import load_npz, save_npz
from tests.report.conftest import VALIDATION_GAME, write_rows

Copy = Callable[[str], Path]
Damage = Callable[[Path], object]


def only_fault(run: Path, file: str, rule: str, words: str) -> None:
    found = faults(run)
    assert [(f.file, f.rule) for f in found] == [(file, rule)], found
    assert words in f"{found[0].what} | {found[0].found} | {found[0].expected}"
    assert found[0].remedy


# --- files -----------------------------------------------------------------------------------------------------


def flip(name: str, at: float = 0.5) -> Damage:
    def damage(run: Path) -> None:
        data = bytearray((run / name).read_bytes())
        data[int(at * len(data))] ^= 4
        (run / name).write_bytes(data)

    return damage


def unlink(name: str) -> Damage:
    return lambda run: (run / name).unlink()


def cut(name: str) -> Damage:
    return lambda run: (run / name).write_bytes((run / name).read_bytes()[:-40])


def relink(name: str, target: str) -> Damage:
    def damage(run: Path) -> None:
        (run / name).unlink()
        (run / name).symlink_to(target)

    return damage


def copied_over(name: str) -> Damage:
    """As a copy that follows links leaves it."""

    def damage(run: Path) -> None:
        data = (run / name).read_bytes()
        (run / name).unlink()
        (run / name).write_bytes(data)

    return damage


def edited(name: str, *keys: Any, to: Any) -> Damage:
    """One value of a JSON file replaced."""

    def damage(run: Path) -> None:
        content = orjson.loads((run / name).read_bytes())
        inner = content
        for key in keys[:-1]:
            inner = inner[key]
        if to is KeyError:
            del inner[keys[-1]]
        else:
            inner[keys[-1]] = to
        write_json(run / name, content)

    return damage


def manifest(*keys: Any, to: Any) -> Damage:
    return edited("manifest.json", *keys, to=to)


def cache(name: str, *, folder: str = "iter2", **meta: Any) -> Callable[[Callable[[Any], Any]], Damage]:
    """An array of a cache changed by a function, and saved as a valid file."""

    def with_change(change: Callable[[Any], Any]) -> Damage:
        def damage(run: Path) -> None:
            path = run / folder / "branch_data.npz"
            arrays, own = load_npz(path)
            arrays[name] = change(arrays[name])
            save_npz(path, arrays, own | meta)
            edited(f"{folder}/provenance.json", "fit", "branch_data", to=None)(run)

        return damage

    return with_change


def mass_on_a_dead_seat(run: Path) -> None:
    path = run / "iter2" / "branch_data.npz"
    arrays, own = load_npz(path)
    row, seat = np.argwhere(~arrays["alive_at_s_for_rows_a"])[0]
    arrays["branch_a_target"][row, seat] = 0.5
    save_npz(path, arrays, own)
    edited("iter2/provenance.json", "fit", "branch_data", to=None)(run)


def set_first(value: Any) -> Callable[[Any], Any]:
    def change(array: Any) -> Any:
        array[(0,) * array.ndim] = value
        return array

    return change


FILES = [
    ("promoted", flip("iter1/weights.npz"), "iter1/weights.npz", "I8", "promoted weights were changed | sha256"),
    ("promoted", flip("iter0/V_snap.npz"), "iter0/V_snap.npz", "I8", "promoted weights were changed | sha256"),
    ("promoted", unlink("iter0/weights.npz"), "iter0/weights.npz", "I8", "promoted weights are missing"),
    ("promoted", unlink("iter0/V_snap.npz"), "iter0/V_snap.npz", "I8", "promoted weights are missing"),
    ("retried", flip("iter1/weights.npz"), "iter1/weights.npz", "I8", "reverted weights were changed"),
    ("reverted", flip("iter1/weights.npz"), "iter1/weights.npz", "I8", "reverted weights were changed"),
    ("promoted", unlink("manifest.json"), "manifest.json", "I9", "is missing"),
    ("promoted", cut("manifest.json"), "manifest.json", "I9", "not valid JSON"),
    ("promoted", unlink("latest_good.npz"), "latest_good.npz", "I8", "no link | a link to iter2/weights.npz"),
    ("promoted", relink("latest_good.npz", "iter0/weights.npz"), "latest_good.npz", "I8", "iter0/weights.npz"),
    ("promoted", relink("latest_good.npz", "gone.npz"), "latest_good.npz", "I8", "gone.npz"),
    ("promoted", copied_over("latest_good.npz"), "latest_good.npz", "I8", "a file that is no link"),
    ("promoted", unlink("best_val.npz"), "best_val.npz", "I8", "no link"),
    ("promoted", relink("best_val.npz", "iter1/weights.npz"), "best_val.npz", "I8", "iter1/weights.npz"),
    ("promoted", unlink("iter1/validation.json"), "iter1/validation.json", "I9", "no such file"),
    ("promoted", cut("iter1/validation.json"), "iter1/validation.json", "I9", "not valid JSON"),
    ("promoted", edited("iter1/validation.json", "status", to="fine"), "iter1/validation.json", "I9", "status"),
    ("promoted", edited("iter1/validation.json", "stage3", "S3.7", "numbers", "kl", to=9.5),
     "iter1/validation.json", "I9", "stage3.S3.7.numbers.kl differs"),
    ("promoted", edited("iter1/validation.json", "x", to="0"), "iter1/validation.json", "I9", "a key"),
    ("promoted", edited("iter1/validation.json", "stage4", to=None), "iter1/validation.json", "I9", "stage4"),
    ("interrupted", edited("iter1/validation.json", "stage3", "S3.2", "passed", to=False),
     "iter1/validation.json", "I9", "stage3.S3.2.passed"),
    ("promoted", unlink("iter1/weights.training.json"), "iter1/weights.training.json", "I9", "no such file"),
    ("promoted", edited("iter1/weights.training.json", "history", "train_mc_nll", 1, to=0.1),
     "iter1/weights.training.json", "I9", "was changed after it was judged"),
    ("promoted", flip("iter2/branch_data.npz"), "iter2/branch_data.npz", "I3, I4, I6", "damaged"),
    ("promoted", cut("iter2/branch_data.npz"), "iter2/branch_data.npz", "I3, I4, I6", "damaged"),
    ("promoted", lambda run: shutil.copy(run / "iter1" / "branch_data.npz", run / "iter2" / "branch_data.npz"),
     "iter2/branch_data.npz", "I3, I4, I6", "made from other weights"),
    ("gated", flip("iter1_retry1/gate.json"), "iter1_retry1/gate.json", "I9", "was changed after it was judged"),
    ("gated", flip("iter1/gate.games"), "iter1/gate.games", "I9", "was changed after it was judged"),
    ("gated", unlink("iter0/gate.games"), "iter0/gate.games", "I9", "is missing"),
    ("gated", edited("iter0/validation.json", "gate", "score", to=0.9),
     "iter0/validation.json", "I9", "gate.score differs"),
    ("gated", edited("iter0/validation.json", "gate", to=KeyError), "iter0/validation.json", "I9", "gate differs"),
    ("promoted", edited("iter0/validation.json", "gate", to={}), "iter0/validation.json", "I9", "a key"),
    ("promoted", flip("mc_rows.npz"), "mc_rows.npz", "I7", "cannot be read"),
    ("promoted", lambda run: write_rows(run, replays="cd" * 32), "mc_rows.npz", "I7", "rows of other replays"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "damage", "file", "rule", "words"), FILES)
def test_a_damaged_file_is_named_and_nothing_else(
    copy: Copy, name: str, damage: Damage, file: str, rule: str, words: str
) -> None:
    run = copy(name)
    damage(run)
    only_fault(run, file, rule, words)


def test_a_folder_that_is_gone_is_named(copy: Copy) -> None:
    run = copy("aborted")
    shutil.rmtree(run / "iter1")
    only_fault(run, "iter1", "I9", "the folder of an attempt is missing")


# --- the manifest ----------------------------------------------------------------------------------------------

MANIFESTS = [
    ("promoted", manifest("schema_version", to=99), "I9", "99"),
    ("promoted", manifest("hyperparams", to=KeyError), "I9", "hyperparams: is missing"),
    ("promoted", manifest("tag", to=KeyError), "I9", "cannot be read"),
    ("promoted", manifest("tag", to="other"), "I9", "tag: differs"),
    ("promoted", manifest("hyperparams", "n", to=21), "I9", "differs from hyperparams_current in n | 21 | 20"),
    ("promoted", manifest("hyperparams_initial", "n", to=21), "I9", "in n | 20 | 21"),
    ("promoted", manifest("hyperparams_history", 0, "resume_index", to=1), "I9", "does not count"),
    ("promoted", manifest("hyperparams_history", to=[]), "I9", "is empty"),
    ("promoted", manifest("iters", 1, "i", to=2), "I9", "iters[1].i"),
    ("promoted", manifest("iters", 1, "status", to="reverted"), "I9", "only the last record"),
    ("promoted", manifest("iters", 2, "status", to="reverted"), "I9", "promoted_to_latest_good"),
    ("promoted", manifest("iters", 1, "status", to="fine"), "I9", "cannot be read"),
    ("promoted", manifest("iters", 1, "knot_coverage", to=KeyError), "I9", "iters[1].knot_coverage: is missing"),
    ("promoted", manifest("iters", 1, "promoted_to_latest_good", to=False), "I9", "promoted_to_latest_good"),
    ("promoted", manifest("iters", 1, "iter_dir", to="iter2"), "I9", "is not the attempt's folder"),
    ("promoted", manifest("iters", 1, "weights", to="../weights.npz"), "I9", "do not lie in the attempt's folder"),
    ("promoted", manifest("iters", 1, "attempt", to=1), "I9", "iters[1]"),
    ("promoted", manifest("iters", 1, "prepare", "n_r", to=15), "I9", "n_r: is not what S3.2 judged | 15 | 14"),
    ("promoted", manifest("iters", 1, "prepare", "exit_code", to=1), "I9", "does not follow from the checks"),
    ("promoted", manifest("iters", 1, "prepare", "wall_s", to=-1.0), "I9", "no duration"),
    ("promoted", manifest("iters", 1, "prepare", to=5), "I9", "cannot be understood"),
    ("promoted", manifest("iters", 1, "fit", "final_val_mc_nll", to=0.4), "I9", "is not what S4.3 judged"),
    ("promoted", manifest("iters", 1, "fit", "final_val_mc_nll", to=KeyError), "I9", "is missing"),
    ("promoted", manifest("iters", 1, "stage3_validation", "S3.1", "passed", to=False), "I9", "does not follow"),
    ("promoted", manifest("iters", 1, "v_snap", to="iter0/V_snap.npz"), "I8", "is not what latest_good was then"),
    ("promoted", manifest("iters", 0, "v_snap_sha256", to="0" * 64), "I8", "is not the hash of what latest_good"),
    ("promoted", manifest("latest_good", to="iter1/weights.npz"), "I8", "is not the last promoted weights"),
    ("promoted", manifest("latest_good", to="iter9/weights.npz"), "I8", "iter9/weights.npz | iter2/weights.npz"),
    ("promoted", manifest("best_val", to=None), "I8", "lowest finite val_mc_nll"),
    ("promoted", manifest("best_val", "val_mc_nll", to="NaN"), "I8", "lowest finite val_mc_nll"),
    ("promoted", manifest("best_val", "iter", to=1), "I8", "lowest finite val_mc_nll"),
    ("gated", manifest("iters", 2, "gate", "exit_code", to=6), "I9", "verdict 'H1', exit code 6"),
    ("gated", manifest("iters", 2, "gate", "llr", to=0.0), "I9", "contradicts itself"),
    ("gated", manifest("iters", 2, "gate", "llr", to="x"), "I9", "cannot be understood"),
    ("gated", manifest("iters", 2, "gate", "games", to=5), "I9", "3 rounds with 5 games"),
    ("gated", manifest("iters", 2, "gate", "wall_s", to=-1.0), "I9", "no duration"),
    ("gated", manifest("iters", 2, "gate", "score", to=KeyError), "I9", "gate.score: is missing"),
    ("gated", manifest("iters", 2, "gate", "exit_code", to=None), "I9", "does not go with status promoted"),
    ("gated", manifest("iters", 2, "gate", "failure", to="x"), "I9", "does not follow from the checks"),
    ("gated", manifest("iters", 1, "previous_attempt", "gate", to=KeyError), "I9", "does not follow"),
    ("in a match", manifest("iters", 1, "weights", to=None), "I9", "both or none"),
    ("no match", manifest("iters", 1, "status", to="reverted"), "I9", "does not follow from the checks"),
    ("retried", manifest("iters", 1, "previous_attempt", to=KeyError), "I9", "iters[1].previous_attempt"),
    ("retried", manifest("iters", 1, "previous_attempt", to={}), "I9", "cannot be understood"),
    ("retried", manifest("iters", 1, "previous_attempt", "status", to="promoted"), "I9", "that was retried"),
    ("retried", manifest("iters", 1, "previous_attempt", "v_snap_sha256", to="0"), "I9", "of another v_snap"),
    ("aborted", manifest("iters", 1, "status", to="reverted"), "I9", "does not follow from the checks"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "damage", "rule", "words"), MANIFESTS)
def test_a_manifest_that_contradicts_itself_is_told_once(
    copy: Copy, name: str, damage: Damage, rule: str, words: str
) -> None:
    run = copy(name)
    damage(run)
    only_fault(run, "manifest.json", rule, words)


@pytest.mark.parametrize(
    ("damage", "file"),
    [
        (manifest("bootstrap_sha256", to="0" * 64), "iter0/V_snap.npz"),
        (manifest("iters", 1, "weights_sha256", to="0" * 64), "iter1/weights.npz"),
    ],
)
def test_a_hash_that_was_changed_is_told_of_its_file(copy: Copy, damage: Damage, file: str) -> None:
    run = copy("promoted")
    damage(run)
    only_fault(run, file, "I8", "were changed")


# --- what is in a cache ----------------------------------------------------------------------------------------

CACHES = [
    (cache("branch_r_target")(set_first(np.nan)), "I2", "S3.3 fails"),
    (mass_on_a_dead_seat, "I5", "S3.1 fails"),
    (cache("branch_r_features")(set_first(np.inf)), "I3, I4, I6", "a feature is not finite (I6)"),
    (cache("branch_r_focal_seat")(set_first(4)), "I3, I4, I6", "focal_seat"),
    (cache("branch_a_frame_id")(set_first(VALIDATION_GAME << 11 | 8)), "I7", "Branch A has rows of validation"),
    (cache("branch_a_target", n=21)(lambda a: a), "I1", "meta n is not the record's | 21 | 20"),
    (cache("branch_a_target", replay_set_hash="0")(lambda a: a), "I1", "meta replay_set_hash"),
]  # fmt: skip


@pytest.mark.parametrize(("damage", "rule", "words"), CACHES)
def test_an_invariant_that_a_cache_breaks_is_named(copy: Copy, damage: Damage, rule: str, words: str) -> None:
    run = copy("promoted")
    damage(run)
    only_fault(run, "iter2/branch_data.npz", rule, words)


def test_a_cache_that_was_replaced_is_told(copy: Copy) -> None:
    run = copy("promoted")
    arrays, meta = load_npz(run / "iter2" / "branch_data.npz")
    save_npz(run / "iter2" / "branch_data.npz", arrays, {**meta, "wall_s": 1.0})
    only_fault(run, "iter2/branch_data.npz", "I9", "is not the cache that fit read")


def test_outcome_rows_with_a_game_on_both_sides_are_told(copy: Copy) -> None:
    run = copy("promoted")
    arrays, meta = load_npz(run / "mc_rows.npz")
    arrays["is_validation"][0] = False
    save_npz(run / "mc_rows.npz", arrays, meta)
    only_fault(run, "mc_rows.npz", "I7", "games in both train and validation")


# --- as a person sees it ---------------------------------------------------------------------------------------


def test_faults_are_listed_with_their_remedy_and_the_command_exits_65(
    copy: Copy, capsys: pytest.CaptureFixture[str]
) -> None:
    run = copy("promoted")
    (run / "best_val.npz").unlink()
    flip("iter1/weights.npz")(run)
    assert main(["verify", "promoted", "--runs-dir", str(run.parent)]) == 65
    out, err = capsys.readouterr()
    assert err == f"error: {run}: 2 faults (listed above)\n"
    for words in (
        "1. best_val.npz: does not lead where the manifest says (I8)\n   found     no link\n",
        "   expected  a link to iter0/weights.npz\n   remedy    give the command",
        "2. iter1/weights.npz: promoted weights were changed (I8)\n   found     sha256 ",
    ):
        assert words in out


def test_a_sound_run_is_summed_up_and_the_command_exits_0(
    made: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", str(made["promoted"])]) == 0
    out, err = capsys.readouterr()
    assert "nothing wrong; 3 promoted iterations, 4 weights files, 2 caches checked" in " ".join(out.split())
    assert err == ""
