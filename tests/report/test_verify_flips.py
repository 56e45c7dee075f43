"""One flipped bit, anywhere in a file that matters, is reported."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from td_loop.loop.verify import faults

# Of an attempt that is on record nobody reads its provenance again; logs and the lock are for people.
BESIDE = {".lock", "provenance.json"}


@pytest.fixture(scope="module", params=["retried", "gated"])
def run(request: pytest.FixtureRequest, made: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = made[request.param]
    target = tmp_path_factory.mktemp("flips") / source.name
    shutil.copytree(source, target, symlinks=True)
    return target


def without_times(value: Any) -> Any:
    """A JSON value without what stands in no second place: how long the stages took."""
    if isinstance(value, dict):
        return {key: without_times(v) for key, v in value.items() if key != "wall_s"}
    return [without_times(v) for v in value] if isinstance(value, list) else value


def reads_the_same(path: Path, before: bytes, after: bytes) -> bool:
    """Whether the flip hit a time, or spells the same content in another way ("1e-05", "1E-05")."""
    if path.suffix != ".json":
        return False
    try:
        return bool(without_times(orjson.loads(after)) == without_times(orjson.loads(before)))
    except orjson.JSONDecodeError:
        return False


def matters(run: Path) -> list[Path]:
    return sorted(p for p in run.rglob("*") if p.is_file() and not p.is_symlink() and p.name not in BESIDE)


@settings(max_examples=150)
@given(data=st.data())
def test_a_flipped_bit_is_reported(run: Path, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(matters(run)))
    before = path.read_bytes()
    at, bit = data.draw(st.integers(0, len(before) - 1)), data.draw(st.integers(0, 7))
    after = before[:at] + bytes([before[at] ^ 1 << bit]) + before[at + 1 :]
    path.write_bytes(after)
    try:
        assert faults(run) or reads_the_same(path, before, after), f"{path} byte {at} bit {bit}"
    finally:
        path.write_bytes(before)


def test_there_are_files_that_matter_and_nothing_is_wrong_with_them(run: Path) -> None:
    kinds = {p.name for p in matters(run)}
    assert kinds >= {
        "manifest.json",
        "validation.json",
        "weights.npz",
        "V_snap.npz",
        "branch_data.npz",
        "mc_rows.npz",
    }
    assert faults(run) == []
