"""Run directories under everything that may happen to them, in any order: I8 to I11 hold after each step."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import tempfile
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from td_loop.errors import HardAbort, Interrupted, ManifestError, Reverted, StorageError
from td_loop.files import sha256
from td_loop.loop.config import RunConfig
from td_loop.loop.driver import drive
from tests.loop.fakes import (
    Flags,
    Stages,
    ends,
    fit,
    fit_to,
    gate,
    prepare,
    reverts,
    stopped_after,
    write_bootstrap,
)
from tests.loop.trouble import Killed, trouble

STOPS = (Reverted, HardAbort, Interrupted)
"""How a run may end before its time, the run directory being as it should."""


def lies(_flags: Flags) -> int:
    return 0


def fails(_flags: Flags) -> int:
    return 1


OUTCOMES: dict[str, dict[tuple[str, int | str], Any]] = {
    "promoted": {},
    "reverted": {("fit", 0): reverts},
    "reverted twice": {("fit", 0): reverts, ("fit", 1): reverts},
    "not a number": {("fit", 0): fit_to(0.6, float("nan"))},
    "prepare fails": {("prepare", 0): fails},
    "prepare lies": {("prepare", 0): lies},
    "fit lies": {("fit", 0): lies},
    "stopped in prepare": {("prepare", 0): stopped_after(prepare, signal.SIGTERM)},
    "stopped in fit": {("fit", 0): stopped_after(fit, signal.SIGTERM)},
    "best so far": {("fit", 0): fit_to(0.5, 0.3)},
    "match lost": {("gate", 0): ends("H0")},
    "match fails": {("gate", 0): fails},
    "match lies": {("gate", 0): lies},
    "stopped in the match": {("gate", 0): stopped_after(gate, signal.SIGTERM)},
}


class Runs(RuleBasedStateMachine):
    """One run directory, and what must not be lost of it."""

    @initialize()
    def start(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="td-loop-"))
        self.bootstrap = write_bootstrap(self.folder / "bootstrap.npz")
        self.bootstrap_sha256 = sha256(self.bootstrap)
        self.run_dir = self.folder / "runs" / "td_loop_t"
        self.promoted: dict[str, str] = {}  # path -> hash of everything that was ever promoted
        self.settings: dict[str, Any] = {"lr_peak": 0.03, "k": 0.3, "on_fail": "abort", "seed": 0, "gate": "none"}

    def teardown(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def config(self, iters: int, runs: Path | None = None) -> RunConfig:
        flags = {"tag": "t", "n": 20, "workers": 2, "seg_uniform_tau": 1.0, "iters": iters, **self.settings}
        return RunConfig.from_flags(flags | {"runs_dir": runs or self.run_dir.parent, "bootstrap": self.bootstrap})

    def content(self, run: Path | None = None) -> Any:
        return orjson.loads(((run or self.run_dir) / "manifest.json").read_bytes())

    @property
    def done(self) -> int:
        """Promoted iterations."""
        if not (self.run_dir / "manifest.json").exists():
            return 0
        return sum(r["status"] == "promoted" for r in self.content()["iters"])

    def weights(self, run: Path) -> list[str]:
        return [r["weights_sha256"] for r in self.content(run)["iters"] if r["status"] == "promoted"]

    # --- what a user does ----------------------------------------------------------------------------------

    @rule(outcome=st.sampled_from(sorted(OUTCOMES)), more=st.integers(1, 3))
    def go_on(self, outcome: str, more: int) -> None:
        before = self.done
        try:
            drive(self.config(before + more), runner=Stages(dict(OUTCOMES[outcome])))
        except STOPS:
            assert self.done < before + more
        else:
            assert self.done == before + more

    @rule(
        lr_peak=st.sampled_from([0.03, 0.01]),
        k=st.sampled_from([0.3, 0.5]),
        on_fail=st.sampled_from(["abort", "retry-then-abort"]),
        gate=st.sampled_from(["none", "sprt"]),
    )
    def change_settings(self, lr_peak: float, k: float, on_fail: str, gate: str) -> None:
        self.settings |= {"lr_peak": lr_peak, "k": k, "on_fail": on_fail, "gate": gate}

    @rule(moment=st.integers(0, 60), more=st.integers(1, 2), outcome=st.sampled_from(["promoted", "reverted"]))
    def killed_and_resumed(self, moment: int, more: int, outcome: str) -> None:
        """I10: it ends like a copy of the run that nobody killed."""
        # What these fits come to is no function of their settings, so none of an earlier rule may be found again.
        self.settings["seed"] += 1
        iters = self.done + more
        first = f"iter{self.done}"
        script = {("fit", first): reverts} if outcome == "reverted" else {}
        twin = self.folder / "twin"
        shutil.rmtree(twin, ignore_errors=True)
        if self.run_dir.parent.exists():
            shutil.copytree(self.run_dir.parent, twin, symlinks=True)
        ends = []
        for config in (self.config(iters), self.config(iters, twin)):
            if config.runs_dir != twin:
                try:
                    with trouble(moment, Killed()):
                        drive(config, runner=Stages(dict(script)))
                except (Killed, *STOPS):
                    pass
                self.whole()
            try:
                drive(config, runner=Stages(dict(script)))
            except STOPS as e:
                ends.append(type(e))
        assert len(ends) in (0, 2)
        assert len(set(ends)) <= 1
        assert self.weights(self.run_dir) == self.weights(twin / "td_loop_t")
        shutil.rmtree(twin)

    @rule(moment=st.integers(0, 60), code=st.sampled_from([errno.ENOSPC, errno.EIO]))
    def disk_trouble(self, moment: int, code: int) -> None:
        iters = self.done + 1
        try:
            with trouble(moment, OSError(code, os.strerror(code))):
                drive(self.config(iters), runner=Stages())
        except (StorageError, *STOPS):
            pass

    @precondition(lambda self: self.run_dir.exists())
    @rule(data=st.data())
    def delete_what_can_be_made_again(self, data: st.DataObject) -> None:
        kinds = (
            "latest_good.npz",
            "best_val.npz",
            "branch_data.npz",
            "provenance.json",
            "validation.json",
            ".lock",
        )
        found = sorted(p for p in self.run_dir.rglob("*") if p.name in kinds)
        if found:
            data.draw(st.sampled_from(found)).unlink()

    @precondition(lambda self: self.done > 0)
    @rule(data=st.data())
    def lose_promoted_weights_and_restore_them(self, data: st.DataObject) -> None:
        """A run that lost weights is refused, by name, and not touched."""
        path = self.run_dir / data.draw(st.sampled_from(sorted(self.promoted)))
        saved, manifest = path.read_bytes(), (self.run_dir / "manifest.json").read_bytes()
        path.unlink()
        with pytest.raises(ManifestError, match="promoted weights are missing"):
            drive(self.config(self.done + 1), runner=Stages())
        assert (self.run_dir / "manifest.json").read_bytes() == manifest
        path.write_bytes(saved)

    @precondition(lambda self: self.run_dir.exists())
    @rule()
    def move_the_run(self) -> None:
        elsewhere = self.folder / ("a" if self.run_dir.parent.name == "b" else "b") / "td_loop_t"
        elsewhere.parent.mkdir(exist_ok=True)
        self.run_dir.rename(elsewhere)
        self.run_dir = elsewhere

    # --- what must hold ------------------------------------------------------------------------------------

    @invariant()
    def whole(self) -> None:
        """I8, I9 and I11, however the last step ended."""
        assert sha256(self.bootstrap) == self.bootstrap_sha256
        if not (self.run_dir / "manifest.json").exists():
            assert not self.promoted
            return
        m = self.content()
        for record in m["iters"]:
            assert (self.run_dir / record["iter_dir"]).is_dir()
            if record["weights"]:
                assert sha256(self.run_dir / record["weights"]) == record["weights_sha256"]
            if record["status"] == "promoted":
                assert record["promoted_to_latest_good"]
                self.promoted[record["weights"]] = record["weights_sha256"]
        assert [r["i"] for r in m["iters"]] == list(range(len(m["iters"])))
        assert all(r["status"] == "promoted" for r in m["iters"][:-1])
        # Nothing that was promoted is ever lost or changed.
        for path, digest in self.promoted.items():
            assert sha256(self.run_dir / path) == digest
        good = [r for r in m["iters"] if r["status"] == "promoted"]
        assert {r["weights"] for r in good} == self.promoted.keys()
        assert m["latest_good"] == (good[-1]["weights"] if good else "iter0/V_snap.npz")
        assert sha256(self.run_dir / m["latest_good"]) == (
            good[-1]["weights_sha256"] if good else m["bootstrap_sha256"]
        )
        losses = {r["weights"]: r["fit"]["final_val_mc_nll"] for r in good}
        if losses:
            assert m["best_val"]["val_mc_nll"] == min(losses.values()) == losses[m["best_val"]["path"]]
        else:
            assert m["best_val"] is None
        allowed = set(self.promoted.values()) | {m["bootstrap_sha256"]}
        for link in ("latest_good.npz", "best_val.npz"):
            if (self.run_dir / link).is_symlink():  # a kill may come before the link, or the user removed it
                assert sha256(self.run_dir / link) in allowed
        history = m["hyperparams_history"]
        assert [h["resume_index"] for h in history] == list(range(len(history)))
        assert m["hyperparams"] == m["hyperparams_current"] == history[-1]["hyperparams"]
        assert m["hyperparams_initial"] == history[0]["hyperparams"]


TestRuns = Runs.TestCase
TestRuns.settings = settings(
    max_examples=40,
    stateful_step_count=12,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
