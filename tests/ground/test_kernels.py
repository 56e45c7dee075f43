"""kernels.py: the cache folder changes with everything that a kernel is made from; who may make arrays."""

from __future__ import annotations

import importlib
import os
import pkgutil
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numba
import numpy as np
import pytest

import td_loop
from td_loop.kernels import allocating, kernel

HASH = "from td_loop import kernels; print(kernels.config.CACHE_DIR)"


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A folder with a copy of the package's sources."""
    without = shutil.ignore_patterns("__pycache__", "data")
    shutil.copytree(Path(td_loop.__file__).parent, tmp_path / "td_loop", ignore=without)
    return tmp_path


def cache_folder(root: Path, cache: Path) -> str:
    env = {**os.environ, "PYTHONPATH": str(root), "TD_LOOP_CACHE": str(cache)}
    run = [sys.executable, "-c", HASH]
    return subprocess.run(run, cwd=root, env=env, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize(
    ("file", "old", "new", "moves"),
    [
        (
            "games/orbit_wars/state.py",
            "SUN_RADIUS = 10.0",
            "SUN_RADIUS = 9.0",
            True,
        ),  # frozen in another file's kernel
        (
            "games/orbit_wars/replays/record.py",
            "P_X, P_Y, P_RADIUS = 0, 1, 2",
            "P_X, P_Y, P_RADIUS = 1, 0, 2",
            True,
        ),
        ("value/kernel.py", "from __future__", "# changed\nfrom __future__", True),
        ("kernels.py", '"nogil": True', '"nogil": False', True),
        ("errors.py", "from __future__", "# changed\nfrom __future__", False),
    ],
)
def test_what_a_kernel_may_have_frozen_moves_the_cache(
    copied: Path, tmp_path: Path, file: str, old: str, new: str, moves: bool
) -> None:
    before = cache_folder(copied, tmp_path / "cache")
    assert str(tmp_path / "cache") in before
    source = copied / "td_loop" / file
    assert old in source.read_text()
    source.write_text(source.read_text().replace(old, new))
    assert (cache_folder(copied, tmp_path / "cache") != before) == moves


def test_a_new_file_among_the_kernels_moves_the_cache(copied: Path, tmp_path: Path) -> None:
    before = cache_folder(copied, tmp_path / "cache")
    (copied / "td_loop" / "value" / "new.py").write_text("")
    assert cache_folder(copied, tmp_path / "cache") != before


def test_a_cache_that_nobody_used_for_long_is_deleted(tmp_path: Path) -> None:
    old, recent, other = (tmp_path / name for name in ("kernels-old", "kernels-recent", "replays-old"))
    for folder, days in ((old, 31), (recent, 29), (other, 31)):
        folder.mkdir()
        (folder / "file").touch()
        os.utime(folder, (time.time() - 86_400 * days,) * 2)
    used = Path(cache_folder(Path(td_loop.__file__).parent.parent, tmp_path).strip())
    assert sorted(tmp_path.iterdir()) == sorted([used, recent, other])


def test_a_cache_in_use_counts_as_used(tmp_path: Path) -> None:
    root = Path(td_loop.__file__).parent.parent
    used = Path(cache_folder(root, tmp_path).strip())
    os.utime(used, (0, 0))
    cache_folder(root, tmp_path)
    assert used.stat().st_mtime > 0


def test_numba_with_the_vector_library_is_refused() -> None:
    imports = "import numba; numba.config.USING_SVML = True; import td_loop.kernels"
    env = {**os.environ, "PYTHONPATH": str(Path(td_loop.__file__).parent.parent)}
    run = subprocess.run([sys.executable, "-c", imports], env=env, check=False, capture_output=True, text=True)
    assert run.returncode != 0
    assert "TdLoopError: numba was imported before td_loop" in run.stderr


def test_a_read_only_cache_folder_does_not_stop_the_program(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    assert "kernels-" in cache_folder(Path(td_loop.__file__).parent.parent, blocked)


@allocating
def _makes_and_says_so() -> np.ndarray:
    return np.full(3, 7.0)


@kernel
def _makes() -> np.ndarray:
    return np.full(3, 7.0)


def test_a_kernel_that_makes_arrays_must_say_so() -> None:
    assert _makes_and_says_so().tolist() == [7.0, 7.0, 7.0]
    with pytest.raises(numba.core.errors.TypingError):
        _makes()


def test_no_kernel_takes_an_array_that_it_would_never_free() -> None:
    """What `allocating` kernels return is counted; a `kernel` that called one would keep it for ever."""
    seen, leaks = 0, []
    for info in pkgutil.walk_packages(td_loop.__path__, "td_loop."):
        if not info.name.startswith(("td_loop.games.", "td_loop.value.")):
            continue
        for caller in vars(importlib.import_module(info.name)).values():
            if not isinstance(caller, numba.core.registry.CPUDispatcher) or caller.targetoptions["_nrt"]:
                continue
            seen += 1
            for name in caller.py_func.__code__.co_names:
                called = caller.py_func.__globals__.get(name)
                if isinstance(called, numba.core.registry.CPUDispatcher) and called.targetoptions["_nrt"]:
                    gives = called.py_func.__annotations__["return"]
                    if gives != "None":
                        leaks.append((caller.py_func.__qualname__, name))
    assert seen > 50
    assert leaks == []
