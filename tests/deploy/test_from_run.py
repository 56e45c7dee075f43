"""`td-loop deploy from-run`: the pick of a run, as a canary."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from td_loop import cli
from td_loop.deploy.admission.record import is_verified
from td_loop.deploy.canary import store
from td_loop.files import make_dir, point, sha256
from td_loop.loop.layout import BOOTSTRAP_COPY
from td_loop.loop.manifest import Manifest, write_manifest
from tests.deploy.orbit_policy import strong_weights, write_policy
from tests.deploy.serving import PATIENCE_S, ROOT, Server, started, wait_until, with_record
from tests.deploy.street import run_command

SMALL = shlex.split(
    "--games 2 --rounds 1 --teacher-evals 1 --labelled 0.02 --epochs 1 --last-epochs 1 --sla-ms 1000"
)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run that has only its bootstrap, which was picked."""
    folder = tmp_path / "td_loop_picked"
    make_dir(folder / "iter0")
    shutil.copyfile(ROOT / "models" / "value_spline_v2.npz", folder / BOOTSTRAP_COPY)
    write_manifest(folder, Manifest.new("picked", sha256(folder / BOOTSTRAP_COPY), {}))
    point(folder / "deploy.npz", BOOTSTRAP_COPY)
    return folder


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    stable = with_record(write_policy(tmp_path / "stable.onnx", strong_weights()))
    with started(tmp_path / "deploy", "--stable", stable.path) as found:
        yield found


def stage(folder: Path) -> str:
    return "" if (found := store.under_way(folder)) is None else str(found.stage)


def test_a_pick_becomes_a_canary_that_is_watched_and_the_same_command_goes_on(run: Path, server: Server) -> None:
    words = ("deploy", "from-run", run, *SMALL, "--dir", server.folder)
    process = run_command(*words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        wait_until(lambda: stage(server.folder) == "shadow" or process.poll() is not None)
    finally:
        process.terminate()
    said, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 143, said
    [artefact] = (run / "policies").glob("bootstrap-*.onnx")
    assert is_verified(artefact)
    assert "fitted to the search with" in said
    with server.client() as client:
        assert client.policies()["canary"] == {"path": str(artefact), "sha256": sha256(artefact)}
    written = artefact.stat().st_mtime_ns

    again = run_command(*words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        wait_until(lambda: any(x.event == "resumed" for x in store.read_audit(server.folder)))
        assert cli.main(["deploy", "abort", "--dir", str(server.folder), "--reason", "seen enough"]) == 0
        said, _ = again.communicate(timeout=PATIENCE_S)
    finally:
        again.kill()
    assert again.returncode == 9, said
    assert "fitted before" in said
    assert "verified before" in said
    assert artefact.stat().st_mtime_ns == written


def said_by(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str]:
    code = cli.main(["deploy", "from-run", *map(str, words)])
    return code, capsys.readouterr().err


def test_what_is_in_the_way_is_said_before_anything_is_fitted(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nowhere = tmp_path / "nowhere"
    code, said = said_by(capsys, "nothing", "--runs-dir", tmp_path)
    assert (code, "tags in" in said) == (65, True)
    code, said = said_by(capsys, run, "--dir", nowhere)
    assert (code, "no server works in" in said) == (64, True)
    code, said = said_by(capsys, run, "--dir", nowhere, "--server", "http://127.0.0.1:9")
    assert (code, "td-loop deploy serve" in said) == (64, True)
    code, said = said_by(capsys, run, "--games", 0)
    assert (code, "games must be 1 or more" in said) == (64, True)
    code, said = said_by(capsys, run, "--game", "tests.deploy.toy_served:GAME", "--dir", nowhere)
    assert (code, "no policy can be fitted for it" in said) == (64, True)
    (run / "deploy.npz").unlink()
    code, said = said_by(capsys, run, "--dir", nowhere)
    assert (code, "td-loop picks" in said) == (65, True)
    point(run / "deploy.npz", "iter7/weights.npz")
    code, said = said_by(capsys, run, "--dir", nowhere)
    assert (code, "no checkpoint of the run" in said) == (65, True)
    point(run / "deploy.npz", BOOTSTRAP_COPY)
    (run / BOOTSTRAP_COPY).write_bytes(b"other")
    code, said = said_by(capsys, run, "--dir", nowhere)
    assert (code, BOOTSTRAP_COPY in said) == (65, True)
    assert not (run / "policies").exists()
