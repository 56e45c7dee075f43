"""Short releases under fault injection, on a street that outlives the controller; written to be run again."""

from __future__ import annotations

import pickle
from pathlib import Path

from td_loop.deploy.canary import store
from td_loop.deploy.canary.settings import CanarySettings
from tests.deploy.canary_world import BAD, GOOD, SAME, Bench, FakeRouter, FakeServing, Policy, Street
from tests.guard import scripts

run = scripts.run


def settings(shadow_s: float) -> CanarySettings:
    return CanarySettings.from_mapping(
        {
            "stages": {
                "shadow_s": shadow_s,
                "canary_s": 1.0,
                "canary_percent": 30.0,
                "ramp_s": 2.0,
                "step_s": 1.0,
                "ramp_to": 50.0,
            },
            "watch": {"poll_s": 1.0, "requests": 2, "rewards": 2},
            "limits": {"settle_s": 0.0},
        }
    )


class Lasting(Street):
    """A street that is what it was when the controller was killed."""

    def __init__(self, path: Path) -> None:
        self.path: Path | None = None
        super().__init__({GOOD: Policy(), SAME: Policy(), BAD: Policy(fallback=0.9, why="output")}, GOOD)
        self.router, self.serving = LastingRouter(self), LastingServing(GOOD, self)
        self.told: list[tuple[float, bool]] = []
        """Each weight that the router was told, and whether the log spoke of a rollback then."""
        if path.exists():
            now_s, self.tally, self.rng, self.answered, weight, serving, self.told = pickle.loads(
                path.read_bytes()
            )
            self.now_s, self.router.weight = now_s, weight
            self.serving.stable, self.serving.canary, self.serving.shadow = serving
        self.path = path

    def keep(self) -> None:
        s, r = self.serving, self.router
        if self.path is not None:
            parts = (self.now_s, self.tally, self.rng, self.answered, r.weight, (s.stable, s.canary, s.shadow))
            self.path.write_bytes(pickle.dumps((*parts, self.told)))

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self.keep()


class LastingRouter(FakeRouter):
    def __init__(self, street: Lasting) -> None:
        super().__init__()
        self._lasting = street

    def set(self, canary: float) -> float:
        told = super().set(canary)
        assert self._lasting.path is not None
        rolling_back = any(x.event == "roll_back" for x in store.read_audit(self._lasting.path.parent / "run"))
        self._lasting.told.append((told, rolling_back))
        self._lasting.keep()
        return told


class LastingServing(FakeServing):
    def __init__(self, stable: str, street: Lasting) -> None:
        super().__init__(stable, street)
        self._lasting = street

    def load_canary(self, path: str, *, shadow: bool) -> None:
        super().load_canary(path, shadow=shadow)
        self._lasting.keep()

    def promote(self, sha256: str) -> None:
        super().promote(sha256)
        self._lasting.keep()

    def unload_canary(self) -> None:
        super().unload_canary()
        self._lasting.keep()


def street_of(folder: Path) -> Lasting:
    return Lasting(folder.parent / "street.pickle")


def good(folder: Path) -> None:
    _release(folder, SAME, 1.0)


def bad(folder: Path) -> None:
    _release(folder, BAD, 0.0)


def _release(folder: Path, sha256: str, shadow_s: float) -> None:
    """What the command does, but for the checks of the artefact and the ends of connections."""
    if folder.exists():
        store.repair(folder)
    lines = store.read_audit(folder)
    if lines and lines[-1].release.stage.over:
        return
    b = Bench(folder, street_of(folder), settings(shadow_s))
    controller = b.resume() or b.begin(sha256)
    controller.run()
