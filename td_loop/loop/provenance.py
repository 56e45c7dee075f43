"""What a stage's output was made from. Outputs of equal provenance are equal: a finished one can be used again.

The driver writes it into the attempt's folder before the stage starts; which outputs are finished, the outputs
themselves say. Settings that change how fast a stage runs and not what it writes (workers, cache folder) are left
out; the programs, the game and the replay files count with their content or their dates.
"""

from __future__ import annotations

import glob
import hashlib
import shlex
import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from td_loop.errors import DataError
from td_loop.files import read_json, sha256, write_json
from td_loop.loop.config import Guard, RunConfig
from td_loop.loop.layout import PROVENANCE
from td_loop.loop.outputs import FORMAT_VERSION

Json = dict[str, Any]

_HEX = 64
"""Digits of a SHA-256, which tell a person nothing."""
FINISHED = "finished"
"""Key that is added once the stage has ended well: the hash of its output."""


def of_prepare(config: RunConfig, i: int, v_snap_sha256: str) -> Json:
    """Of iteration `i`'s `branch_data.npz`; `config` is the attempt's."""
    settings = asdict(config.prepare)
    del settings["workers"]
    # An evaluation budget replaces the other: that one then decides nothing.
    del settings["budget_evals" if config.prepare.budget_evals is None else "budget_s"]
    return {
        "prepare_cmd": config.prepare_cmd,
        "prepare's code": _code(config.prepare_cmd, "prepare", "games", "value"),
        "format_version": FORMAT_VERSION,
        "V_snap": v_snap_sha256,
        "seed": config.seed,
        "iter_index": i,
        **settings,
        "game": config.game,
        "the game's code": _hash_of(_module_files(config.game)),
        "replays": None if config.replays is None else str(config.replays.absolute()),
        "the replay files": None if config.replays is None else _listing(config.replays),
    }


def of_fit(config: RunConfig, i: int, v_snap_sha256: str, branch_data: Path, mc_rows: Path) -> Json:
    """Of iteration `i`'s `weights.npz`; `config` is the attempt's, the files are those that fit will read."""
    return {
        "fit_cmd": config.fit_cmd,
        "fit's code": _code(config.fit_cmd, "fit", "value"),
        "V_snap": v_snap_sha256,
        "branch_data": sha256(branch_data),
        "mc_rows": sha256(mc_rows) if mc_rows.is_file() else None,
        "seed": config.seed + i,
        **asdict(config.fit),
        **({} if config.guard is Guard.NONE else _guard(config)),
    }


def of_gate(config: RunConfig, i: int, candidate: Path, opponent_sha256: str) -> Json:
    """Of the games of iteration `i`'s match. How many there may be, and what they decide, is no part of it.

    `config` is the attempt's, `candidate` the weights that want to be promoted.
    """
    from td_loop.kernels import sources_hash  # numba, which takes a second to import

    seconds, evals = config.match.limit(config.prepare)
    return {
        "the arena's code": _code(None, "arena", "games", "value"),
        "the kernels": sources_hash(),
        "candidate": sha256(candidate),
        "latest_good": opponent_sha256,
        "seed": config.seed + i,
        "budget_s": seconds,
        "budget_evals": evals,
        "game": config.game,
        "the game's code": _hash_of(_module_files(config.game)),
    }


def _guard(config: RunConfig) -> Json:
    """What a guard may change of fit's output: whether it goes on, and from when on it trips."""
    settings = config.guard_config
    return {"guard": str(config.guard), "guard_config": None if settings is None else sha256(settings)}


def write(folder: Path, **stages: Json) -> None:
    """Note the provenance of an attempt's stages, by name, beside what is noted already."""
    write_json(folder / PROVENANCE, read(folder) | stages)


def finish(folder: Path, stage: str, output: Path) -> None:
    """Note that the stage has ended well and that `output`, which is valid, is what it wrote."""
    write(folder, **{stage: read(folder).get(stage, {}) | {FINISHED: sha256(output)}})


def finished(noted: Any, output: Path) -> bool:
    """Whether the stage of a noted provenance ended well with this output."""
    return isinstance(noted, dict) and noted.get(FINISHED) == sha256(output)


def read(folder: Path) -> Json:
    """The provenance of an attempt's stages, by name; empty where none is noted."""
    try:
        noted = read_json(folder / PROVENANCE)
    except DataError:
        return {}
    return noted if isinstance(noted, dict) else {}


def difference(was: Any, now: Json) -> str | None:
    """In words, how a noted provenance differs from the one that is asked for; None: it does not."""
    if not isinstance(was, dict):
        return "what it was made from is not known"
    was = {key: value for key, value in was.items() if key != FINISHED}
    for key in [*now, *(key for key in was if key not in now)]:
        old, new = was.get(key), now.get(key)
        if old == new:
            continue
        if key not in was or key not in now:
            return f"{key} {'is new' if key in now else 'is gone'}"
        is_hash = isinstance(old, str) and isinstance(new, str) and len(old) == len(new) == _HEX
        return f"{key} changed" if is_hash else f"{key} was {old} and is {new}"
    return None


def _code(command: str | None, *rooms: str) -> str:
    """Hash of our own sources (and the bundled games), or of those words of a user's command that are files."""
    if command is not None:
        return _hash_of(Path(word) for word in shlex.split(command) if Path(word).is_file())
    package = Path(__file__).parents[1]
    files = [p for room in rooms for p in (package / room).rglob("*") if p.suffix in (".py", ".npz")]
    return _hash_of([*files, package / "rng.py"])


def _module_files(game: str) -> list[Path]:
    """The file of a game of the user's own, `package.module:ATTRIBUTE`. It is not imported here."""
    module = game.partition(":")[0]
    if module == game:
        return []
    stem = module.replace(".", "/")
    places = (Path(folder or ".") / name for folder in sys.path for name in (f"{stem}.py", f"{stem}/__init__.py"))
    return [p for p in places if p.is_file()][:1]


def _hash_of(files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(f"{path.name} {sha256(path)}\n".encode())
    return digest.hexdigest()


def _listing(replays: Path) -> str:
    """Hash of names, sizes and dates of the replay files, which may be gigabytes."""
    digest = hashlib.sha256()
    for name in sorted(glob.glob(str(replays))) or [str(replays)]:  # noqa: PTH207 (the flag takes a pattern)
        root = Path(name)
        for path in sorted(root.rglob("*")) if root.is_dir() else [root]:
            if path.is_file():
                stat = path.stat()
                digest.update(f"{path.relative_to(root)} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    return digest.hexdigest()
