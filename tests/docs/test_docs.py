"""Every command that a document tells a person to type is run here, and every link leads somewhere.

A command stands on a line of its own in a fenced `sh` block. Those that would take hours run with the extra flags
of `SHORT`, which only make the same command smaller (the last value of a flag wins). One that ends with `&` runs
until the end; if it is a server, the next command waits until that is ready.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest

from td_loop.deploy.client import Client
from td_loop.errors import DataError
from td_loop.games.orbit_wars.environment import Environment

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

SMALL_RUN = "--iters 1 --n 60 --budget-evals 4 --workers 2 --epochs 2 --batches-per-epoch 4"
# First match wins.
SHORT: list[tuple[str, str]] = [
    (r"--gate sprt", f"{SMALL_RUN} --gate-rounds 1"),
    (r"td_outer_loop\.py|td-loop run", SMALL_RUN),
    (r"prepare_td_data\.py|td-loop prepare", "--n 60 --budget-evals 4 --workers 2"),
    (r"fit_value_spline\.py|td-loop fit", "--epochs 2 --batches-per-epoch 4"),
    (r"--focus iter9", "--rounds 1 --budget-evals 5 --workers 2 --focus iter0"),  # the short run has no other
    (r"value_net_tournament\.py|td-loop tournament", "--rounds 1 --budget-evals 5 --workers 2"),
    (r"make_selfplay_replays\.py.*--weights", "--games-2p 2 --games-4p 1 --search-evals 4"),
    (r"make_selfplay_replays\.py", "--games-2p 12 --games-4p 4"),
    (r"policy fit", "--games 2 --rounds 1 --teacher-evals 1 --labelled 0.02 --epochs 1 --last-epochs 1"),
    (r"deploy verify", "--sla-ms 1000"),  # a busy machine
    (r"deploy serve", "--port 0 --deadline-ms 5000"),
    (r"deploy simulate.*maps", "--pace-ms 200"),  # goes on to the end
    (r"deploy simulate", "--episodes 2"),
    (r"deploy canary", "--print-config"),  # a release takes longer than a document's test may
]
# Run by .ci/run itself, or not a command of ours.
ELSEWHERE = re.compile(r"^(python3 -m venv|\. |cd |git |pip |pytest|bash \.ci/run)|&&|^python benchmarks/")


def commands(document: Path) -> list[str]:
    blocks = re.findall(r"^```sh\n(.*?)^```", document.read_text(), re.M | re.S)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return [line.split(" #")[0].strip() for line in lines if line.strip() and not line.startswith("#")]


def files(document: Path) -> dict[str, str]:
    """Scripts that the reader is told to save: blocks of Python whose first line is their name."""
    return dict(re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```", document.read_text(), re.M | re.S))


def runnable(document: Path) -> list[str]:
    return [c for c in commands(document) if not ELSEWHERE.search(c)]


def shortened(command: str) -> list[str]:
    extra = next((extra for pattern, extra in SHORT if re.search(pattern, command)), "")
    words = shlex.split(command)
    if words[0] == "td-loop":
        words = [sys.executable, "-m", "td_loop", *words[1:]]
    elif words[0] == "python":
        words = [sys.executable, str(ROOT / words[1]), *words[2:]]
    else:
        raise AssertionError(f"not a command of ours: {command}")
    return [*words, *shlex.split(extra)]


def write_replays(folder: Path) -> None:
    """A few short games in the official format, some won by either seat."""
    folder.mkdir()

    def random_moves(obs: dict[str, Any]) -> list[list[Any]]:
        mine = [p for p in obs["planets"] if p[1] == obs["player"] and p[5] >= 10]
        return [[p[0], 0.7 * obs["player"] + 0.1 * p[5], p[5] // 2] for p in mine]

    for seed in range(8):
        env = Environment({"seed": seed, "episodeSteps": 60})
        env.run([random_moves, lambda obs: []] if seed % 2 else [lambda obs: [], random_moves])
        (folder / f"{seed}.json").write_bytes(orjson.dumps(env.to_json()))


def start(command: str, folder: Path, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a command that runs on; a server is ready then."""
    process = subprocess.Popen(shortened(command), cwd=folder, env=env)
    for _ in range(3000 if "deploy serve" in command else 0):
        assert process.poll() is None, f"{command}: ended with {process.returncode}"
        try:
            with Client.of_folder(folder / "deploy") as client:
                if client.ready():
                    return process
        except DataError:
            pass  # its folder says nothing yet
        time.sleep(0.1)
    assert "deploy serve" not in command, f"{command}: is not ready"
    return process


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: p.name)
def test_commands_of_a_document_run_in_their_order(document: Path, tmp_path: Path) -> None:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # the environment is active
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": path}
    shutil.copytree(ROOT / "models", tmp_path / "models")
    write_replays(tmp_path / "replays")  # the reader's own games
    for name, content in files(document).items():
        (tmp_path / name).write_text(content)
    running: list[tuple[str, subprocess.Popen[bytes]]] = []
    try:
        for command in runnable(document):
            if command.endswith("&"):
                running.append((command, start(command.rstrip("& "), tmp_path, env)))
                continue
            done = subprocess.run(
                shortened(command), cwd=tmp_path, env=env, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, f"{document.name}: {command}\n{done.stdout}\n{done.stderr}"
        ended = [command for command, process in running if process.poll() is not None]
        assert not ended, f"{document.name}: did not run on: {ended}"
    finally:
        for _, process in reversed(running):
            process.terminate()
            process.wait()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: p.name)
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", document.read_text()):
        if "://" not in target:
            assert (document.parent / target).exists(), f"{document.name} links to {target}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: p.name)
def test_benchmarks_named_in_documents_exist(document: Path) -> None:
    for name in re.findall(r"(?:benchmarks|scripts)/\w+\.py", document.read_text()):
        assert (ROOT / name).exists(), f"{document.name} names {name}"
