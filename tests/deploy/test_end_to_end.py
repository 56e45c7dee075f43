"""Releases of policies that play Orbit Wars, with everything real: server, Envoy, Prometheus, clients, controller.

The policies are written by hand. The faulty ones pass admission: the worse and the collapsed one have nothing to
be seen there, the NaN one shows itself only between two states that admission looks at, the slow one only where
the seat owns nearly everything, within a p99 that is lax, as a busy machine has none better. The noisy one is let
through by a forged record. All are released one after the other to the same server, under the same traffic.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from td_loop.deploy.admission.check import Subject
from td_loop.deploy.admission.games import decisions
from td_loop.deploy.admission.latency import latency
from td_loop.deploy.admission.record import keep_record
from td_loop.deploy.admission.verify import verify
from td_loop.deploy.canary import store
from td_loop.deploy.routing.envoy_process import find_envoy
from td_loop.errors import UsageError
from td_loop.files import read_json
from td_loop.games import get_game
from td_loop.games.orbit_wars.tokens import WORLD
from td_loop.policy.artefact import Artefact
from td_loop.policy.runtimes import open_runner
from tests.deploy import bad_artefacts
from tests.deploy.bad_artefacts import When
from tests.deploy.canary_exporter import HINT, PROMETHEUS
from tests.deploy.orbit_policy import collapsed_weights, strong_weights, wasteful_weights, write_policy
from tests.deploy.serving import wait_until, with_record
from tests.deploy.street import Street, street

GAME = get_game("orbit_wars")
WINNING = When("world", "own_production", 0.96)
BUSY_SLA_MS = 2000.0


def admitted(artefact: Artefact) -> Path:
    """Its path, after it has passed its admission (with a latency that a busy machine has, too)."""
    found = verify(artefact, GAME, sla_ms=BUSY_SLA_MS)
    assert not found.failed, found.failed
    keep_record(found)
    return artefact.path


@pytest.fixture(scope="module")
def strong(tmp_path_factory: pytest.TempPathFactory) -> Artefact:
    return write_policy(tmp_path_factory.mktemp("strong") / "strong.onnx", strong_weights())


@pytest.fixture(scope="module")
def here(strong: Artefact, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Street]:
    try:
        find_envoy()
    except UsageError as e:
        pytest.skip(str(e))
    if PROMETHEUS is None:
        pytest.skip(HINT)
    with street(tmp_path_factory.mktemp("street"), admitted(strong)) as found:
        yield found
        assert not found.failures()


@pytest.mark.parametrize(
    ("make", "check"),
    [(bad_artefacts.always_nan, "finite outputs"), (bad_artefacts.noisy, "exploration noise")],
    ids=["nan", "noisy"],
)
def test_a_fault_that_shows_itself_at_once_does_not_get_so_far(
    strong: Artefact, tmp_path: Path, make: Callable[[Artefact, Path], Artefact], check: str
) -> None:
    found = verify(make(strong, tmp_path / "bad.onnx"), GAME, sla_ms=BUSY_SLA_MS)
    assert check in {failed.name for failed in found.failed}


def test_one_that_is_always_slow_does_not_get_so_far_either(strong: Artefact, tmp_path: Path) -> None:
    slow = bad_artefacts.slow(strong, tmp_path / "bad.onnx", products=1)
    subject = Subject(slow, GAME, open_runner, open_runner(slow), decisions(GAME, count=1))
    assert all(not check.passed for check in latency(subject, 1.0, time.perf_counter))


def nobody_notices(here: Street) -> None:
    """The canary gets nothing any more, and no client was ever failed."""
    begun = here.counts()[0].requests
    wait_until(lambda: here.counts()[0].requests > begun + 100)  # what was under way has been answered by then
    stable, canary = here.counts()
    wait_until(lambda: here.counts()[0].requests > stable.requests + 300)
    assert here.counts()[1].requests == canary.requests
    assert not here.failures()


def test_a_canary_as_good_as_the_stable_policy_is_promoted(here: Street, tmp_path: Path) -> None:
    weights = strong_weights()
    weights["stay.bias"] += 1e-3
    better = write_policy(tmp_path / "better.onnx", weights)
    ended = here.release(admitted(better), {"stages": {"shadow_s": 2.0}})
    assert ended.returncode == 0, f"{ended.stdout}\n{here.log()}"
    stages = [line.release.stage for line in here.history() if line.event == "advance"]
    assert stages == ["shadow", "canary", "ramp", "promoting", "promoted"]
    assert here.policies()["stable"]["sha256"] == better.sha256
    nobody_notices(here)


def between_what_admission_sees(artefact: Artefact) -> When:
    """The widest gap among the parts of all ships that are the seat's own, of those that are common in play."""
    seen = [d.inputs["world"][0] for d in decisions(GAME)]
    seen += [case.inputs["world"][0] for case in artefact.meta.cases]
    values = np.unique([x[WORLD.index("own_ships")] for x in seen])
    values = np.array([0.5, *values[(values > 0.5) & (values < 0.9)], 0.9])
    widest = int(np.diff(values).argmax())
    return When("world", "own_ships", float(values[widest]), float(values[widest + 1]))


def nan_at_times(strong: Artefact, path: Path) -> Path:
    return admitted(bad_artefacts.nan_when(strong, path, between_what_admission_sees(strong)))


def slow_when_winning(strong: Artefact, path: Path) -> Path:
    return admitted(bad_artefacts.slow(strong, path, products=25, when=WINNING))


def collapsed(strong: Artefact, path: Path) -> Path:
    return admitted(write_policy(path, collapsed_weights()))


def noisy(strong: Artefact, path: Path) -> Path:
    return with_record(bad_artefacts.noisy(strong, path)).path


def worse(strong: Artefact, path: Path) -> Path:
    return admitted(write_policy(path, wasteful_weights()))


@pytest.mark.parametrize(
    ("make", "trigger", "shadow_s", "p99_ms"),
    [
        (worse, "reward", 0.0, 1000.0),
        (slow_when_winning, "latency", 0.0, 100.0),
        (nan_at_times, "output", 0.0, 1000.0),
        (collapsed, "entropy", 600.0, 1000.0),
        (noisy, "nondeterminism", 600.0, 1000.0),
    ],
    ids=lambda x: getattr(x, "__name__", None),
)
def test_a_faulty_canary_is_rolled_back_for_its_fault(
    here: Street,
    strong: Artefact,
    tmp_path: Path,
    make: Callable[[Artefact, Path], Path],
    trigger: str,
    shadow_s: float,
    p99_ms: float,
) -> None:
    path = make(strong, tmp_path / "canary.onnx")
    # Its stages would take longer than anybody waits: only a rollback ends it.
    stages, limits = {"shadow_s": shadow_s, "canary_s": 600.0}, {"p99_ms": p99_ms}
    ended = here.release(path, {"stages": stages, "limits": limits})
    assert ended.returncode == 9, f"{ended.stdout}\n{here.log()}"
    cause = next(line for line in here.history() if line.event == "roll_back")
    assert cause.evidence["triggers"][0] == trigger, here.log()
    assert here.policies()["canary"] is None
    assert store.refusal(here.server.folder, cause.release.sha256)
    report = read_json(here.server.folder / "postmortem.json")
    assert (report["release"], report["triggers"][0]) == (cause.release.number, trigger)
    nobody_notices(here)
    again = here.release(path, {})
    assert again.returncode == 8
    assert "rolled back before" in again.stdout
    assert here.history()[-1].release.number == cause.release.number
