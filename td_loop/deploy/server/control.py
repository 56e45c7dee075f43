"""What the controller of a canary asks of a server: which policies, how much traffic. From this machine only."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import secrets
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from td_loop.deploy.names import FULL_BP, TOKEN_FILE
from td_loop.deploy.server.policies import Named, Policies, publish, read_policies
from td_loop.deploy.server.problem import Problem
from td_loop.deploy.traffic import Traffic
from td_loop.errors import DataError, Refused, RunInUse, StorageError, TdLoopError
from td_loop.files import atomic_file

FOLLOW_S = 60.0
"""Seconds that all processes may take to serve what was asked for."""
_POLL_S = 0.01

T = TypeVar("T")


def folder_token(folder: Path) -> str:
    """What a request that changes something must present; made, for nobody else to read, if there is none.

    Raises:
        StorageError: it cannot be made.
    """
    path = folder / TOKEN_FILE
    if not path.exists():
        text = secrets.token_urlsafe(24).encode()
        with atomic_file(path, len(text), private=True) as f:
            f.write(text)
    return path.read_text().strip()


class Control:
    """The doors for changes, of one process; all others follow.

    Each takes the JSON object of a request and returns that of the answer.
    """

    def __init__(
        self,
        folder: Path,
        traffic: Traffic,
        ready: Callable[[], list[int]],
        prepare: Callable[[Named], Any],
        behind_proxy: bool = False,
    ) -> None:
        """Nothing happens yet.

        Args:
            folder: the server's.
            traffic: its split.
            ready: the revision of the policies that each process serves.
            prepare: loads an artefact into this process, in a thread, before the others hear of it.
            behind_proxy: whether the server goes by what a router in front of it says.
        """
        self._folder, self._traffic, self._ready, self._prepare = folder, traffic, ready, prepare
        self._behind_proxy = behind_proxy
        self._token = folder_token(folder)
        self._one_at_a_time = asyncio.Lock()

    def admit(self, client: str, authorization: str, *, changes: bool) -> None:
        """Refuse whoever is elsewhere, or changes something without the token.

        Raises:
            Problem: 403 or 401.
        """
        host = client.rsplit(":", 1)[0].strip("[]")
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            raise Problem(403, "this is for clients of this machine only") from None
        mapped = getattr(address, "ipv4_mapped", None)
        if not (mapped or address).is_loopback:
            raise Problem(403, "this is for clients of this machine only")
        wanted = f"Bearer {self._token}"
        if changes and not hmac.compare_digest(authorization.encode(), wanted.encode()):
            raise Problem(401, f"authorization: Bearer and the text of {self._folder / TOKEN_FILE} is needed")

    async def traffic(self, _: Mapping[str, Any]) -> dict[str, Any]:
        """The split."""
        state = self._traffic.read()
        return {"canary": state.percent, "generation": state.generation, "shadow": state.shadow}

    async def set_traffic(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        """{"canary": percent}."""
        percent = wanted.get("canary")
        if isinstance(percent, bool) or not isinstance(percent, int | float) or not 0 <= percent <= 100:
            raise Problem(400, f"'canary' must be a percentage in 0..100, not {percent!r:.40}")
        if percent > 0 and self._wanted().canary is None:
            raise Problem(409, "there is no canary that could get traffic; PUT /v1/canary first")
        await _in_thread(self._traffic.set, round(percent * FULL_BP / 100))
        return await self.traffic({})

    async def policies(self, _: Mapping[str, Any]) -> dict[str, Any]:
        """Which policies there are, and whether all processes serve them."""
        policies = self._wanted()
        return {
            "stable": _named(policies.stable),
            "canary": None if policies.canary is None else _named(policies.canary),
            "shadow": policies.shadow,
            "revision": policies.revision,
            "processes": self._ready(),
            "behind_proxy": self._behind_proxy,
        }

    async def set_canary(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        """{"path": artefact or null, "shadow": bool}: another canary begins without traffic."""
        path, shadow = wanted.get("path"), wanted.get("shadow", False)
        if path is not None and not isinstance(path, str):
            raise Problem(400, f"'path' must be a path or null, not {path!r:.40}")
        if not isinstance(shadow, bool):
            raise Problem(400, f"'shadow' must be true or false, not {shadow!r:.40}")
        async with self._one_at_a_time:
            policies = self._wanted()
            canary = None if path is None else await _in_thread(Named.of, Path(path))
            if canary is not None:
                await _in_thread(self._prepare, canary)
            same = canary is not None and policies.canary == canary
            new = replace(policies, canary=canary, shadow=shadow and canary is not None)
            return await self._publish(new, None if same else 0)

    async def promote(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        """{"sha256": of the canary, if given}: the canary is the stable policy from now on."""
        async with self._one_at_a_time:
            policies = self._wanted()
            meant = wanted.get("sha256")
            if policies.canary is None:
                if meant is not None and meant == policies.stable.sha256:  # asked twice
                    if all(revision == policies.revision for revision in self._ready()):
                        return await self.policies({})
                    return await self._publish(policies, 0)  # a process was killed before all heard of it
                raise Problem(409, "there is no canary that could be promoted")
            if meant is not None and meant != policies.canary.sha256:
                raise Problem(409, f"the canary is {policies.canary.sha256}, not {meant!r:.80}")
            new = replace(policies, stable=policies.canary, canary=None, shadow=False)
            return await self._publish(new, 0)

    def _wanted(self) -> Policies:
        policies = read_policies(self._folder)
        if policies is None:
            raise Problem(409, "the server's folder names no policies")
        return policies

    async def _publish(self, policies: Policies, weight_bp: int | None) -> dict[str, Any]:
        """Let every process have these policies, and wait for that."""
        if weight_bp == 0:
            await _in_thread(self._traffic.set, 0)
        new = await _in_thread(publish, self._folder, self._traffic, policies, weight_bp)
        loop = asyncio.get_running_loop()
        end = loop.time() + FOLLOW_S
        while any(revision != new.revision for revision in self._ready()):
            if loop.time() > end:
                behind = [k for k, revision in enumerate(self._ready()) if revision != new.revision]
                raise Problem(
                    503, f"server processes {behind} do not serve revision {new.revision}; see their log"
                )
            await asyncio.sleep(_POLL_S)
        return await self.policies({})


def _named(x: Named) -> dict[str, str]:
    return {"path": x.path, "sha256": x.sha256}


async def _in_thread(what: Callable[..., T], *args: Any) -> T:
    """Call it in a thread; what it objects to becomes an answer."""
    try:
        return await asyncio.to_thread(what, *args)
    except Refused as e:
        raise Problem(409, str(e)) from e
    except DataError as e:
        raise Problem(422, str(e)) from e
    except (RunInUse, StorageError) as e:
        raise Problem(503, str(e)) from e
    except TdLoopError as e:
        raise Problem(400, str(e)) from e
