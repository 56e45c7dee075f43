"""A client of the decision server: asks for decisions, reports rewards, and moves traffic for whoever may.

Standard library only. One connection is kept open; a server that was started anew meanwhile is asked once more.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from td_loop.deploy.moves import unpack_moves
from td_loop.deploy.names import (
    BINARY,
    DECISION_HEADER,
    EPISODE_HEADER,
    FALLBACK_HEADER,
    SERVER_FILE,
    SUBSET_HEADER,
    TOKEN_FILE,
)
from td_loop.errors import DataError, TdLoopError, UsageError

TIMEOUT_S = 5.0


class ServerError(TdLoopError):
    """The server does not answer, or not with 200.

    Attributes:
        status: of HTTP; 0 where there was no answer.
    """

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Answer:
    """A decision.

    Attributes:
        decision: its name, for its reward and for the next request of the episode.
        moves: as the game's official environment takes them.
        subset: stable or canary.
        fallback: the rule answered, not the policy.
        reason: why.
    """

    decision: str
    moves: list[list[Any]]
    subset: str
    fallback: bool
    reason: str = ""


class Client:
    """One connection to a server. Not for use by several threads at the same time."""

    def __init__(self, url: str, token: str = "", timeout_s: float = TIMEOUT_S) -> None:
        """Nothing is asked yet.

        Args:
            url: such as http://127.0.0.1:8080.
            token: text of the `token` file in the server's folder, for what changes something.
            timeout_s: that an answer may take.

        Raises:
            UsageError: no such URL.
        """
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            raise UsageError(f"{url}: must be the address of a server, such as http://127.0.0.1:8080")
        self.url = url.rstrip("/")
        self._token = token
        self._connection = http.client.HTTPConnection(parts.hostname, parts.port or 80, timeout=timeout_s)

    @classmethod
    def of_folder(cls, folder: Path, timeout_s: float = TIMEOUT_S) -> Self:
        """A client of the server that works in `folder`, with its token.

        Raises:
            DataError: no server works there.
        """
        try:
            url = json.loads((folder / SERVER_FILE).read_text())["url"]
            return cls(url, (folder / TOKEN_FILE).read_text().strip(), timeout_s)
        except (OSError, ValueError, KeyError) as e:
            raise DataError(f"{folder}: no server works there; start it with `td-loop deploy serve --dir`") from e

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the connection back."""
        self._connection.close()

    def decide(self, episode: str, observation: Mapping[str, Any], previous: str = "") -> Answer:
        """Ask for a decision, as JSON.

        Args:
            episode: any name of it; all of its requests go to one policy.
            observation: as the game's official environment shows it.
            previous: the name of the episode's last decision.

        Raises:
            ServerError: there is none.
        """
        body = {"episode": episode, "previous": previous or None, "observation": observation}
        headers = {"Content-Type": "application/json", **_names(episode, previous)}
        found = self._json("POST", "/v1/decide", body, headers)
        return _answer(found)

    def decide_packed(self, episode: str, body: bytes, previous: str = "") -> Answer:
        """As `decide`, of a state that `Served.pack` made bytes of, and answered in bytes where that can be.

        Raises:
            ServerError: there is none.
        """
        headers = {"Content-Type": BINARY, "Accept": BINARY, **_names(episode, previous)}
        answered, content = self._ask("POST", "/v1/decide", body, headers)
        if answered.get("content-type") != BINARY:
            return _answer(json.loads(content))
        reason = answered.get(FALLBACK_HEADER) or ""
        name, subset = answered.get(DECISION_HEADER) or "", answered.get(SUBSET_HEADER) or ""
        try:
            moves = unpack_moves(content)
        except DataError as e:
            raise ServerError(f"{self.url}/v1/decide: {e}") from e
        return Answer(name, moves, subset, bool(reason), reason)

    def reward(self, decision: str, reward: float) -> bool:
        """Report what a decision led to; False if it has had its reward before.

        Raises:
            ServerError: the server knows no such decision, or takes no such reward.
        """
        found = self._json("POST", "/v1/reward", {"decision": decision, "reward": reward})
        return bool(found["counted"])

    def ready(self) -> bool:
        """Whether the server answers, and its policies are warm."""
        try:
            return bool(self._json("GET", "/readyz")["ready"])
        except ServerError:
            return False

    def metrics(self) -> str:
        """All figures, as text.

        Raises:
            ServerError: there are none.
        """
        return self._ask("GET", "/metrics", b"", {})[1].decode()

    def traffic(self) -> dict[str, Any]:
        """The split: "canary" is a percentage.

        Raises:
            ServerError: it is not told.
        """
        return self._json("GET", "/v1/traffic")

    def set_traffic(self, canary: float) -> dict[str, Any]:
        """Give the canary a percentage of the new episodes.

        Raises:
            ServerError: it was not done.
        """
        return self._json("PUT", "/v1/traffic", {"canary": canary})

    def policies(self) -> dict[str, Any]:
        """Which artefacts are served.

        Raises:
            ServerError: it is not told.
        """
        return self._json("GET", "/v1/policies")

    def set_canary(self, path: str | None, *, shadow: bool = False) -> dict[str, Any]:
        """Serve another canary, which begins without traffic, or None.

        Raises:
            ServerError: it was not done; the old one may still be there.
        """
        return self._json("PUT", "/v1/canary", {"path": path, "shadow": shadow})

    def promote(self, sha256: str | None = None) -> dict[str, Any]:
        """Make the canary the stable policy.

        Raises:
            ServerError: it was not done.
        """
        return self._json("POST", "/v1/promote", {"sha256": sha256})

    def _json(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        data = b"" if body is None else json.dumps(body).encode()
        _, content = self._ask(method, path, data, headers or {})
        try:
            found: dict[str, Any] = json.loads(content)
        except ValueError as e:
            raise ServerError(f"{self.url}{path}: answered with what is no JSON ({e})") from e
        return found

    def _ask(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str]
    ) -> tuple[http.client.HTTPMessage, bytes]:
        sent = dict(headers)
        if self._token and path != "/v1/decide":
            sent["Authorization"] = f"Bearer {self._token}"
        try:
            answer, content = self._send(method, path, body, sent)
        except (http.client.HTTPException, OSError) as e:
            raise ServerError(f"{self.url}{path}: {type(e).__name__}: {e}") from e
        if answer.status != 200:
            raise ServerError(f"{self.url}{path}: {answer.status} {_error(content)}", answer.status)
        return answer.headers, content

    def _send(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str]
    ) -> tuple[http.client.HTTPResponse, bytes]:
        for last in (False, True):
            fresh = self._connection.sock is None
            try:
                self._connection.request(method, path, body, dict(headers))
                answer = self._connection.getresponse()
                return answer, answer.read()
            except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
                # A connection that was kept may have been closed by a server that ended; a new one has no excuse.
                self._connection.close()
                if last or fresh:
                    raise
            except BaseException:
                self._connection.close()
                raise
        raise AssertionError


def _answer(found: Mapping[str, Any]) -> Answer:
    return Answer(found["decision"], found["moves"], found["subset"], found["fallback"], found.get("reason", ""))


def _names(episode: str, previous: str) -> dict[str, str]:
    """Headers that routers in front of the server go by."""
    return {EPISODE_HEADER: episode} | ({DECISION_HEADER: previous} if previous else {})


def _error(content: bytes) -> str:
    try:
        return str(json.loads(content)["error"])
    except (ValueError, KeyError, TypeError):
        return content[:200].decode(errors="replace")
