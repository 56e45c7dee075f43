"""A server of this project, asked over HTTP (see `deploy/server/control.py`)."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from pathlib import Path
from typing import Any

from td_loop.deploy.canary.serving import Policies, ServingError

ASK_S, LOAD_S = 5.0, 120.0
"""Seconds that an answer may take, and that loading a policy in all processes may."""
_FINAL = (400, 401, 403, 409, 422)
"""What a server answers that will answer the same again."""


class HttpServing:
    """One server, all its processes."""

    def __init__(self, url: str, token: Path) -> None:
        """Nothing is asked yet.

        Args:
            url: such as http://127.0.0.1:8080.
            token: the file that holds the text which lets one change things.
        """
        self._url, self._token = url.rstrip("/"), token
        # A proxy that the environment names is for the world, not for a server of ours.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def policies(self) -> Policies:
        """See `Serving.policies`."""
        return _policies(self._ask("GET", "/v1/policies"))

    def load_canary(self, path: str, *, shadow: bool) -> None:
        """See `Serving.load_canary`."""
        self._ask("PUT", "/v1/canary", {"path": path, "shadow": shadow})

    def promote(self, sha256: str) -> None:
        """See `Serving.promote`."""
        self._ask("POST", "/v1/promote", {"sha256": sha256})

    def unload_canary(self) -> None:
        """See `Serving.unload_canary`."""
        self._ask("PUT", "/v1/canary", {"path": None})

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        where = self._url + path
        request = urllib.request.Request(where, method=method)
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", "application/json")
            request.add_header("Authorization", f"Bearer {self._secret()}")
        try:
            with self._opener.open(request, timeout=ASK_S if body is None else LOAD_S) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as e:
            with e:
                said = e.read(1000).decode(errors="replace")
            raise ServingError(f"{where} answers {e.code}: {_error(said)}", is_final=e.code in _FINAL) from e
        except (OSError, ValueError, HTTPException) as e:
            raise ServingError(f"{where} does not answer: {e}") from e

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
        )
    except (LookupError, TypeError) as e:
        raise ServingError(f"the server's list of policies is of another kind than expected ({e!r})") from e


def _error(said: str) -> str:
    try:
        return str(json.loads(said)["error"])
    except (ValueError, LookupError, TypeError):
        return said
