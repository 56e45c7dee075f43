"""Transitions told to others: never in the way, tried again, and what became of them known."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from td_loop.deploy.canary import webhook as module
from td_loop.deploy.canary.machine import Event, Stage
from td_loop.deploy.canary.settings import CanarySettings, WebhookSettings
from td_loop.deploy.canary.webhook import Told, Webhook
from tests.deploy.canary_exporter import free_port
from tests.deploy.canary_world import QUICK, SAME, Policy, bench


class Listener:
    """Keeps what it was told, and answers `statuses`, the last of them from then on."""

    def __init__(self, statuses: list[int]) -> None:
        self.told: list[dict[str, Any]] = []
        self.statuses = statuses
        self.hold = threading.Event()
        self.hold.set()
        listener = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                listener.hold.wait(20)
                listener.told.append(json.loads(body))
                left = listener.statuses
                self.send_response(left.pop(0) if len(left) > 1 else left[0])
                self.end_headers()

            def log_message(self, *args: object) -> None: ...

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/hook"


@contextmanager
def listening(*statuses: int) -> Iterator[Listener]:
    listener = Listener(list(statuses))
    thread = threading.Thread(target=listener.server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield listener
    finally:
        listener.hold.set()
        listener.server.shutdown()
        thread.join()
        listener.server.server_close()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_BREAK_S", 0.01)


def outcomes(hook: Webhook, n: int) -> list[Told]:
    found: list[Told] = []
    deadline = time.monotonic() + 20
    while len(found) < n and time.monotonic() < deadline:
        found += hook.outcomes()
        time.sleep(0.01)
    return found


def test_what_is_told_arrives_in_its_order() -> None:
    with listening(200) as listener:
        hook = Webhook(WebhookSettings(listener.url))
        for k in range(3):
            hook.tell(k, {"event": f"e{k}", "x": float("nan")})
        assert outcomes(hook, 3) == [Told(k, "200", True, 1) for k in range(3)]
        assert listener.told == [{"event": f"e{k}", "x": "NaN"} for k in range(3)]


def test_a_refusal_is_tried_again_and_a_lasting_one_is_given_up() -> None:
    with listening(500, 503, 200) as listener:
        hook = Webhook(WebhookSettings(listener.url))
        hook.tell(1, {})
        assert outcomes(hook, 1) == [Told(1, "200", True, 3)]
        listener.statuses[:] = [404]
        hook.tell(2, {})
        assert outcomes(hook, 1) == [Told(2, "404", False, 5)]


def test_nobody_there_is_an_outcome() -> None:
    hook = Webhook(WebhookSettings(f"http://127.0.0.1:{free_port()}", tries=2))
    hook.tell(1, {})
    (told,) = outcomes(hook, 1)
    assert not told.fine
    assert "refused" in told.outcome


def test_one_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAITING", 2)
    with listening(200) as listener:
        listener.hold.clear()
        hook = Webhook(WebhookSettings(listener.url, timeout_s=0.2, tries=1))
        for k in range(10):
            hook.tell(k, {})
        dropped = [told for told in hook.outcomes() if told.outcome.startswith("dropped")]
        assert len(dropped) >= 7
        hook.finish()


def test_without_an_address_nothing_happens() -> None:
    hook = Webhook(WebhookSettings())
    hook.tell(1, {})
    hook.finish()
    assert not list(hook.outcomes())


def test_a_release_tells_each_transition_once_and_logs_what_became_of_it(tmp_path: Path) -> None:
    with listening(200) as listener:
        b = bench(tmp_path, Policy())
        b.settings = CanarySettings.from_mapping({**QUICK, "webhook": {"url": listener.url}})
        assert b.begin(SAME).run() is Stage.PROMOTED
        transitions = [x for x in b.lines() if x.event not in (Event.NOTE, Event.WEIGH)]
        assert [x["seq"] for x in listener.told] == [x.seq for x in transitions]
        assert listener.told[-1]["to"] == "promoted"
        assert listener.told[-1]["sha256"] == SAME
        logged = [x.evidence["webhook"] for x in b.lines() if "webhook" in x.evidence]
        assert [w["of"] for w in logged] == [x.seq for x in transitions]
        assert all(w["arrived"] for w in logged)


def test_a_webhook_that_is_down_changes_nothing(tmp_path: Path) -> None:
    b = bench(tmp_path, Policy())
    hook = {"url": f"http://127.0.0.1:{free_port()}", "tries": 1}
    b.settings = CanarySettings.from_mapping({**QUICK, "webhook": hook})
    assert b.begin(SAME).run() is Stage.PROMOTED
    logged = [x.evidence["webhook"] for x in b.lines() if "webhook" in x.evidence]
    assert logged
    assert not any(w["arrived"] for w in logged)
