"""The split of a running Envoy: a new route table moved into place, and read back before anybody relies on it."""

from __future__ import annotations

import time
from pathlib import Path

from td_loop import files
from td_loop.deploy.names import FULL_BP
from td_loop.deploy.routing import envoy_config, envoy_routes
from td_loop.deploy.routing.contract import RouterError, whole_steps
from td_loop.deploy.routing.envoy_process import ask, get, new_version, running, stat
from td_loop.errors import DataError

EFFECTIVE_S = 5.0
"""How long a new table may take to be worked by. It takes some 10 ms."""


class EnvoyRouter:
    """The split of the Envoy that `td-loop deploy envoy` runs in a folder. Made anew, it finds an Envoy that was
    started anew.
    """

    step = 0.01

    def __init__(self, folder: Path, effective_s: float = EFFECTIVE_S) -> None:
        self._folder = folder
        self._effective_s = effective_s

    @property
    def apart(self) -> bool:
        """See `Router.apart`: whether `td-loop deploy envoy` was given two addresses."""
        apart = running(self._folder).apart
        if apart is None:
            raise RouterError("this Envoy was started by an earlier version: start `td-loop deploy envoy` anew")
        return apart

    def read(self) -> float:
        """See `Router.read`: what the admin interface says it works by, not what a file says."""
        return envoy_routes.split_of(self._effective()["route_config"]) * 100 / FULL_BP

    def set(self, canary: float) -> float:
        """See `Router.set`.

        The admin interface has to show the new table, and then the worker itself has to answer with its version:
        the main thread knows of it first. Where Envoy does not answer, the file is changed all the same, so that
        one that comes back later starts with the split that was asked for.
        """
        wanted = whole_steps(canary, self.step)
        bp, version = round(wanted * FULL_BP / 100), new_version()
        try:
            table = self._effective()["route_config"]
        except RouterError:
            self._write(self._table_on_disk(), bp, version)
            raise
        self._write(table, bp, version)
        self._await(version)
        got = self.read()
        if got != wanted:
            raise RouterError(
                f"Envoy was to give the canary {wanted:g} %, and has {got:g} % now: somebody else sets it"
            )
        return got

    def close(self) -> None:
        """See `Router.close`: nothing is kept open."""

    def _write(self, table: envoy_config.Json, bp: int, version: str) -> None:
        files.write_json(self._folder / "routes.json", envoy_routes.with_split(table, bp, version))

    def _table_on_disk(self) -> envoy_config.Json:
        file = self._folder / "routes.json"
        try:
            table: envoy_config.Json = files.read_json(file)["resources"][0]
        except (DataError, LookupError, TypeError) as e:
            raise RouterError(f"{file} holds no route table ({e}); start `td-loop deploy envoy` anew") from e
        return table

    def _effective(self) -> envoy_config.Json:
        """The dynamic route table that Envoy has: `version_info`, `route_config`."""
        dump = ask(running(self._folder).admin, "/config_dump?resource=dynamic_route_configs")
        for config in dump.get("configs", []):
            if config.get("route_config", {}).get("name") == envoy_config.ROUTES:
                found: envoy_config.Json = config
                return found
        raise RouterError("Envoy has no route table yet; see envoy.log in its folder")

    def _await(self, version: str) -> None:
        deadline = time.monotonic() + self._effective_s
        where = running(self._folder)
        rejected = self._rejected(where.admin)
        worker = ""
        while True:
            has = str(self._effective().get("version_info"))
            if has == version:
                worker = get(where.port, envoy_routes.VERSION_PATH, where.host).decode(errors="replace")
                if worker == version:
                    return
            if time.monotonic() > deadline:
                break
            time.sleep(0.005)
        why = "it refused it; see envoy.log" if self._rejected(where.admin) > rejected else "it did not say why"
        raise RouterError(
            f"after {self._effective_s:g} s Envoy does not work by the new weights ({why}): version {version} was "
            f"asked for, it has {has}, and its worker has {worker or 'not been asked'}"
        )

    @staticmethod
    def _rejected(admin: int) -> int:
        return stat(admin, f"http.{envoy_config.ROUTES}.rds.{envoy_config.ROUTES}.update_rejected")
