"""Make a Kaggle submission of weights: `main.py`, the modules that its search imports, weights, compiled kernels.

What is written has been tried before: in an environment of nothing but the standard library, numpy and numba, and
in games. A submission that fails is not written.
"""

from __future__ import annotations

import ast
import hashlib
import io
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path

import numba
import numpy as np

from td_loop import kernels
from td_loop.errors import TdLoopError, UsageError
from td_loop.files import atomic_folder, follow, fsync_file, make_dir, write_bytes
from td_loop.games.orbit_wars.features import FEATURE_NAMES
from td_loop.games.orbit_wars.trial import Report, Setting
from td_loop.value.io import load_weights

_HERE = Path(__file__).parent
_PACKAGE = _HERE.parents[1]
_WORKER = "td_loop.games.orbit_wars.search_worker"
_TRIAL = "td_loop.games.orbit_wars.trial"
_KERNELS = "kernels"
_ALLOWED = ("numpy", "numba", "llvmlite")
_DATE = 1_600_000_000  # of the files in an archive: the same submission gives the same bytes
_COMPILE_S = 1200.0
_GAME_S = 3600.0

TRIALS = (
    Setting(main="", seed=7, episode_steps=24, broken_observations=True),
    Setting(main="", seed=11, n_players=4, seat=2, episode_steps=180, act_timeout=0.1),
)
"""What a submission must get through: the real clock for a while, and many quick turns with four seats."""


class BrokenSubmission(TdLoopError):
    """The submission failed its trial; nothing was written."""

    exit_code = 1


def module_closure(module: str) -> dict[str, Path]:
    """The modules of td_loop that importing `module` imports, itself and its packages included: name -> file.

    Imports inside functions are not followed: they are for what a submission never does (open replays, say).
    """
    found: dict[str, Path] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        file = _file_of(name)
        if name in found or file is None:
            continue
        found[name] = file
        waiting += [name.rpartition(".")[0], *_imports(ast.parse(file.read_text()).body)]
    return found


def _file_of(name: str) -> Path | None:
    """The source of a module of td_loop; None for other names, and for what is no module (a name in one)."""
    package, _, rest = name.partition(".")
    if package != "td_loop":
        return None
    path = _PACKAGE.joinpath(*rest.split(".")) if rest else _PACKAGE
    candidates = (path / "__init__.py", path.with_suffix(".py"))
    return next((c for c in candidates if c.is_file()), None)


def _imports(body: Iterable[ast.stmt]) -> list[str]:
    """What importing a module imports: its statements outside of functions, `if TYPE_CHECKING` left out."""
    names: list[str] = []
    for node in body:
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.If) and ast.unparse(node.test) != "TYPE_CHECKING":
            names += _imports([*node.body, *node.orelse])
        elif isinstance(node, ast.Try | ast.With):
            names += _imports(node.body)
    return names


def submission_files(weights: Path) -> dict[str, bytes]:
    """The files of a submission by name, compiled kernels aside.

    Raises:
        WeightsError: weights that cannot be used, or made for other features.
    """
    load_weights(weights, feature_names=FEATURE_NAMES)
    files = {
        "main.py": (_HERE / "kaggle_agent.py").read_bytes(),
        "fast_rule.py": (_HERE / "fast_rule.py").read_bytes(),
    }
    for file in module_closure(_WORKER).values():
        files[f"td_loop/{file.relative_to(_PACKAGE)}"] = file.read_bytes()
    return {**files, "weights.npz": follow(weights).read_bytes()}


def export(weights: Path, out: Path, *, say: Callable[[str], None], official: bool | None = None) -> list[Report]:
    """Make a submission, try it, and write it to `out`: an archive when its name ends so, else a new folder.

    Args:
        weights: the value function.
        out: `….tar.gz`, or a folder; must not be there.
        say: told what is done, a line at a time.
        official: try it through the official environment; None: if it is installed.

    Returns:
        What the trial games showed.

    Raises:
        UsageError: `out` is there.
        WeightsError: see `submission_files`.
        BrokenSubmission: it failed its trial.
        StorageError: the disk is full, read-only or failing.
    """
    if out.exists() or out.is_symlink():
        raise UsageError(f"--out {out} is there already; remove it, or choose another name")
    files = submission_files(weights)
    with tempfile.TemporaryDirectory(prefix="td_loop-export-") as temporary:
        stage, caches = Path(temporary, "submission"), Path(temporary, "cache")
        _write(stage, files)
        sources = sum(name.startswith("td_loop/") for name in files)
        say(f"{sources} modules of td_loop, found by their imports; weights {weights}")
        _check_imports(stage, caches / "imports")
        say(f"imports nothing but the standard library and {', '.join(_ALLOWED)}")
        _add_kernels(stage, files, say)
        reports = []
        for setting in TRIALS:
            report = try_out(stage / "main.py", setting, caches / "trial", official=official)
            say(describe(setting, report))
            reports.append(report)
        files |= {
            f"{_KERNELS}/{p.relative_to(stage / _KERNELS)}": p.read_bytes() for p in _files(stage / _KERNELS)
        }
    if out.name.endswith((".tar.gz", ".tgz")):
        write_bytes(out, _archive(files))
    else:
        make_dir(out.parent)
        with atomic_folder(out) as folder:
            _write(folder, files, durable=True)
    size = out.stat().st_size if out.is_file() else sum(len(data) for data in files.values())
    say(f"{out}: {len(files)} files, {size / 1e6:.1f} MB")
    return reports


def _write(folder: Path, files: dict[str, bytes], *, durable: bool = False) -> None:
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        if durable:
            fsync_file(path)


def _files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.is_file())


def _archive(files: dict[str, bytes]) -> bytes:
    """A tar.gz of the files; `main.py` stands at its top, as the official loader wants it."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=9) as tar:
        for name, data in sorted(files.items()):
            info = tarfile.TarInfo(name)
            info.size, info.mtime, info.mode = len(data), _DATE, 0o644
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


# --- the trial -------------------------------------------------------------------------------------------

# Refuses every import but the standard library's, those allowed, and those from the submission's own folder.
_STRICT = """
import importlib.machinery, sys
allowed = {*sys.stdlib_module_names, %(allowed)s}
class Strict:
    def find_spec(self, name, path=None, target=None):
        top = name.partition('.')[0]
        if top == 'td_loop':
            spec = importlib.machinery.PathFinder.find_spec(name, path or [%(folder)r])
            if spec is None or not spec.origin.startswith(%(folder)r):
                raise ImportError(f'{name} is not in the submission')
            return spec
        if top not in allowed:
            raise ModuleNotFoundError(f'No module named {name!r}', name=name)
sys.meta_path.insert(0, Strict())
import %(worker)s
exec(compile(open(%(main)r).read(), %(main)r, 'exec'), {})
"""


def _check_imports(stage: Path, cache: Path) -> None:
    allowed = ", ".join(map(repr, _ALLOWED))
    code = _STRICT % {
        "allowed": allowed, "folder": str(stage), "worker": _WORKER, "main": str(stage / "main.py"),
    }  # fmt: skip
    _run([sys.executable, "-I", "-c", code], stage, cache, "it imports what is not in it", 300.0)


def _run(command: list[str], cwd: Path, cache: Path | None, what: str, seconds: float) -> str:
    """Standard output of a command; its errors are the fault of the submission."""
    env = {**os.environ}
    if cache is not None:  # as `kaggle_agent` starts its child
        env |= {"TD_LOOP_CACHE": str(cache), "NUMBA_CPU_NAME": "generic"}
    env["PYTHONPATH"] = os.pathsep.join(p for p in (str(_PACKAGE.parent), os.environ.get("PYTHONPATH")) if p)
    try:
        done = subprocess.run(
            command, cwd=cwd, env=env, capture_output=True, text=True, timeout=seconds, stdin=subprocess.DEVNULL,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as e:
        raise BrokenSubmission(
            f"the submission fails, nothing was written: {what}: not done in {seconds:g} s"
        ) from e
    if done.returncode != 0:
        last = "\n".join(done.stderr.strip().splitlines()[-3:])
        raise BrokenSubmission(f"the submission fails, nothing was written: {what}:\n{last}")
    return done.stdout


def _add_kernels(stage: Path, files: dict[str, bytes], say: Callable[[str], None]) -> None:
    """Put compiled kernels into a submission: those of the last export of the same code, if there are any."""
    code = hashlib.sha256()
    for name, data in sorted(files.items()):
        if name.startswith("td_loop/"):
            code.update(f"{name}\0{len(data)}\0".encode() + data)
    code.update(f"{sys.version}\0{numba.__version__}\0{np.__version__}\0{platform.machine()}".encode())
    kept = kernels.cache_dir() / f"kernels-submission-{code.hexdigest()[:16]}"
    if kept.is_dir():
        say("kernels: compiled by an earlier export of the same code")
    else:
        say("kernels: being compiled, which takes a minute")
        _compile(stage, kept)
    os.utime(kept)
    shutil.copytree(kept, stage / _KERNELS)


def _compile(stage: Path, kept: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="td_loop-export-") as cache:
        code = (
            "import sys, json; from pathlib import Path; sys.path.insert(0, sys.argv[1]); "
            f"from {_WORKER} import Decider, cached_rooms; Decider(Path(sys.argv[1], 'weights.npz')).warm_up(); "
            "print(json.dumps({name: str(path) for name, path in cached_rooms().items()}))"
        )
        # -I: this program's own td_loop must not stand in for the submission's.
        out = _run([sys.executable, "-I", "-c", code, str(stage)], stage, Path(cache), "its kernels", _COMPILE_S)
        rooms = {name: Path(path) for name, path in json.loads(out).items()}
        make_dir(kept.parent)
        try:
            with atomic_folder(kept) as folder:
                for name, path in rooms.items():
                    for file in _files(path) if path.is_dir() else ():
                        (folder / name).mkdir(exist_ok=True)
                        shutil.copyfile(file, folder / name / file.name)
                        fsync_file(folder / name / file.name)
        except FileExistsError:  # another export was faster
            return


def try_out(main: Path, setting: Setting, cache: Path, *, official: bool | None = None) -> Report:
    """Play one game of a submission in a process of its own.

    Raises:
        BrokenSubmission: it failed, or its search never played.
    """
    make_dir(cache)  # run there: beside main.py stands another td_loop
    asked = {**asdict(setting), "main": str(main), "official": official, "cache": str(cache)}
    out = _run([sys.executable, "-m", _TRIAL, json.dumps(asked)], cache, None, "a game", _GAME_S)
    report = Report(**json.loads(out))
    faults = list(report.faults)
    if sum(report.fallbacks.values()) * 4 > report.turns:
        faults.append(f"the rule played in place of the search: {report.fallbacks}")
    if faults:
        raise BrokenSubmission(
            f"the submission fails, nothing was written: {len(faults)} faults in a game of {setting.n_players} "
            f"seats, seed {setting.seed}; the first: {faults[0]}"
        )
    return report


def describe(setting: Setting, report: Report) -> str:
    """One line about a game."""
    where = "the official environment" if report.official else "our environment"
    rule = sum(report.fallbacks.values())
    return (
        f"{setting.n_players} seats, {report.turns} turns in {where}: {'won' if report.won else 'not won'}; "
        f"first move {report.seconds[0]:.2f} s, longest other {max(report.seconds[1:], default=0.0):.2f} s of "
        f"{setting.act_timeout:g} s, {report.overage:.1f} s of overage left, the rule played {rule} times"
    )
