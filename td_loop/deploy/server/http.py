"""HTTP for one process: requests read and checked, answers and errors written. RSGI is granian's own interface.

https://github.com/emmett-framework/granian/blob/master/docs/spec/RSGI.md

Malformed requests get 400 and a JSON error that names the place, a body that is too long gets 413. A decision that
is asked for well gets 200, whatever becomes of the policy.
"""

from __future__ import annotations

import asyncio
import math
import sys
import traceback
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, cast

import orjson

from td_loop.deploy.moves import pack_moves
from td_loop.deploy.names import (
    BINARY,
    DECISION_HEADER,
    EPISODE_HEADER,
    FALLBACK_HEADER,
    SUBSET_HEADER,
    SUBSETS,
    Subset,
)
from td_loop.deploy.server import exposition
from td_loop.deploy.server.control import Control
from td_loop.deploy.server.ledger import Redeemed
from td_loop.deploy.server.problem import Fault, Problem
from td_loop.deploy.server.service import Decision, Request, Service
from td_loop.errors import DataError

MAX_BODY = 1 << 20
"""Bytes of a request: an observation of 300 fleets has 25,000."""
MOST_DISCARDED = 16 * MAX_BODY
READ_S = 10.0
"""Seconds that a client may take to send a body."""
MOST_LETTERS = 200
"""Letters of an episode's id."""
LARGEST_REWARD = 1e9

_JSON = [("content-type", "application/json")]

Scope = Any
Protocol = Any
Handler = Callable[[Scope, Protocol], Awaitable[None]]


class App:
    """The RSGI application of one process."""

    def __init__(self, service: Service, control: Control, *, behind_proxy: bool = False) -> None:
        """Nothing is answered yet.

        Args:
            service: what requests are about.
            control: what the controller of a canary asks for.
            behind_proxy: a router in front says in a header which subset answers. From anybody else that header
                is nothing: a client must not choose its policy.
        """
        self._service, self._control, self._behind_proxy = service, control, behind_proxy
        self._routes: dict[str, dict[str, Handler]] = {
            "/v1/decide": {"POST": self._decide},
            "/v1/reward": {"POST": self._reward},
            "/healthz": {"GET": self._alive},
            "/readyz": {"GET": self._ready},
            "/metrics": {"GET": self._metrics},
            "/v1/traffic": {
                "GET": self._controlled(control.traffic),
                "PUT": self._controlled(control.set_traffic),
            },
            "/v1/policies": {"GET": self._controlled(control.policies)},
            "/v1/canary": {"PUT": self._controlled(control.set_canary)},
            "/v1/promote": {"POST": self._controlled(control.promote)},
        }

    async def __rsgi__(self, scope: Scope, proto: Protocol) -> None:
        """Answer one request."""
        try:
            handler = self._find(scope)
            await handler(scope, proto)
        except Problem as e:
            _json(proto, e.status, {"error": str(e)})
        except DataError as e:
            _json(proto, 400, {"error": str(e)})
        except Fault as e:
            self._broke(proto, e.subset, e.__cause__ or e)
        except Exception as e:
            self._broke(proto, "stable", e)

    def _broke(self, proto: Protocol, subset: Subset, e: BaseException) -> None:
        traceback.print_exception(e, file=sys.stderr)
        self._service.failed(subset)
        _json(proto, 500, {"error": f"a fault of the server's own: {type(e).__name__}"})

    def _find(self, scope: Scope) -> Handler:
        methods = self._routes.get(scope.path)
        if methods is None:
            raise Problem(404, f"no {scope.path} here; there are {', '.join(self._routes)}")
        if scope.method not in methods:
            raise Problem(405, f"{scope.path} takes {' or '.join(methods)}, not {scope.method}")
        return methods[scope.method]

    # --- decisions -----------------------------------------------------------------------------------------

    async def _decide(self, scope: Scope, proto: Protocol) -> None:
        body = await _body(scope, proto)
        arrived = asyncio.get_running_loop().time()
        decision = await self._service.decide(self._request(scope.headers, body), arrived)
        try:
            _answer(scope, proto, decision)
        except Exception as e:  # moves that are no JSON, say
            raise Fault(decision.subset) from e
        self._service.written(decision, asyncio.get_running_loop().time() - arrived)

    def _request(self, headers: Any, body: bytes) -> Request:
        told = headers.get(SUBSET_HEADER) if self._behind_proxy else None
        if told is not None and told not in SUBSETS:
            raise Problem(400, f"header {SUBSET_HEADER}: {told!r} is not one of {', '.join(SUBSETS)}")
        episode, previous = headers.get(EPISODE_HEADER), headers.get(DECISION_HEADER) or ""
        read: Callable[[], tuple[Any, int]]
        if (headers.get("content-type") or "").partition(";")[0].strip() == BINARY:
            where, read = f"header {EPISODE_HEADER}", partial(self._service.game.unpack, body)
        else:
            found = _object(body)
            where, episode = "'episode'", found.get("episode", episode)
            previous = found.get("previous") or previous
            if not isinstance(previous, str):
                raise Problem(400, f"'previous' must be the name of a decision, or null, not {previous!r:.40}")
            if "observation" not in found:
                raise Problem(400, "the body has no 'observation'")
            read = partial(self._service.game.read_observation, found["observation"])
        if not isinstance(episode, str) or not 0 < len(episode) <= MOST_LETTERS:
            raise Problem(400, f"{where} must be a text of 1 to {MOST_LETTERS} letters")
        return Request(episode, previous, cast("Subset | None", told), read)

    async def _reward(self, scope: Scope, proto: Protocol) -> None:
        found = _object(await _body(scope, proto))
        decision, reward = found.get("decision"), found.get("reward")
        if not isinstance(decision, str):
            raise Problem(400, "'decision' must be the name of a decision")
        if isinstance(reward, bool) or not isinstance(reward, int | float) or not math.isfinite(reward):
            raise Problem(400, f"'reward' must be a finite number, not {reward!r:.40}")
        if abs(reward) > LARGEST_REWARD:
            raise Problem(400, f"'reward' must lie in -{LARGEST_REWARD:g}..{LARGEST_REWARD:g}, not {reward!r:.40}")
        redeemed = self._service.reward(decision, float(reward))
        if redeemed in (Redeemed.UNKNOWN, Redeemed.EXPIRED):
            raise Problem(404, f"'decision': {redeemed.value}")
        _json(proto, 200, {"counted": redeemed is Redeemed.COUNTED})

    # --- health and metrics --------------------------------------------------------------------------------

    async def _alive(self, scope: Scope, proto: Protocol) -> None:
        _json(proto, 200, {"alive": True})

    async def _ready(self, scope: Scope, proto: Protocol) -> None:
        # A process listens once it is warm, so who gets an answer at all finds it ready.
        _json(proto, 200, {"ready": True})

    async def _metrics(self, scope: Scope, proto: Protocol) -> None:
        content = self._service.metrics()
        proto.response_bytes(200, [("content-type", exposition.CONTENT_TYPE)], content)

    # --- the controller's ----------------------------------------------------------------------------------

    def _controlled(self, what: Callable[[Mapping[str, Any]], Awaitable[Any]]) -> Handler:
        async def handler(scope: Scope, proto: Protocol) -> None:
            changes = scope.method != "GET"
            self._control.admit(scope.client, scope.headers.get("authorization") or "", changes=changes)
            body = await _body(scope, proto)
            found = _object(body) if changes and body else {}
            _json(proto, 200, await what(found))

        return handler


def _answer(scope: Scope, proto: Protocol, decision: Decision) -> None:
    fallback = bool(decision.reason)
    if BINARY in (scope.headers.get("accept") or "") and (body := pack_moves(decision.moves)) is not None:
        headers = [
            ("content-type", BINARY),
            (DECISION_HEADER, decision.id),
            (SUBSET_HEADER, decision.subset),
            (FALLBACK_HEADER, decision.reason),
        ]
        proto.response_bytes(200, headers, body)
        return
    content: dict[str, Any] = {
        "decision": decision.id,
        "moves": decision.moves,
        "subset": decision.subset,
        "fallback": fallback,
    }
    if fallback:
        content["reason"] = decision.reason
    _json(proto, 200, content)


def _json(proto: Protocol, status: int, content: Any) -> None:
    proto.response_bytes(status, _JSON, orjson.dumps(content))


def _object(body: bytes) -> dict[str, Any]:
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError as e:
        raise Problem(400, f"the body is not valid JSON: {e}") from e
    if not isinstance(found, dict):
        raise Problem(400, "the body must be a JSON object")
    return found


async def _body(scope: Scope, proto: Protocol) -> bytes:
    """The body, read whole unless it is too long.

    One that is too long is still taken in, up to MOST_DISCARDED, and thrown away: a client that is cut off while
    it sends sees a broken connection, and not what was wrong.
    """
    too_long = Problem(413, f"the body has more than {MAX_BODY} bytes")
    length = scope.headers.get("content-length") or ""
    declared = int(length) if length.isdigit() else None
    if declared is not None and declared > MOST_DISCARDED:
        raise too_long
    try:
        async with asyncio.timeout(READ_S):
            if declared is not None and declared <= MAX_BODY:
                whole: bytes = await proto()
                return whole
            parts, size = [], 0
            async for part in proto:
                size += len(part)
                if size <= MAX_BODY:
                    parts.append(part)
                elif size > MOST_DISCARDED:
                    break
    except TimeoutError as e:
        raise Problem(408, f"the body did not come within {READ_S:g} seconds") from e
    if size > MAX_BODY:
        raise too_long
    return b"".join(parts)
