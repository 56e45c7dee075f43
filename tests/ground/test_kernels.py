"""kernels.py: the cache folder changes with every kernel source."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import td_loop

HASH = "from td_loop import kernels; print(kernels.config.CACHE_DIR)"


def cache_folder(root: Path, cache: Path) -> str:
    env = {**os.environ, "PYTHONPATH": str(root), "TD_LOOP_CACHE": str(cache)}
    run = [sys.executable, "-c", HASH]
    return subprocess.run(run, cwd=root, env=env, check=True, capture_output=True, text=True).stdout


def test_a_changed_kernel_file_moves_the_cache_and_another_file_does_not(tmp_path: Path) -> None:
    source = Path(td_loop.__file__).parent
    shutil.copytree(source, tmp_path / "td_loop", ignore=shutil.ignore_patterns("__pycache__", "data"))
    before = cache_folder(tmp_path, tmp_path / "cache")
    assert str(tmp_path / "cache") in before
    plain = tmp_path / "td_loop" / "errors.py"
    plain.write_text(plain.read_text() + "\n")
    assert cache_folder(tmp_path, tmp_path / "cache") == before
    (tmp_path / "td_loop" / "value" / "new.py").write_text("from td_loop.kernels import kernel\n")
    assert cache_folder(tmp_path, tmp_path / "cache") != before


def test_a_read_only_cache_folder_does_not_stop_the_program(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    assert "kernels-" in cache_folder(Path(td_loop.__file__).parent.parent, blocked)
