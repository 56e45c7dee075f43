"""Signals that rain on a process that saves: every file always loads."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from td_loop.files import read_json
from td_loop.loop.manifest import read_manifest
from td_loop.npz import load_npz
from td_loop.value.io import load_weights
from tests.loop.sessions import ROOT, wait_until

SAVE = """
import signal, sys
from dataclasses import replace
from pathlib import Path
import numpy as np
sys.path.insert(0, sys.argv[1])
from td_loop.errors import Interrupted
from td_loop.files import point, write_json
from td_loop.loop.manifest import Manifest, write_manifest
from td_loop.signals import STOP_SIGNALS, interruptible
from td_loop.value.io import save_weights
from td_loop.value.model import SplineValue

run = Path(sys.argv[2])
for s in STOP_SIGNALS:
    signal.signal(s, lambda *_: None)  # between the blocks below
shape, names, meta = (2, 3, 5), ("a", "b", "c"), {"game": "toy", "gamma": 0.9}
knots = np.tile(np.arange(5.0), (3, 1))
manifest = Manifest.new("t", "0" * 64, {})
k = cut = 0
while not (run / "stop").exists():
    try:
        with interruptible():
            while not (run / "stop").exists():
                k += 1
                save_weights(run / f"{k % 3}.npz", SplineValue(knots, np.full(shape, 1.0 * k), names, meta))
                write_manifest(run, replace(manifest, latest_good=f"{k % 3}.npz"))
                point(run / "latest_good.npz", f"{k % 3}.npz")
    except Interrupted:
        cut += 1
        write_json(run / "cut.json", cut)
"""


def load_all(run: Path) -> None:
    manifest = read_manifest(run)
    assert manifest is not None
    load_weights(run / manifest.latest_good)
    load_npz(run / "latest_good.npz")
    for k in range(3):
        load_weights(run / f"{k}.npz")


def test_no_signal_leaves_half_a_file(tmp_path: Path) -> None:
    dice = random.Random(0)
    with subprocess.Popen(
        [sys.executable, "-c", SAVE, str(ROOT), str(tmp_path)], text=True, stderr=subprocess.PIPE
    ) as process:
        try:
            wait_until(lambda: len(list(tmp_path.glob("[012l]*.npz"))) == 4, process)
            for _ in range(150):
                for _ in range(dice.randint(1, 3)):  # whoever presses Ctrl-C again
                    process.send_signal(dice.choice((signal.SIGINT, signal.SIGTERM)))
                time.sleep(dice.random() * 0.01)
                load_all(tmp_path)
            (tmp_path / "stop").touch()
            assert process.wait(timeout=60) == 0
        finally:
            process.kill()
    load_all(tmp_path)
    assert read_json(tmp_path / "cut.json") > 20
