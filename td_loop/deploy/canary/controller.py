"""The loop around the state machine: clock, router, server, counters and files come in from outside.

What is written when. A line of the audit log is on the disk *before* what it tells of is done, so a controller
that was killed finds in its log what it was about to do, and does it. Weights come after the line, canary.json
after the weights: a line that canary.json does not know of may not have been done yet, and is done again.

A rollback is the exception in one thing: its line is written, but not waited for to reach the disk. A SIGKILL
does not lose such a line, only a power cut does; and a disk that hangs or is full must not keep traffic on a
canary that is known to be bad. Then come the weights, again and again until 100/0 is read back; then everything
else.

Weights that somebody else changed are a person's word: they are left alone, and the release holds until a person
approves. A rollback still sets them to 0.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from td_loop import text
from td_loop.deploy.canary import ending, store
from td_loop.deploy.canary.evidence import Evidence, Setting
from td_loop.deploy.canary.machine import (
    Event,
    Move,
    Release,
    Stage,
    after,
    duration,
    ramp_progress,
    roll_back,
    step,
)
from td_loop.deploy.canary.observation import SourceError
from td_loop.deploy.canary.record import Record
from td_loop.deploy.canary.rules import Finding, Outcome, Verdict, hold, judge
from td_loop.deploy.canary.serving import ServingError
from td_loop.deploy.canary.settings import CanarySettings
from td_loop.deploy.canary.world import BREAK_S, LONGEST_BREAK_S, World, insist
from td_loop.deploy.routing.contract import RouterError, whole_steps
from td_loop.errors import DataError, Interrupted, StorageError

ASK_S = 1.0
"""Seconds after which requests of people are looked for again."""
_CREDIT = 3
"""Intervals of polling that a stage's clock may advance at once: time in which nobody looked does not count."""


class Controller:
    """One release, from where it stands to its end. Hold the folder's lock while it runs."""

    def __init__(
        self, world: World, settings: CanarySettings, release: Release, ends: Mapping[str, Any] | None = None
    ) -> None:
        """A release that begins.

        Args:
            world: everything outside.
            settings: of this release, from its beginning to its end.
            release: in stage `verified`; its `seq` is that of the log's next line.
            ends: how router, source and server are reached, JSON data: for whoever goes on after a kill.
        """
        self._world, self.settings, self.release = world, settings, release
        self._record = Record(world)
        self._ends = dict(ends or {})
        self.evidence = Evidence()
        self._loaded = self._weighed = False  # whether server and router are known to be as the release wants
        self._turned = world.clock.now()
        self._config = self._config_hash()
        self._warned: list[str] = []
        self._pause = BREAK_S
        self._is_new = True
        self._has_gone_on = False
        self._withdrawn = False  # the router has read back 0 in a rollback
        self._unwritten: store.Line | None = None

    @classmethod
    def resumed(cls, world: World) -> Controller | None:
        """The release in the folder, if there is one that has not ended.

        A damaged canary.json costs the evidence, which is gathered anew: the log says all else, and whoever aborts
        a release must be able to.

        Raises:
            DataError: the log is damaged.
        """
        lines = store.read_audit(world.folder)
        if not lines or lines[-1].release.stage.over:
            return None
        newest = lines[-1].release
        begin = next(x for x in lines if x.release.number == newest.number).evidence
        self = cls(world, CanarySettings.from_mapping(begin["settings"]), newest, begin["ends"])
        self._is_new, self._config = False, str(begin["config"])
        try:
            saved = store.read_state(world.folder)
            if saved is None or (old := Release.from_json(saved["release"])).number != newest.number:
                return self
            self.evidence = Evidence.from_json(saved["evidence"])
        except DataError as e:
            world.voice.say(f"{e}: what was counted is lost, and counting begins anew")
            return self
        if old.seq == newest.seq:
            self.release, self._weighed = old, bool(saved["weighed"])
        elif old.stage is not newest.stage:
            self.evidence = self.evidence.next_stage(newest.stage.live, old.stage.live)
        self._config = str(saved["config"])
        return self

    # --- the loop ------------------------------------------------------------------------------------------------

    def run(self) -> Stage:
        """Bring the release to its end, and return how it ended.

        Raises:
            Interrupted: a signal came; the same command goes on. Weights stay as they are.
        """
        turns = {
            Stage.VERIFIED: self._begin,
            Stage.PROMOTING: self._promote,
            Stage.ROLLING_BACK: self._withdraw,
        }
        try:
            if self._is_new:
                insist(self._world, "write the audit log", self._open)
            elif self.release.stage is not Stage.ROLLING_BACK:  # of which the weights come first
                self._go_on()
            while not self.release.stage.over:
                turns.get(self.release.stage, self._turn)()
        except Interrupted:
            if self.release.stage is Stage.ROLLING_BACK and not self._withdrawn:
                self._world.voice.say(
                    "stopped before it was known that the canary has no traffic: run the same command to go on"
                )
            elif not self.release.stage.over and self.release.weight > 0:
                self._world.voice.say(
                    f"stopped with {self.release.weight:g} % of the traffic on the canary, and nobody watches it: "
                    "run the same command to go on, or `td-loop deploy abort`"
                )
            raise
        self._world.webhook.finish()
        self._record.drain(self.release)
        return self.release.stage

    def _open(self) -> None:
        evidence = {"settings": self.settings.as_mapping(), "ends": self._ends, "config": self._config}
        line = self._record.line(Event.BEGIN, self.release.stage, self.release, "a release begins", evidence)
        self._record.append(line)

    def _go_on(self) -> None:
        if self._is_new or self._has_gone_on:
            return
        self._has_gone_on = True
        what = f"a controller goes on, in stage {self.release.stage}"
        self._record.note(self.release, what, event=Event.RESUMED)
        self._record.tell_again(self.release)

    def _begin(self) -> None:
        """From verified to the first stage: nobody gets the canary, then the server loads it."""
        world, stages = self._world, self.settings.stages
        if self._aborted():
            return
        shadow = stages.shadow_s > 0
        try:
            if world.router.read() != 0:
                self._record.note(self.release, "the canary had traffic before the release began: set to 0 %")
                world.router.set(0.0)
            loaded = world.serving.policies()
            if (loaded.canary, loaded.shadow, loaded.settled) != (self.release.sha256, shadow, True):
                self._load(shadow)
        except (RouterError, ServingError) as e:
            if isinstance(e, ServingError) and e.is_final:
                evidence = {"triggers": ["server"], "findings": [], "refuse": False}
                self._make(roll_back(f"the server does not take the artefact: {e}", evidence))
                return
            world.voice.say(f"cannot begin: {e}; trying again")
            self._wait()
            return
        self._loaded = self._weighed = True
        stage = Stage.SHADOW if shadow else Stage.CANARY
        weight = 0.0 if shadow else whole_steps(stages.canary_percent, world.router.step)
        self._make(Move(Event.ADVANCE, stage, weight, "the canary is loaded and warm"))
        self._turned = world.clock.now()

    def _turn(self) -> None:
        """One observation, and what follows from it."""
        if self._aborted():
            return
        self._approved()
        self._record.drain(self.release)
        now = self._world.clock.now()
        seconds = min(max(0.0, now - self._turned), _CREDIT * self.settings.watch.poll_s)
        self._turned = now
        verdict = self._verdict()
        self.release, move = step(self.release, verdict, seconds, self.settings, self._world.router.step)
        self._warn(verdict)
        if move is not None:
            self._make(move)
        if self.release.stage is Stage.ROLLING_BACK:
            return
        self._save()
        self._show(verdict)
        if self.release.stage is not Stage.PROMOTING:
            self._wait()

    def _promote(self) -> None:
        if self._promoted():  # no weight takes traffic from a policy that is the stable one
            if store.asked(self._world.folder, "abort") is not None:
                self._record.note(self.release, "an abort came too late: this is the stable policy already")
                self._forget("abort")
        elif self._aborted():
            return
        try:
            self.release = ending.promote(self._world, self._record, self.release)
        except (RouterError, ServingError) as e:
            self._world.voice.say(f"cannot promote: {e}; trying again")
            self._world.clock.sleep(self._pause)
            self._pause = min(2 * self._pause, LONGEST_BREAK_S)
        else:
            self._save()

    def _promoted(self) -> bool:
        """Whether the server is known to have made the canary the stable policy, so that weights mean nothing.

        Between servers of their own they always mean something.
        """
        try:
            return not self._world.router.apart and self._world.serving.policies().stable == self.release.sha256
        except (RouterError, ServingError):
            return False

    def _withdraw(self) -> None:
        tries = ending.take_traffic(self._world)
        self._withdrawn = True
        self._go_on()
        self.release = ending.withdraw(self._world, self._record, self.release, self._unwritten, tries)
        self._save()

    def _wait(self) -> None:
        """Until the next observation, or until a person asks for something."""
        until = self._world.clock.now() + self.settings.watch.poll_s
        while (left := until - self._world.clock.now()) > 0:
            self._world.clock.sleep(min(left, ASK_S))
            if any((self._world.folder / f"{what}.json").exists() for what in store.REQUESTS):
                return

    # --- looking -------------------------------------------------------------------------------------------------

    def _verdict(self) -> Verdict:
        """What is to be done now. Whatever cannot be seen is a reason to hold, and never hides a rollback."""
        findings = self._outside()
        release = self.release
        under = Setting(
            release.stage.live,
            release.weight,
            # Until the server has the canary and the router the weight, nothing is held against that.
            release.weight_since if self._loaded and self._weighed else math.inf,
            release.live_since + self.settings.limits.settle_s,
        )
        try:
            observation = self._world.source.observe()
        except SourceError as e:
            verdict = hold("source", str(e))
        else:
            if not observation.fault():
                self.evidence = self.evidence.take(observation, self.settings, under)
            verdict = judge(self.evidence, observation, self.settings, under, release.sha256)
            if self.evidence.reset:
                self._loaded = False  # a server that began anew may have no canary
        if not findings or verdict.outcome is Outcome.ROLL_BACK:
            return verdict
        return replace(verdict, outcome=Outcome.HOLD, findings=(*findings, *verdict.findings))

    def _outside(self) -> list[Finding]:
        """What is not as it should be with router and server, after they were made so if nobody wants else."""
        self._check_config()
        try:
            self._arrange()
            found = self._world.router.read()
            if found != self.release.weight:
                reason = f"the router gives the canary {found:g} %, it was told {self.release.weight:g} %"
                self._make(Move(Event.BY_HAND, self.release.stage, found, reason, {"found": found}))
        except RouterError as e:
            return [Finding("router", str(e))]
        except ServingError as e:
            return [Finding("server", str(e))]
        if not self.release.by_hand:
            return []
        sentence = f"the weights were changed by hand to {self.release.weight:g} %; approve to go on from there"
        return [Finding("by hand", sentence)]

    def _arrange(self) -> None:
        """Make server and router as the release wants them, unless they are known to be.

        Raises:
            RouterError, ServingError: they are not.
        """
        world, release = self._world, self.release
        if not self._loaded:
            shadow = release.stage is Stage.SHADOW
            policies = world.serving.policies()
            if (policies.canary, policies.shadow, policies.settled) != (release.sha256, shadow, True):
                if world.router.read() == release.weight:
                    self._weighed = False  # a server gives a canary that is new to it no traffic
                self._load(shadow)
            self._loaded = True
        if not self._weighed:
            world.router.set(release.weight)
            self._weighed = True
            self.release = replace(release, weight_since=world.clock.now())

    def _load(self, shadow: bool) -> None:
        """Have the server load the canary.

        Raises:
            ServingError: it did not, or what lies at its path by now is another artefact.
        """
        self._world.serving.load_canary(self.release.path, shadow=shadow)
        found = self._world.serving.policies().canary
        if found != self.release.sha256:
            what = found[:12] or "none"
            raise ServingError(f"the server's canary is {what} after it was to load {self.release.path}")

    # --- making moves --------------------------------------------------------------------------------------------

    def _make(self, move: Move) -> None:
        """Log a move, then make it. One that cannot be logged is not made; only a rollback is made all the
        same."""
        before, record = self.release, self._record
        became = after(before, move, self._world.clock.now())
        if move.event in (Event.ADVANCE, Event.ROLL_BACK):  # between the two lies what a postmortem looks at
            last = self.evidence.last
            seen = {"observation": None if last is None else last.as_json(), "weight": before.weight}
            move = replace(move, evidence={**move.evidence, **seen})
        if move.event is Event.ROLL_BACK:
            line = record.line(move.event, before.stage, became, move.reason, move.evidence)
            self.release = became
            if not record.intend(line):
                self._unwritten = line
            self._world.voice.say(f"ROLLING BACK: {move.reason}")
            return
        try:
            record.append(record.line(move.event, before.stage, became, move.reason, move.evidence))
        except StorageError as e:
            self._world.voice.say(f"cannot write the audit log, so nothing is done: {e}")
            return
        self.release = became
        if became.stage is not before.stage:
            self.evidence = self.evidence.next_stage(became.stage.live, before.stage.live)
            self._loaded = became.stage is Stage.RAMP  # the canary's answers count from the stage before on
        if became.weight != before.weight:
            self.evidence = replace(self.evidence, step=0.0)
            self._weighed = move.event is Event.BY_HAND
        if became.stage is not Stage.PROMOTING:
            try:
                self._arrange()
            except (RouterError, ServingError) as e:
                self._world.voice.say(f"{e}; trying again")

    # --- people --------------------------------------------------------------------------------------------------

    def _aborted(self) -> bool:
        """Whether a person wants the canary withdrawn; then it is being rolled back."""
        folder = self._world.folder
        request = store.asked(folder, "abort")
        if request is None:
            return False
        if meant := request.release in (0, self.release.number):
            reason = f"aborted by {request.by or 'somebody'}" + (f": {request.reason}" if request.reason else "")
            self._make(roll_back(reason, {"triggers": ["abort"], "findings": [], "refuse": request.refuse}))
        self._forget("abort")
        return meant

    def _approved(self) -> None:
        """A person's word to go on: with the next stage, or from weights that were changed by hand."""
        request = store.asked(self._world.folder, "approve")
        if request is None:
            return
        release = self.release
        if request.release == release.number and (release.waiting or release.by_hand):
            who = {"by": request.by, "reason": request.reason}
            reason = f"approved by {request.by or 'somebody'}"
            self._make(Move(Event.APPROVE, release.stage, release.weight, reason, who))
            if release.by_hand and not self.release.by_hand:
                self._accept_weights()
        self._forget("approve")

    def _forget(self, what: str) -> None:
        try:
            store.forget(self._world.folder, what)
        except StorageError as e:
            self._world.voice.say(f"cannot take {what}.json away: {e}")

    def _accept_weights(self) -> None:
        """Go on from weights that were changed by hand: the ramp from where it has come to them."""
        stages, release = self.settings.stages, self.release
        if release.stage is Stage.RAMP:
            self.release = replace(release, progress_s=ramp_progress(stages, release.weight))
        least = whole_steps(stages.canary_percent, self._world.router.step)
        wanted = max(release.weight, least) if release.stage.live else 0.0
        if wanted != release.weight:
            self._make(Move(Event.WEIGH, release.stage, wanted, f"what {release.stage} has at least"))

    def _check_config(self) -> None:
        """Notice that the file of the settings has changed. They hold to the end of the release all the same."""
        found = self._config_hash()
        if found != self._config:
            self._config = found
            self._record.note(
                self.release,
                f"{self._world.config} has changed: this release keeps the settings that it began with, "
                "the next one has the new ones",
            )

    def _config_hash(self) -> str:
        try:
            return (
                "" if self._world.config is None else hashlib.sha256(self._world.config.read_bytes()).hexdigest()
            )
        except OSError as e:
            return f"cannot be read: {e.strerror}"

    # --- showing -------------------------------------------------------------------------------------------------

    def _warn(self, verdict: Verdict) -> None:
        found = [f.trigger for f in verdict.warnings]
        if found != self._warned:
            self._warned = found
            for finding in verdict.warnings:
                self._record.note(self.release, f"warning: {finding.sentence}", finding.as_json())

    def _save(self) -> None:
        value = {
            "release": self.release.as_json(),
            "weighed": self._weighed,
            "config": self._config,
            "evidence": self.evidence.as_json(),
            "t": self._world.clock.now(),
        }
        try:
            store.write_state(self._world.folder, value)
        except StorageError as e:
            self._world.voice.say(f"cannot write the release's state: {e}")

    def _show(self, verdict: Verdict) -> None:
        release = self.release
        whole = duration(self.settings.stages, release.stage)
        at = f"{text.duration(release.progress_s)} of {text.duration(whole)}"
        outcome = "waits for approval" if release.waiting else str(verdict.outcome)
        why = verdict.reason or (f"needs {verdict.lacking}" if verdict.lacking else "")
        line = f"{release.sha256[:12]} {release.stage} {release.weight:g} %, {at}, {outcome}: {why}"
        self._world.voice.progress(line.rstrip(": "))
