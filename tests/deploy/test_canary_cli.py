"""`td-loop deploy canary` and its sisters, against a stand-in for the server that is asked over HTTP."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from td_loop.cli import main
from td_loop.deploy.canary import store
from td_loop.deploy.canary.machine import Event
from td_loop.deploy.routing.embedded import EmbeddedRouter
from td_loop.files import write_json
from td_loop.lock import locked
from tests.deploy.canary_exporter import Exporter

SETTINGS = """
[stages]
shadow_s = 0.2
canary_s = 0.2
canary_percent = 9.09
ramp_s = 0.3
step_s = 0.1
[watch]
poll_s = 0.05
requests = 1
rewards = 2
[limits]
settle_s = 0
"""


class Stand:
    """A server's control, and metrics that count with every look."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.exporter = folder, Exporter()
        self.stable, self.canary, self.shadow = "5" * 64, "", False
        self.errors, self.behind_proxy = 0.0, False
        (folder / "token").write_text("secret")
        stand = self

        class Handler(BaseHTTPRequestHandler):
            def _answer(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else {}
                status, content = stand.answer(self.command, self.path, body, self.headers.get("Authorization"))
                self.send_response(status)
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_PUT = do_POST = _answer  # noqa: N815

            def log_message(self, *args: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        write_json(folder / "server.json", {"url": self.url, "pid": 1, "processes": 1})
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}).start()

    def answer(self, method: str, path: str, body: dict[str, Any], token: str | None) -> tuple[int, bytes]:
        if path == "/metrics":
            self.exporter.values["n"] = self.exporter.values.get("n", 0.0) + 1000
            self.exporter.values |= {"errors of canary": self.errors, "errors of stable": 0.0}
            content = self.exporter.text()
            hashes = {"stable": self.stable, "canary": self.canary}
            for subset, sha in hashes.items():
                old = f'{{subset="{subset}",sha256="{self.exporter.sha256}"}}'
                content = content.replace(old.encode(), f'{{subset="{subset}",sha256="{sha}"}}'.encode())
            return 200, content
        if method != "GET" and token != "Bearer secret":
            return 401, b'{"error": "no token"}'
        if path == "/v1/canary":
            at = body["path"]
            self.canary = "" if at is None else hashlib.sha256(Path(at).read_bytes()).hexdigest()
            self.shadow = bool(body.get("shadow"))
        elif path == "/v1/promote":
            assert body["sha256"] == self.canary
            self.stable, self.canary, self.shadow = self.canary, "", False
        canary = {"sha256": self.canary} if self.canary else None
        return 200, json.dumps(
            {
                "stable": {"sha256": self.stable},
                "canary": canary,
                "shadow": self.shadow,
                "revision": 1,
                "processes": [1],
                "behind_proxy": self.behind_proxy,
            }
        ).encode()

    def close(self) -> None:
        self.exporter.close()
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Stand]:
    folder = tmp_path / "deploy"
    folder.mkdir()
    started = Stand(folder)
    yield started
    started.close()


@pytest.fixture
def artefact(tmp_path: Path) -> Path:
    path = tmp_path / "policy.onnx"
    path.write_bytes(b"a policy")
    sha = hashlib.sha256(path.read_bytes()).hexdigest()
    write_json(tmp_path / "policy.onnx.verified.json", {"format_version": 1, "sha256": sha, "verified": True})
    (tmp_path / "canary.toml").write_text(SETTINGS)
    return path


def command(artefact: Path, stand: Stand, *more: str) -> list[str]:
    config = artefact.parent / "canary.toml"
    return ["deploy", "canary", str(artefact), "--dir", str(stand.folder), "--config", str(config), *more]


def split(stand: Stand) -> float:
    with closing(EmbeddedRouter(stand.folder)) as router:
        return router.read()


def sha_of(artefact: Path) -> str:
    return hashlib.sha256(artefact.read_bytes()).hexdigest()


def test_a_release_from_start_to_promotion(
    stand: Stand, artefact: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command(artefact, stand)) == 0
    out, err = capsys.readouterr()
    assert out == f"{artefact} is promoted\n"
    assert "canary: advance, ramp, 9.09 %: canary is done" in err
    assert "\r" not in err  # piped: no progress
    assert (stand.stable, stand.canary, split(stand)) == (sha_of(artefact), "", 0.0)
    assert main(["deploy", "status", "--dir", str(stand.folder)]) == 0
    assert "stage       promoted" in capsys.readouterr().out
    assert main(["deploy", "history", "--dir", str(stand.folder)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[4] for line in lines] == ["begin", *["advance"] * 5]
    assert main(command(artefact, stand)) == 64
    assert "is the stable policy already" in capsys.readouterr().err


def test_a_bad_one_ends_in_9_and_is_refused_until_it_is_allowed(
    stand: Stand, artefact: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stand.errors = 0.2
    assert main(command(artefact, stand)) == 9
    out, err = capsys.readouterr()
    assert out == f"{artefact} is rolled back\n"
    assert "ROLLING BACK: 2" in err
    assert (stand.stable, stand.canary, split(stand)) == ("5" * 64, "", 0.0)
    assert (stand.folder / "postmortem.md").exists()
    assert main(command(artefact, stand)) == 8
    assert "has been rolled back before" in capsys.readouterr().err
    sha = sha_of(artefact)
    assert main(["deploy", "allow", sha[:12], "--dir", str(stand.folder), "--reason", "the network failed"]) == 0
    stand.errors = 0.0
    assert main(command(artefact, stand)) == 0


def test_what_was_not_verified_is_refused(
    stand: Stand, artefact: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    artefact.write_bytes(b"another policy")
    assert main(command(artefact, stand)) == 8
    assert "td-loop deploy verify" in capsys.readouterr().err
    assert store.read_audit(stand.folder) == []


def test_two_controllers_on_one_folder(stand: Stand, artefact: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with locked(stand.folder / store.LOCK, ""):
        assert main(command(artefact, stand)) == 5
    assert "is in use by" in capsys.readouterr().err


def in_background(arguments: list[str]) -> tuple[threading.Thread, list[int]]:
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(main(arguments)))
    thread.start()
    return thread, codes


def wait_for(stand: Stand, event: Event) -> None:
    deadline = time.monotonic() + 30
    while not any(x.event is event for x in store.read_audit(stand.folder)):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_gates_are_opened_and_a_release_is_aborted_from_another_terminal(
    stand: Stand, artefact: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at = ["--dir", str(stand.folder)]
    assert main(["deploy", "approve", *at]) == 64
    assert main(["deploy", "abort", *at]) == 64
    thread, codes = in_background(command(artefact, stand, "--gate", "manual"))
    wait_for(stand, Event.WAIT)
    assert main(["deploy", "approve", *at, "--reason", "fine in shadow"]) == 0
    wait_for(stand, Event.APPROVE)
    capsys.readouterr()
    assert main(["deploy", "status", *at, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["controller"]["who"].startswith("process")
    assert main(["deploy", "abort", *at, "--reason", "no time"]) == 0
    thread.join(30)
    assert codes == [9]
    assert split(stand) == 0
    assert "no time" in store.read_audit(stand.folder)[-1].reason
    assert store.refusal(stand.folder, sha_of(artefact)) == ""


def test_an_abort_takes_the_traffic_though_the_log_is_damaged(
    stand: Stand, artefact: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    thread, codes = in_background(command(artefact, stand, "--shadow", "0", "--hold-at", "600"))
    wait_for(stand, Event.ADVANCE)
    while split(stand) == 0:
        time.sleep(0.02)
    path = stand.folder / store.AUDIT
    path.write_bytes(path.read_bytes().replace(b"{", b"#", 1))
    assert main(["deploy", "abort", "--dir", str(stand.folder)]) == 65
    thread.join(30)
    assert codes == [65]
    assert split(stand) == 0
    assert "all the same" in capsys.readouterr().err


def test_a_release_that_nobody_watches_is_aborted_by_the_command_itself(
    stand: Stand, artefact: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at = ["--dir", str(stand.folder)]
    thread, _ = in_background(command(artefact, stand, "--gate", "manual"))
    wait_for(stand, Event.WAIT)
    store.ask(stand.folder, store.Request("approve", 1))
    wait_for(stand, Event.APPROVE)
    # A controller that is killed leaves the weights as they are; here its log is cut to what it was then.
    store.ask(stand.folder, store.Request("abort", 1))
    thread.join(30)
    path = stand.folder / store.AUDIT
    kept = []
    for line in path.read_bytes().splitlines(keepends=True):
        if json.loads(line)["event"] == "roll_back":
            break
        kept.append(line)
    path.write_bytes(b"".join(kept))
    stand.canary = sha_of(artefact)
    with closing(EmbeddedRouter(stand.folder)) as router:
        router.set(50.0)
    with locked(stand.folder / store.LOCK, "") as lock:
        lock.sign()
        assert main(["deploy", "abort", *at]) == 0
        assert "the controller, process" in capsys.readouterr().out
        assert split(stand) == 50
    assert main(["deploy", "abort", *at]) == 0
    assert split(stand) == 0
    assert stand.canary == ""


def test_another_artefact_cannot_take_over_a_release(
    stand: Stand, artefact: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    thread, _ = in_background(command(artefact, stand, "--gate", "manual"))
    wait_for(stand, Event.WAIT)
    store.ask(stand.folder, store.Request("abort", 1))
    thread.join(30)
    path = stand.folder / store.AUDIT
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:2]))
    other = tmp_path / "other.onnx"
    other.write_bytes(b"other")
    assert main(command(other, stand)) == 64
    assert "release 1, of" in capsys.readouterr().err


def test_server_and_router_must_be_made_for_each_other(
    stand: Stand, artefact: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    behind = command(artefact, stand, "--router", "envoy")
    assert main(behind) == 64
    assert "--behind-proxy" in capsys.readouterr().err
    stand.behind_proxy = True
    assert main(behind) == 1
    assert "no Envoy runs in" in capsys.readouterr().err
    where = {"pid": 1, "admin": 1, "host": "127.0.0.1", "port": 1, "apart": True}
    write_json(stand.folder / "envoy" / "envoy.json", where)
    assert main(behind) == 64
    assert "--shadow 0" in capsys.readouterr().err
    assert main([*behind, "--shadow", "0"]) == 64
    assert "--prometheus" in capsys.readouterr().err
    assert store.read_audit(stand.folder) == []


def test_a_server_that_was_started_anew_elsewhere_is_found_again(stand: Stand, artefact: Path) -> None:
    thread, codes = in_background(command(artefact, stand, "--gate", "manual"))
    wait_for(stand, Event.WAIT)
    elsewhere = Stand(stand.folder)
    elsewhere.stable, elsewhere.canary, elsewhere.shadow = stand.stable, stand.canary, stand.shadow
    stand.close()
    try:
        assert main(["deploy", "abort", "--dir", str(stand.folder)]) == 0
        thread.join(30)
        assert codes == [9]
        assert elsewhere.canary == ""
    finally:
        elsewhere.close()


def test_settings_are_printed_and_nonsense_is_refused(
    stand: Stand, artefact: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["deploy", "canary", "--print-config", "--ramp", "60"]) == 0
    assert "ramp_s = 60.0" in capsys.readouterr().out
    assert main(["deploy", "canary", "--dir", str(stand.folder)]) == 64
    assert main(command(artefact, stand, "--router", "teapot")) == 64
    assert main(command(artefact, stand, "--router-option", "x")) == 64
    assert main(command(artefact, stand, "--prometheus", "localhost")) == 64
    assert main(["deploy", "canary", str(artefact), "--dir", str(stand.folder / "nowhere")]) == 64
    assert main(["deploy", "status", "--dir", str(stand.folder / "nowhere")]) == 65
    assert main(["deploy", "allow", "abcdef", "--dir", str(stand.folder), "--reason", " "]) == 64
