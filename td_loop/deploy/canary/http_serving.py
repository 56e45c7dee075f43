"""A server of this project, asked over HTTP (see `deploy/server/control.py`)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from td_loop.deploy.canary.serving import Policies, ServingError
from td_loop.deploy.client import Client, ServerError
from td_loop.errors import UsageError

ASK_S, LOAD_S = 5.0, 120.0
"""Seconds that an answer may take, and that loading a policy in all processes may."""
_FINAL = (400, 401, 403, 409, 422)
"""What a server answers that will answer the same again."""


class HttpServing:
    """One server, all its processes."""

    def __init__(self, url: Callable[[], str], token: Path) -> None:
        """Nothing is asked yet.

        Args:
            url: tells where it is now, such as http://127.0.0.1:8080; raises UsageError where it cannot.
            token: the file that holds the text which lets one change things.
        """
        self._url, self._token = url, token

    def policies(self) -> Policies:
        """See `Serving.policies`."""
        return _policies(self._ask(lambda client: client.policies(), ASK_S))

    def load_canary(self, path: str, *, shadow: bool) -> None:
        """See `Serving.load_canary`."""
        self._change(lambda client: client.set_canary(path, shadow=shadow))

    def promote(self, sha256: str) -> None:
        """See `Serving.promote`."""
        self._change(lambda client: client.promote(sha256))

    def unload_canary(self) -> None:
        """See `Serving.unload_canary`."""
        self._change(lambda client: client.set_canary(None), ASK_S)  # there is nothing to load

    def _change(self, what: Callable[[Client], Any], timeout_s: float = LOAD_S) -> None:
        self._ask(what, timeout_s, self._secret())

    def _ask(self, what: Callable[[Client], Any], timeout_s: float, token: str = "") -> Any:
        try:
            with Client(self._url(), token, timeout_s) as client:
                return what(client)
        except UsageError as e:
            raise ServingError(str(e)) from e
        except ServerError as e:
            raise ServingError(str(e), is_final=e.status in _FINAL) from e

    def _secret(self) -> str:
        try:
            return self._token.read_text().strip()
        except OSError as e:
            raise ServingError(f"{self._token}: {e.strerror}; it is in the folder of the server (--token)") from e


def _policies(found: Any) -> Policies:
    try:
        canary = found["canary"]
        return Policies(
            found["stable"]["sha256"],
            "" if canary is None else canary["sha256"],
            bool(found["shadow"]),
            all(revision == found["revision"] for revision in found["processes"]),
            bool(found.get("behind_proxy")),  # a server of an earlier version does not tell
        )
    except (LookupError, TypeError) as e:
        raise ServingError(f"the server's list of policies is of another kind than expected ({e!r})") from e
