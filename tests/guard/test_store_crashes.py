"""A store that is killed, or whose disk refuses, at each change: nothing is lost, and again completes it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from td_loop.files import read_json
from tests.crash.faults import Kind, read_changes
from tests.guard import scripts
from tests.guard.crashing import Server

STRIDE = {Kind.KILL: 1, Kind.EIO: 4, Kind.FULL: 2}
"""Every so many changes one is tried: after a kill nothing of ours runs, so all of them."""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as started:
        yield started


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prepared")
    scripts.prepare(folder)
    return folder


def outcome(folder: Path) -> dict[str, object]:
    """What a person finds, with the moments left out."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            found[name] = str(path.readlink())
        elif path.name == "snapshot.json":
            said = read_json(path)
            found[name] = {k: said[k] for k in ("step", "attempt", "sha256")} | {
                "promoted": said["promoted"] and said["promoted"]["healthy_steps"]
            }
        elif path.is_file():
            found[name] = path.read_bytes()
    return found


def contents(folder: Path) -> set[bytes]:
    return {p.read_bytes() for p in folder.rglob("*") if p.is_file() and not p.is_symlink()}


@pytest.fixture(scope="module")
def unspoiled(server: Server, prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    folder = shutil.copytree(prepared, tmp_path_factory.mktemp("unspoiled") / "run")
    code, said = server.run("whole", folder / "guard")
    assert (code, said) == (0, "")
    found = outcome(folder / "guard")
    names = {name.split("/")[1] for name in found if name.startswith(("snapshots/", "quarantine/"))}
    assert names == {f"step_{step:09d}_a0" for step in (20, 30, 40, 50)}
    assert found["active"] == found["stable_checkpoint_latest"] == "snapshots/step_000000030_a0/own.zip"
    return found


@pytest.mark.parametrize("kind", [Kind.KILL, Kind.EIO, Kind.FULL])
def test_a_fault_at_any_change_loses_nothing_and_running_again_completes_it(
    server: Server, prepared: Path, unspoiled: dict[str, object], tmp_path: Path, kind: Kind
) -> None:
    counted = shutil.copytree(prepared, tmp_path / "count")
    server.run("whole", counted / "guard", Kind.COUNT, tmp_path / "changes")
    changes = read_changes(tmp_path / "changes")
    assert {"mkdir", "rename", "symlink", "remove", "fsync", "create", "half write"} <= {c.what for c in changes}
    kept = {scripts.content(step) for step in (20, 30, 40, 50)}
    for point, change in enumerate(changes, 1):
        if (kind is Kind.FULL and not change.needs_space) or point % STRIDE[kind]:
            continue
        where = f"{kind} at {point}, {change}"
        folder = shutil.copytree(prepared, tmp_path / "run")
        code, said = server.run("whole", folder / "guard", kind, tmp_path / f"changes{point}", point)
        if kind is Kind.KILL:
            assert code == -9, where
        else:
            assert code in (0, 74), f"{where}\n{said}"
            if code:
                assert "then run again" in said, where
        assert kept <= contents(folder), f"{where}: lost"
        for link in ("active", "stable_checkpoint_latest"):
            path = folder / "guard" / link
            assert path.exists() or not path.is_symlink(), f"{where}: {link} leads to {path.readlink()}"
        code, said = server.run("whole", folder / "guard")
        assert (code, said) == (0, ""), where
        found = outcome(folder / "guard")
        assert found == unspoiled, where
        shutil.rmtree(folder)
