"""Tells somebody else of transitions, without ever making the controller wait."""

from __future__ import annotations

import queue
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from td_loop.deploy.canary.settings import WebhookSettings
from td_loop.files import dumps_json

WAITING = 256
"""Transitions that may wait to be told; further ones are dropped, and that is said."""
FIRST_BREAK_S = 1.0
"""Seconds before the second try; each later one waits twice as long."""


@dataclass(frozen=True)
class Told:
    """What became of one transition.

    Attributes:
        seq: its number in the audit log.
        outcome: "200", or what went wrong.
        fine: whether it arrived.
        tries: how many it took.
    """

    seq: int
    outcome: str
    fine: bool
    tries: int

    def as_json(self) -> dict[str, Any]:
        """JSON data."""
        return {"of": self.seq, "outcome": self.outcome, "arrived": self.fine, "tries": self.tries}


class Webhook:
    """POSTs JSON from a thread of its own. Without a URL it does nothing."""

    def __init__(self, settings: WebhookSettings) -> None:
        self._settings = settings
        self._waiting = queue.Queue[tuple[int, bytes]](WAITING)
        self._told = queue.SimpleQueue[Told]()
        self._closed = threading.Event()
        if settings.url:
            threading.Thread(target=self._work, name="webhook", daemon=True).start()

    def tell(self, seq: int, body: Mapping[str, Any]) -> None:
        """Send `body` when there is time. Never waits, never raises."""
        if not self._settings.url:
            return
        try:
            self._waiting.put_nowait((seq, dumps_json(body)))
        except queue.Full:
            self._told.put(Told(seq, f"dropped: {WAITING} others wait already", False, 0))

    def outcomes(self) -> Iterator[Told]:
        """What became of transitions since the last call."""
        while not self._told.empty():
            yield self._told.get()

    def finish(self) -> None:
        """Let what waits be sent, within the time of one try; no further ones are made."""
        deadline = time.monotonic() + self._settings.timeout_s
        while self._settings.url and (self._waiting.unfinished_tasks and time.monotonic() < deadline):
            time.sleep(0.02)
        self._closed.set()

    def _work(self) -> None:
        while True:
            seq, body = self._waiting.get()
            self._told.put(self._send(seq, body))
            self._waiting.task_done()

    def _send(self, seq: int, body: bytes) -> Told:
        outcome = ""
        for n in range(1, self._settings.tries + 1):
            if n > 1 and self._closed.wait(FIRST_BREAK_S * 2 ** (n - 2)):
                return Told(seq, f"{outcome}; the controller ended", False, n - 1)
            request = urllib.request.Request(
                self._settings.url, data=body, headers={"Content-Type": "application/json"}, method="POST"
            )
            try:
                with urllib.request.urlopen(request, timeout=self._settings.timeout_s) as answer:
                    return Told(seq, str(answer.status), True, n)
            except urllib.error.HTTPError as e:
                outcome = str(e.code)
                e.close()
            except Exception as e:  # whatever a stranger's server does must not end this thread
                outcome = f"{type(e).__name__}: {e}"
        return Told(seq, outcome, False, self._settings.tries)
