"""I1 to I11 of docs/architecture.md, asked of a run directory by somebody who uses none of td_loop's readers.

Every function returns what is wrong, in words; nothing is an empty list.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np

Json = dict[str, Any]
CACHES = re.compile(r"(trimmed/)?iter\d+(_retry\d+)?(\.\d+)?/branch_data\.npz")


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def violations(run: Path, bootstrap: Path) -> list[str]:
    """What does not hold in `run`, which began with the weights `bootstrap`; a fault may just have stopped it."""
    wrong: list[str] = []
    manifest = _manifest(run, wrong)
    if manifest is not None:
        wrong += _promotions(run, manifest, digest(bootstrap))
        wrong += _links(run, manifest)
    caches = [p for p in sorted(run.rglob("branch_data.npz")) if CACHES.fullmatch(str(p.relative_to(run)))]
    wrong += [f"{p.relative_to(run)}: {fault}" for p in caches for fault in _cache(p, run / "mc_rows.npz")]
    for path in run.rglob("*.json"):
        if path.name != "manifest.json":
            wrong += _parses(path)
    return wrong


def _manifest(run: Path, wrong: list[str]) -> Json | None:
    """I9: it parses. None where there is none: then there must be no result of a run either."""
    path = run / "manifest.json"
    if not path.exists():
        if list(run.glob("*/weights.npz")) or (run / "latest_good.npz").is_symlink():
            wrong.append("results, but no manifest")
        return None
    try:
        manifest: Json = json.loads(path.read_bytes())
    except ValueError as e:
        wrong.append(f"I9: manifest.json does not parse: {e}")
        return None
    return manifest


def _promotions(run: Path, manifest: Json, bootstrap: str) -> list[str]:
    """I8, I9, I11: what is named is there, each iteration was promoted once, its weights are what they were."""
    wrong = []
    if not (run / "iter0/V_snap.npz").is_file() or digest(run / "iter0/V_snap.npz") != bootstrap:
        wrong.append("I11: iter0/V_snap.npz is not the bootstrap")
    if manifest["bootstrap_sha256"] != bootstrap:
        wrong.append("manifest: another bootstrap_sha256")
    records = [r for record in manifest["iters"] for r in (record, record.get("previous_attempt")) if r]
    promoted = [r for r in records if r["status"] == "promoted"]
    if any((r["status"] == "promoted") != r["promoted_to_latest_good"] for r in records):
        wrong.append("status and promoted_to_latest_good differ")
    if [r["i"] for r in manifest["iters"]] != list(range(len(manifest["iters"]))):
        wrong.append(f"iterations {[r['i'] for r in manifest['iters']]}")
    if any(r["status"] != "promoted" for r in manifest["iters"][:-1]):
        wrong.append("an iteration follows one that was not promoted")
    if len({r["i"] for r in promoted}) < len(promoted) or len({r["weights"] for r in promoted}) < len(promoted):
        wrong.append("promoted twice")
    good, good_sha256 = "iter0/V_snap.npz", bootstrap
    for r in manifest["iters"]:
        if (r["v_snap"], r["v_snap_sha256"]) != (good, good_sha256):
            wrong.append(f"iteration {r['i']} did not start from the last promoted weights")
        if r["status"] == "promoted":
            good, good_sha256 = r["weights"], r["weights_sha256"]
    if manifest["latest_good"] != good:
        wrong.append(f"I8: latest_good is {manifest['latest_good']}, last promoted was {good}")
    for r in records:
        for name, sha256 in ((r["weights"], r["weights_sha256"]), (r["v_snap"], r["v_snap_sha256"])):
            if name is not None and not (run / name).is_file():
                wrong.append(f"I9: the manifest names {name}, which is not there")
            elif name is not None and digest(run / name) != sha256:
                wrong.append(f"I8: {name} has another sha256 than its record")
        if not (run / r["iter_dir"]).is_dir():
            wrong.append(f"I9: the manifest names {r['iter_dir']}, which is not there")
    return wrong + _best(manifest, promoted)


def _best(manifest: Json, promoted: list[Json]) -> list[str]:
    losses = [(r["fit"]["final_val_mc_nll"], r["i"], r["weights"]) for r in promoted]
    finite = [entry for entry in losses if isinstance(entry[0], float) and math.isfinite(entry[0])]
    best = manifest["best_val"]
    found = None if best is None else (best["val_mc_nll"], best["iter"], best["path"])
    return [] if found == min(finite, default=None) else [f"best_val is {found}"]


def _links(run: Path, manifest: Json) -> list[str]:
    """I8: the links lead to promoted weights, once there are such; they are derived last, so may lag behind."""
    was_good = ["iter0/V_snap.npz"] + [r["weights"] for r in manifest["iters"] if r["status"] == "promoted"]
    wrong = []
    for name, choice in (("latest_good.npz", was_good), ("best_val.npz", was_good[1:])):
        link = run / name
        if not link.is_symlink():
            if len(was_good) > 2:  # of the first promotion, the link may not be there yet
                wrong.append(f"I8: {name} is no link")
        elif str(link.readlink()) not in choice or not link.is_file():
            wrong.append(f"I8: {name} leads to {link.readlink()}, which was not promoted")
    return wrong


def _cache(path: Path, mc_rows: Path) -> list[str]:
    """I1 to I7 of one branch_data.npz."""
    try:
        with np.load(path) as z:
            c = {name: z[name] for name in z.files}
        with np.load(mc_rows) as z:
            mc = {name: z[name] for name in z.files}
    except Exception as e:  # whatever numpy says of half a file
        return [f"cannot be read: {e}"]
    meta = json.loads(str(c["meta"]))
    lengths = [{len(c[name]) for name in c if re.search(rf"branch_{b}_|rows_{b}$", name)} for b in "ra"]
    if max(map(len, lengths)) > 1 or sum(map(sum, lengths)) != meta["n"]:
        return ["I1: n_r + n_a != n"]
    wrong, games = [], []
    for b in "ra":
        target, alive = c[f"branch_{b}_target"], c[f"alive_at_s_for_rows_{b}"]
        focal, players = c[f"branch_{b}_focal_seat"], c[f"branch_{b}_n_players"]
        games.append(c[f"branch_{b}_frame_id"] >> 11)
        beyond = np.arange(4) >= players[:, None]
        if not (np.isfinite(target).all() and np.allclose((target * alive).sum(axis=1), 1.0, atol=1e-5)):
            wrong.append(f"I2: targets of branch {b}")
        if target[beyond].any() or alive[beyond].any() or c[f"branch_{b}_features"][beyond].any():
            wrong.append(f"I3: branch {b} has something beyond P")
        if not alive[np.arange(len(focal)), focal].all():
            wrong.append(f"I4: a focal seat of branch {b} is dead")
        if (target[~alive] > 0).any():
            wrong.append(f"I5: target mass on a dead seat in branch {b}")
        if not np.isfinite(c[f"branch_{b}_features"]).all():
            wrong.append(f"I6: features of branch {b}")
    validation = {int(g) for g in mc["frame_id"][mc["is_validation"]] >> 11}
    training = {int(g) for g in mc["frame_id"][~mc["is_validation"]] >> 11} | {
        int(g) for g in np.concatenate(games)
    }
    if validation & training or not validation:
        wrong.append("I7: a game is in both train and validation")
    return wrong


def _parses(path: Path) -> list[str]:
    try:
        json.loads(path.read_bytes())
    except ValueError as e:
        return [f"{path.name} does not parse: {e}"]
    return []


# --- how a run ended ---------------------------------------------------------------------------------------


def ending(run: Path) -> Json:
    """What runs of the same flags must share when they have ended: manifest less times, files, weights, links.

    Not the logs: the output of a stage may come from an attempt that was set aside, where its log stays.
    """
    names = sorted(str(p.relative_to(run)) for p in run.rglob("*") if p.suffix != ".log")
    weights = [p for p in run.glob("iter*/*.npz") if p.name != "branch_data.npz"]
    return {
        "manifest": _without_times(json.loads((run / "manifest.json").read_bytes())),
        "files": [name for name in names if name.split("/")[0] != "trimmed"],
        "weights": {str(p.relative_to(run)): digest(p) for p in weights},
        "targets": {str(p.relative_to(run)): _targets(p) for p in run.glob("iter*/branch_data.npz")},
        "links": {name: str((run / name).readlink()) for name in ("latest_good.npz", "best_val.npz")},
    }


def differences(run: Path, wanted: Json, *, pruned: bool = True) -> list[str]:
    """What of `wanted` (an `ending`) is otherwise in `run`; with `pruned` False, more files may be there."""
    found = ending(run)
    if not pruned:
        found["files"] = [name for name in found["files"] if name in wanted["files"]]
        found["targets"] = {name: found["targets"].get(name) for name in wanted["targets"]}
    other = [key for key in wanted if found[key] != wanted[key]]
    return [f"I10: other {key} than in the undisturbed run: {_first(found[key], wanted[key])}" for key in other]


def temporary_files(run: Path) -> list[str]:
    """Half-written files that nobody swept."""
    return [f"left behind: {p.relative_to(run)}" for p in sorted(run.rglob(".*.tmp"))]


def _targets(path: Path) -> str:
    """A hash of a cache's arrays; its meta holds times."""
    h = hashlib.sha256()
    with np.load(path) as z:
        for name in sorted(set(z.files) - {"meta"}):
            h.update(name.encode() + z[name].tobytes())
    return h.hexdigest()


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_times(v) for key, v in value.items() if key != "wall_s"}
    return [_without_times(v) for v in value] if isinstance(value, list) else value


def _first(found: Any, wanted: Any, at: str = "") -> str:
    """Where two JSON values first differ."""
    if isinstance(found, dict) and isinstance(wanted, dict):
        for key in sorted(found.keys() | wanted.keys()):
            if key not in found or key not in wanted:
                return f"{at}/{key} is {'missing' if key in wanted else 'new'}"
            if found[key] != wanted[key]:
                return _first(found[key], wanted[key], f"{at}/{key}")
    if isinstance(found, list) and isinstance(wanted, list):
        strange = [x for x in found if x not in wanted], [x for x in wanted if x not in found]
        if len(found) == len(wanted):
            k = next(k for k, (a, b) in enumerate(zip(found, wanted, strict=True)) if a != b)
            return _first(found[k], wanted[k], f"{at}/{k}")
        return f"{at} has {strange[0]}, lacks {strange[1]}"
    return f"{at}: {found!r}, not {wanted!r}"
