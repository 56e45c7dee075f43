"""One controller's writing: the audit log, the state, what is said, and what others are told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from td_loop.deploy.canary import store
from td_loop.deploy.canary.machine import Event, Release, Stage
from td_loop.deploy.canary.world import World
from td_loop.errors import StorageError

_CHANGE_NOTHING = (Event.NOTE, Event.RESUMED)


class Record:
    """Writes for one release."""

    def __init__(self, world: World) -> None:
        self._world = world

    def line(
        self, event: Event, before: Stage, release: Release, reason: str, evidence: Mapping[str, Any] | None = None
    ) -> store.Line:
        """A line of the audit log, of now."""
        return store.Line(release.seq, self._world.clock.now(), event, before, release, reason, evidence or {})

    def append(self, line: store.Line) -> None:
        """Write a line, say it, and tell whoever wants to know.

        Raises:
            StorageError: it cannot be written; then nobody hears of it.
        """
        store.append_audit(self._world.folder, line)
        if line.event in _CHANGE_NOTHING:
            self._world.voice.say(line.reason)
            return
        self._world.voice.say(f"{line.event}, {line.release.stage}, {line.release.weight:g} %: {line.reason}")
        if line.event is not Event.WEIGH:
            self.tell(line)

    def intend(self, line: store.Line) -> bool:
        """Write the line of a rollback without waiting for the disk; False if that failed.

        It is said and told of when the weights are set.
        """
        try:
            store.append_audit(self._world.folder, line, durable=False)
        except StorageError as e:
            self._world.voice.say(f"cannot write the audit log: {e}; rolling back all the same")
            return False
        return True

    def note(
        self, release: Release, reason: str, evidence: Mapping[str, Any] | None = None, event: Event = Event.NOTE
    ) -> None:
        """Write a line that changes no state. One that cannot be written is only said."""
        try:
            self.append(self.line(event, release.stage, release, reason, evidence))
        except StorageError as e:
            self._world.voice.say(f"{reason} (and the audit log cannot be written: {e})")

    def tell(self, line: store.Line) -> None:
        """Send a line to the webhook."""
        body = line.as_json() | {"sha256": line.release.sha256, "folder": str(self._world.folder)}
        self._world.webhook.tell(line.seq, body)

    def tell_again(self, release: Release) -> None:
        """Send the lines of a release of which nobody knows what became of them, after a controller was killed.

        Whoever receives them tells them apart by `seq`.
        """
        lines = [x for x in store.read_audit(self._world.folder) if x.release.number == release.number]
        known = {x.evidence["webhook"]["of"] for x in lines if "webhook" in x.evidence}
        for line in lines:
            if line.event not in (*_CHANGE_NOTHING, Event.WEIGH) and line.seq not in known:
                self.tell(line)

    def drain(self, release: Release) -> None:
        """Log what became of webhooks."""
        for told in self._world.webhook.outcomes():
            what = "arrived" if told.fine else "did not arrive"
            reason = f"webhook of line {told.seq} {what}: {told.outcome}"
            self.note(release, reason, {"webhook": told.as_json()})
