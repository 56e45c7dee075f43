"""Does a manifest agree with itself? No other file of the run is read."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, fields
from pathlib import Path, PurePosixPath
from typing import Any

from td_loop.checks import Severity
from td_loop.errors import DataError, ManifestError
from td_loop.files import as_float, read_json
from td_loop.loop import gate
from td_loop.loop.cost import Work
from td_loop.loop.fault import RESTORE_MANIFEST, Fault
from td_loop.loop.layout import BOOTSTRAP_COPY, MANIFEST, WEIGHTS, iter_dir, iter_dirs
from td_loop.loop.manifest import RECORD_KEYS, BestVal, IterRecord, Json, Manifest, Status
from td_loop.loop.plan import MAX_RETRIES

PREPARE_KEYS = ("wall_s", "exit_code", "n_r", "n_a", "engine_fallback_rate")
FIT_KEYS = ("wall_s", "exit_code", "final_val_mc_nll")

MALFORMED = (KeyError, TypeError, ValueError, AttributeError, DataError)
"""What looking into JSON of the wrong shape raises."""


def fault(key: str, what: str, found: Any, expected: Any, rule: str = "I9") -> Fault:
    """A fault of the manifest's entry `key`."""
    return Fault(MANIFEST, rule, f"{key}: {what}", str(found), str(expected), RESTORE_MANIFEST)


def require_sound(run: Path, manifest: Manifest) -> None:
    """Check that a manifest agrees with itself, before a run goes on from it and writes it anew.

    A `best_val` that is no number is no reason to refuse: the next promoted iteration takes its place.

    Raises:
        ManifestError: the first thing that is wrong.
    """
    content = read_json(run / MANIFEST)
    found = missing_keys(content, manifest)
    for i, record in enumerate(manifest.iters):
        found += record_faults(content["iters"][i], record, i, len(manifest.iters))
    try:
        found = found or hyperparameter_faults(content) + pointer_faults(content, manifest)
    except MALFORMED as e:
        found = [fault("", "cannot be understood", f"{type(e).__name__} {e}", "a manifest")]
    lost_best = manifest.best_val is None and content["best_val"] is not None
    for bad in found:
        if not (lost_best and bad.what.startswith("best_val:")):
            raise ManifestError(bad.sentence(run))


def require_none_lost(run: Path) -> None:
    """Check that a run directory without a manifest is a new one.

    Raises:
        ManifestError: there are weights of iterations in it, so its manifest was lost.
    """
    if (lost := lost_manifest(run)) is not None:
        raise ManifestError(lost.sentence(run))


def lost_manifest(run: Path) -> Fault | None:
    """The fault of a manifest that is not there, though iterations were done; None where none was."""
    done = [name for name in iter_dirs(run) if (run / name / WEIGHTS).exists()] if run.is_dir() else []
    if not done:
        return None
    found = f"no such file, but there are weights in {', '.join(done)}"
    return Fault(MANIFEST, "I9", "is missing", found, "a manifest", RESTORE_MANIFEST)


def missing_keys(content: Json, manifest: Manifest) -> list[Fault]:
    """Keys of the file that `read_manifest` can do without and others cannot."""
    missing = [key for key in manifest.as_json() if key not in content]
    return [fault(key, "is missing", "no such key", "the key") for key in missing]


def hyperparameter_faults(content: Json) -> list[Fault]:
    """`hyperparams` is `hyperparams_current` is the history's last; its first is `hyperparams_initial`."""
    current, history = content["hyperparams_current"], content["hyperparams_history"]
    if not history:
        return [fault("hyperparams_history", "is empty", "[]", "an entry for each change")]
    faults = []
    for key, found, expected, source in (
        ("hyperparams", content["hyperparams"], current, "hyperparams_current"),
        ("hyperparams_history[-1]", history[-1].get("hyperparams"), current, "hyperparams_current"),
        (
            "hyperparams_history[0]",
            history[0].get("hyperparams"),
            content["hyperparams_initial"],
            "hyperparams_initial",
        ),
    ):
        if (difference := first_difference(found, expected)) is not None:
            where, there, here = difference
            faults.append(fault(key, f"differs from {source} in {where or 'all'}", there, here))
    if not faults and "tag" in current and current["tag"] != content["tag"]:
        faults.append(fault("tag", "differs from hyperparams_current", content["tag"], current["tag"]))
    numbers = [entry.get("resume_index") for entry in history]
    if numbers != list(range(len(history))):
        faults.append(
            fault("hyperparams_history", "resume_index does not count 0, 1, ...", numbers, [*range(len(history))])
        )
    return faults


# --- records -------------------------------------------------------------------------------------------------


def record_faults(raw: Mapping[str, Any], record: IterRecord, i: int, n: int) -> list[Fault]:
    """The first thing wrong with record `i` of `n`, if any: what follows from it is no fault of its own.

    Args:
        raw: the record in the file.
        record: the same, as `read_manifest` gives it.
        i: its place.
        n: number of records.
    """
    key = f"iters[{i}]"
    try:
        first = next(_record_faults(key, raw, record, i, n), None)
    except MALFORMED as e:
        first = fault(key, "cannot be understood", f"{type(e).__name__} {e}", "a record")
    return [] if first is None else [first]


def _record_faults(key: str, raw: Mapping[str, Any], record: IterRecord, i: int, n: int) -> Iterator[Fault]:
    for name in RECORD_KEYS:
        if name not in raw:
            yield fault(f"{key}.{name}", "is missing", "no such key", "the key")
    if record.i != i:
        yield fault(f"{key}.i", "records must count 0, 1, ...", record.i, i)
    if record.status is not Status.PROMOTED and i != n - 1:
        yield fault(f"{key}.status", "only the last record may be not promoted", record.status, Status.PROMOTED)
    yield from _attempt_faults(key, record)
    previous = raw.get("previous_attempt")
    if (record.attempt > 0) != (previous is not None):
        found, expected = (
            ("none", "the attempt before") if previous is None else ("one", "none in a first attempt")
        )
        yield fault(f"{key}.previous_attempt", "does not go with the attempt's number", found, expected)
    if previous is None:
        return
    before = record.retried
    assert before is not None
    for name in ("i", "v_snap", "v_snap_sha256"):
        if getattr(before, name) != getattr(record, name):
            what = f"is of another {name}"
            yield fault(f"{key}.previous_attempt", what, getattr(before, name), getattr(record, name))
    if before.attempt != record.attempt - 1 or before.status is not Status.REVERTED:
        found = f"attempt {before.attempt}, {before.status}"
        expected = f"attempt {record.attempt - 1}, {Status.REVERTED}"
        yield fault(f"{key}.previous_attempt", "is not the attempt that was retried", found, expected)
    yield from _attempt_faults(f"{key}.previous_attempt", before)


def _attempt_faults(key: str, r: IterRecord) -> Iterator[Fault]:
    if not 0 <= r.attempt <= MAX_RETRIES:
        yield fault(f"{key}.attempt", "there is no such attempt", r.attempt, f"0..{MAX_RETRIES}")
    if r.iter_dir != iter_dir(r.i, r.attempt):
        yield fault(f"{key}.iter_dir", "is not the attempt's folder", r.iter_dir, iter_dir(r.i, r.attempt))
    if r.promoted_to_latest_good is not (r.status is Status.PROMOTED):
        what = f"does not go with status {r.status}"
        yield fault(
            f"{key}.promoted_to_latest_good", what, r.promoted_to_latest_good, not r.promoted_to_latest_good
        )
    if r.weights is not None and str(PurePosixPath(r.weights).parent) != r.iter_dir:
        yield fault(f"{key}.weights", "do not lie in the attempt's folder", r.weights, f"{r.iter_dir}/...")
    digest: Any = r.weights_sha256  # what JSON gives need not be what the record declares
    if digest is not None and not isinstance(digest, str):
        yield fault(f"{key}.weights_sha256", "is no hash", digest, "a string")
    if (r.weights is None) != (r.weights_sha256 is None):
        yield fault(
            f"{key}.weights_sha256", "weights and their hash go together", r.weights_sha256, "both or none"
        )
    for name, stage, keys in (("prepare", r.prepare, PREPARE_KEYS), ("fit", r.fit, FIT_KEYS)):
        if stage is not None and (missing := [k for k in keys if k not in stage]):
            yield fault(f"{key}.{name}.{missing[0]}", "is missing", "no such key", "the key")
    yield from _number_faults(key, r)
    yield from _gate_faults(key, r)
    yield from _verdict_faults(key, r)
    if r.status is Status.PROMOTED:
        yield from _setting_faults(key, r)


def _setting_faults(key: str, r: IterRecord) -> Iterator[Fault]:
    """The settings from which the duration of the iterations to come is forecast."""
    assert r.stage3_validation is not None
    assert r.stage4_validation is not None
    settings = r.stage3_validation["config"] | r.stage4_validation["config"]
    for field in fields(Work):
        if field.name not in settings:
            yield fault(f"{key}: config.{field.name}", "is missing", "no such key", "the key")
        elif not (field.name == "budget_evals" and settings[field.name] is None):
            as_float(settings[field.name])


def _number_faults(key: str, r: IterRecord) -> Iterator[Fault]:
    """Numbers that the record has twice: in its summary, and in the check that looked at them."""
    for stage, name, validation, check, number in (
        (r.prepare, "n_r", r.stage3_validation, "S3.2", "n_r"),
        (r.prepare, "n_a", r.stage3_validation, "S3.2", "n_a"),
        (r.prepare, "engine_fallback_rate", r.stage3_validation, "S3.5", "rate"),
        (r.fit, "final_val_mc_nll", r.stage4_validation, "S4.3", "final"),
    ):
        if stage is not None and validation is not None and check in validation:
            judged = validation[check]["numbers"][number]
            if stage[name] != judged:
                where = "prepare" if stage is r.prepare else "fit"
                yield fault(f"{key}.{where}.{name}", f"is not what {check} judged", stage[name], judged)
    for where, stage in (("prepare", r.prepare), ("fit", r.fit)):
        if stage is not None and not as_float(stage["wall_s"]) >= 0:
            yield fault(f"{key}.{where}.wall_s", "is no duration", stage["wall_s"], "seconds, 0 or more")


def _gate_faults(key: str, r: IterRecord) -> Iterator[Fault]:
    """Does a match agree with itself, and with how far the attempt came?"""
    if r.gate is None:
        return
    if missing := [k for k in gate.KEYS if k not in r.gate]:
        yield fault(f"{key}.gate.{missing[0]}", "is missing", "no such key", "the key")
        return
    if r.stage4_validation is None or r.weights is None:
        yield fault(f"{key}.gate", "a match without a candidate", "a match", "weights that fit wrote")
    if r.gate["exit_code"] is None:  # stopped on its way
        if r.status is not Status.INTERRUPTED:
            yield fault(f"{key}.gate.exit_code", f"does not go with status {r.status}", None, "an exit code")
        return
    if not as_float(r.gate["wall_s"]) >= 0:
        yield fault(f"{key}.gate.wall_s", "is no duration", r.gate["wall_s"], "seconds, 0 or more")
    if "failure" not in r.gate and (told := gate.contradiction(r.gate)) is not None:
        yield fault(f"{key}.gate", "contradicts itself", told, "numbers of one match")


def _verdict_faults(key: str, r: IterRecord) -> Iterator[Fault]:
    """Does the status follow from the checks?"""
    if r.status is Status.INTERRUPTED:
        return
    expected = status_by_checks(r)
    if expected is not r.status:
        yield fault(f"{key}.status", "does not follow from the checks", r.status, expected)


def status_by_checks(r: IterRecord) -> Status:
    """How an attempt that was not interrupted ended, by its recorded checks and exit codes."""
    for stage, validation in ((r.prepare, r.stage3_validation), (r.fit, r.stage4_validation)):
        if stage is None or validation is None or stage["exit_code"] != 0 or "failure" in validation:
            return Status.HARD_ABORTED
        if _failed(validation, lambda _, v: v["severity"] == Severity.HARD):
            return Status.HARD_ABORTED
    assert r.stage4_validation is not None
    soft = _failed(r.stage4_validation, lambda check, v: check == "S4.3")
    played = None if r.gate is None else gate.status(r.gate)
    return Status.REVERTED if soft else played or Status.PROMOTED


def _failed(validation: Json, counts: Callable[[str, Json], bool]) -> bool:
    return any(
        v["passed"] is False and counts(check, v) for check, v in validation.items() if check.startswith("S")
    )


# --- pointers ------------------------------------------------------------------------------------------------


def pointer_faults(content: Json, manifest: Manifest, doubted: Collection[str] = ()) -> list[Fault]:
    """The chain V_snap -> weights -> V_snap, `latest_good` and `best_val`, replayed from sound records.

    Args:
        content: the parsed file.
        manifest: the same, as `read_manifest` gives it.
        doubted: files that are at fault themselves: a hash that differs from theirs says nothing new.
    """
    faults = []
    latest, digest = BOOTSTRAP_COPY, manifest.bootstrap_sha256
    best: BestVal | None = None
    replays = None
    for k, r in enumerate(manifest.iters):
        if r.v_snap != latest:
            faults.append(fault(f"iters[{k}].v_snap", "is not what latest_good was then", r.v_snap, latest, "I8"))
        elif r.v_snap_sha256 != digest and latest not in doubted:
            what = "is not the hash of what latest_good was then"
            faults.append(fault(f"iters[{k}].v_snap_sha256", what, r.v_snap_sha256, digest, "I8"))
        used = r.replay_set_hash
        if replays is not None and used not in (None, replays) and r.status is Status.PROMOTED:
            faults.append(fault(f"iters[{k}]", "learned from other replays than before", used, replays, "I7"))
        replays = replays or used
        if r.status is Status.PROMOTED:
            assert r.weights is not None
            assert r.weights_sha256 is not None
            assert r.fit is not None
            latest, digest = r.weights, r.weights_sha256
            loss = as_float(r.fit["final_val_mc_nll"])
            if math.isfinite(loss) and (best is None or loss < best.val_mc_nll):
                best = BestVal(r.i, loss, r.weights)
    if manifest.latest_good != latest:
        faults.append(fault("latest_good", "is not the last promoted weights", manifest.latest_good, latest, "I8"))
    if manifest.best_val != best:
        what = "is not the lowest finite val_mc_nll of the promoted iterations"
        faults.append(fault("best_val", what, content["best_val"], best and asdict(best), "I8"))
    return faults


def first_difference(found: Any, expected: Any, path: str = "") -> tuple[str, Any, Any] | None:
    """Where two JSON values first differ, and both values there; None where they are equal."""
    if isinstance(found, dict) and isinstance(expected, dict):
        for key in [*expected, *(k for k in found if k not in expected)]:
            nothing = "no such key"
            inner = f"{path}.{key}" if path else key
            if key not in found or key not in expected:
                return inner, found.get(key, nothing), expected.get(key, nothing)
            if (difference := first_difference(found[key], expected[key], inner)) is not None:
                return difference
        return None
    same = type(found) is type(expected) and found == expected
    return None if same else (path, found, expected)
