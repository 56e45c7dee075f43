"""The release of a canary: a state machine without clocks, files or processes.

    verified --shadow--> shadow --go live--> canary --> ramp --> promoting --> promoted
    any stage before promoted --roll back--> rolling_back --> rolled_back

A stage ends when it has been fine for as long as it takes and has seen enough; with a manual gate, when a
person approves as well. Time passes only while all is fine: in HOLD, and while nobody looks, the clock of the
stage stands still, and so do the weights. A rollback waits for nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any, Self

from td_loop.deploy.canary.rules import Outcome, Verdict
from td_loop.deploy.canary.settings import CanarySettings, StageSettings
from td_loop.deploy.routing.contract import whole_steps
from td_loop.errors import DataError


class Stage(StrEnum):
    """Where a release stands."""

    VERIFIED = "verified"
    SHADOW = "shadow"
    CANARY = "canary"
    RAMP = "ramp"
    PROMOTING = "promoting"
    PROMOTED = "promoted"
    ROLLING_BACK = "rolling_back"
    ROLLED_BACK = "rolled_back"

    @property
    def live(self) -> bool:
        """Whether the canary's answers are given to clients and compared."""
        return self in (Stage.CANARY, Stage.RAMP)

    @property
    def over(self) -> bool:
        """Whether the release has ended."""
        return self in (Stage.PROMOTED, Stage.ROLLED_BACK)


class Event(StrEnum):
    """What a line of the audit log tells of. The first nine are transitions; the others change no state."""

    BEGIN = "begin"
    ADVANCE = "advance"
    WEIGH = "weigh"
    HOLD = "hold"
    GO_ON = "go_on"
    WAIT = "wait"
    APPROVE = "approve"
    BY_HAND = "by_hand"
    ROLL_BACK = "roll_back"
    WITHDRAWN = "withdrawn"
    RESUMED = "resumed"
    NOTE = "note"


_EDGES = {
    Stage.VERIFIED: {Stage.SHADOW, Stage.CANARY, Stage.ROLLING_BACK},
    Stage.SHADOW: {Stage.CANARY, Stage.ROLLING_BACK},
    Stage.CANARY: {Stage.RAMP, Stage.ROLLING_BACK},
    Stage.RAMP: {Stage.PROMOTING, Stage.ROLLING_BACK},
    Stage.PROMOTING: {Stage.PROMOTED, Stage.ROLLING_BACK},
    Stage.PROMOTED: set[Stage](),
    Stage.ROLLING_BACK: {Stage.ROLLED_BACK},
    Stage.ROLLED_BACK: set[Stage](),
}


@dataclass(frozen=True)
class Release:
    """Where a release stands; everything but what was counted.

    Attributes:
        number: of the releases in the folder, from 1.
        sha256: of the canary's artefact.
        path: of the artefact, as the server is to open it.
        seq: number of the last line of the audit log that this knows of.
        stage: where it stands.
        weight: the canary's percentage that the router was last told.
        weight_since: when the router had it, Unix seconds; in the audit log, when it was decided.
        live_since: when the canary got its first traffic; 0 before.
        progress_s: seconds of the stage in which all was fine.
        held: triggers of the present HOLD; none if it goes on.
        waiting: the stage has ended, and a person has not approved yet.
        approved: a person has approved of what comes after this stage.
        by_hand: somebody else changed the weights, and a person has not approved of it yet.
        reason: why it is rolled back; "" otherwise.
        refused: whether a rollback puts the artefact on the list of those that get no traffic.
    """

    number: int
    sha256: str
    path: str
    seq: int = 0
    stage: Stage = Stage.VERIFIED
    weight: float = 0.0
    weight_since: float = 0.0
    live_since: float = 0.0
    progress_s: float = 0.0
    held: tuple[str, ...] = ()
    waiting: bool = False
    approved: bool = False
    by_hand: bool = False
    reason: str = ""
    refused: bool = False

    def as_json(self) -> dict[str, Any]:
        """JSON data."""
        return asdict(self)

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        """The inverse of `as_json`.

        Raises:
            DataError: it is none.
        """
        try:
            return cls(**{**found, "stage": Stage(found["stage"]), "held": tuple(found["held"])})
        except (KeyError, TypeError, ValueError) as e:
            raise DataError(f"is no release ({e!r})") from e


@dataclass(frozen=True)
class Move:
    """What is to happen next.

    Attributes:
        event: what it is.
        stage: where the release stands then.
        weight: the canary's percentage then.
        reason: a sentence.
        evidence: figures behind it, JSON data.
    """

    event: Event
    stage: Stage
    weight: float
    reason: str
    evidence: Mapping[str, Any] = field(default_factory=dict)


class IllegalMove(Exception):
    """A move that the release's stage does not allow: a fault of this program."""


def after(release: Release, move: Move, now: float) -> Release:
    """The release once the move is made, at Unix time `now`.

    Raises:
        IllegalMove: the stage does not allow it.
    """
    if release.stage is not move.stage and move.stage not in _EDGES[release.stage]:
        raise IllegalMove(f"{move.event} from {release.stage} to {move.stage}")
    became = replace(release, seq=release.seq + 1, stage=move.stage)
    if move.weight != release.weight:
        became = replace(became, weight=move.weight, weight_since=now)
    if move.event is Event.ADVANCE:
        live_since = now if move.stage is Stage.CANARY else release.live_since
        became = replace(became, progress_s=0.0, held=(), waiting=False, approved=False, live_since=live_since)
    elif move.event is Event.HOLD:
        became = replace(became, held=tuple(move.evidence["triggers"]))
    elif move.event is Event.GO_ON:
        became = replace(became, held=())
    elif move.event is Event.WAIT:
        became = replace(became, waiting=True)
    elif move.event is Event.APPROVE:
        became = replace(became, approved=release.waiting, waiting=False, by_hand=False)
    elif move.event is Event.BY_HAND:
        became = replace(became, by_hand=True)
    elif move.event is Event.ROLL_BACK:
        refused = bool(move.evidence.get("refuse", True))
        became = replace(became, reason=move.reason, refused=refused, held=(), waiting=False)
    return became


def duration(stages: StageSettings, stage: Stage) -> float:
    """Seconds that a stage takes when all is fine."""
    return {Stage.SHADOW: stages.shadow_s, Stage.CANARY: stages.canary_s, Stage.RAMP: stages.ramp_s}.get(
        stage, 0.0
    )


def ramp_weight(stages: StageSettings, progress_s: float) -> float:
    """The canary's percentage after so many seconds of the ramp: linear, in steps."""
    if stages.ramp_s <= 0:
        return stages.ramp_to
    done = min(1.0, progress_s // stages.step_s * stages.step_s / stages.ramp_s)
    if progress_s >= stages.ramp_s:
        done = 1.0
    return stages.canary_percent + (stages.ramp_to - stages.canary_percent) * done


def ramp_progress(stages: StageSettings, weight: float) -> float:
    """The seconds after which the ramp has come to `weight`; 0 below its beginning."""
    width = stages.ramp_to - stages.canary_percent
    share = 0.0 if width <= 0 else (weight - stages.canary_percent) / width
    return stages.ramp_s * min(1.0, max(0.0, share))


def evidence_of(verdict: Verdict) -> dict[str, Any]:
    """What a line of the audit log says of a verdict."""
    return {
        "triggers": [f.trigger for f in verdict.findings],
        "findings": [f.as_json() for f in verdict.findings],
        "warnings": [f.as_json() for f in verdict.warnings],
    }


def roll_back(reason: str, evidence: Mapping[str, Any]) -> Move:
    """Withdraw the canary."""
    return Move(Event.ROLL_BACK, Stage.ROLLING_BACK, 0.0, reason, evidence)


def step(
    release: Release, verdict: Verdict, seconds: float, settings: CanarySettings, granularity: float
) -> tuple[Release, Move | None]:
    """What a verdict makes of a release in a stage before `promoting`.

    Args:
        release: as it stands.
        verdict: of the newest observation.
        seconds: since the verdict before.
        settings: of the release.
        granularity: finest change of weight that the router knows, percent.

    Returns:
        The release with the time that it has been fine, and the move to make now, if any.
    """
    stages, here = settings.stages, release.stage
    if verdict.outcome is Outcome.ROLL_BACK:
        return release, roll_back(verdict.reason, evidence_of(verdict))
    if verdict.outcome is Outcome.HOLD:
        if tuple(f.trigger for f in verdict.findings) == release.held:
            return release, None
        return release, Move(Event.HOLD, here, release.weight, verdict.reason, evidence_of(verdict))
    if release.held:
        reason = f"no longer: {', '.join(release.held)}"
        return release, Move(Event.GO_ON, here, release.weight, reason, evidence_of(verdict))
    whole = duration(stages, here)
    progress = release.progress_s + seconds
    if here is Stage.RAMP and not verdict.fresh:  # a share that nobody has tried yet does not grow
        progress = min(progress, (release.progress_s // stages.step_s + 1) * stages.step_s - 1e-6)
    release = replace(release, progress_s=min(progress, whole))
    if here is Stage.RAMP:
        weight = whole_steps(ramp_weight(stages, release.progress_s), granularity)
        if weight > release.weight:
            reason = f"the ramp, {release.progress_s:.0f} of {whole:.0f} s"
            return release, Move(Event.WEIGH, here, weight, reason)
    if progress < whole or verdict.lacking or (here is Stage.RAMP and not verdict.fresh):
        return release, None
    following = {Stage.SHADOW: Stage.CANARY, Stage.CANARY: Stage.RAMP, Stage.RAMP: Stage.PROMOTING}[here]
    if stages.gate == "manual" and not release.approved:
        if release.waiting:
            return release, None
        reason = f"{here} is done; {following} waits for `td-loop deploy approve`"
        return release, Move(Event.WAIT, here, release.weight, reason, evidence_of(verdict))
    weight = whole_steps(stages.canary_percent, granularity) if following is Stage.CANARY else release.weight
    return release, Move(Event.ADVANCE, following, weight, f"{here} is done", evidence_of(verdict))
