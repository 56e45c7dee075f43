"""Figures of a guard for Prometheus, served or written to a file (extra `guard-metrics`)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from td_loop.errors import StorageError, UsageError
from td_loop.files import write_bytes
from td_loop.guard.config import MetricsSettings
from td_loop.guard.console import Faults
from td_loop.guard.figures import Figure

SHOW_S = 1.0
"""So old may figures be."""
WRITE_S = 5.0
"""Seconds between two writes of the file."""


class Exporter:
    """Where figures go. Without a port or a file it does nothing, and needs no package."""

    def __init__(self, settings: MetricsSettings, faults: Faults) -> None:
        self._settings, self._faults = settings, faults
        self._figures: tuple[Figure, ...] = ()
        self._due = self._shown = 0.0
        self._client: Any = None

    @contextmanager
    def running(self) -> Iterator[None]:
        """Serve while the block runs.

        Raises:
            UsageError: the package is not installed, or the port cannot be had.
        """
        with ExitStack() as stack:
            if self._settings.port or self._settings.file:
                self._client = _client()
                self._registry = self._client.CollectorRegistry()
                self._registry.register(self)
            if self._settings.port:
                stack.callback(self._serve())
            yield
            if self._settings.file:
                self._write()

    def show(self, figures: tuple[Figure, ...]) -> None:
        """The figures from now on."""
        self._figures = figures
        self._shown = time.monotonic()
        if self._settings.file and time.monotonic() >= self._due:
            self._write()

    @property
    def due(self) -> bool:
        """Whether somebody looks at the figures, and those that were shown are old."""
        return self._client is not None and time.monotonic() - self._shown >= SHOW_S

    def collect(self) -> Iterator[Any]:
        """What prometheus_client asks for."""
        core = self._client.core
        for figure in self._figures:
            kind = core.CounterMetricFamily if figure.counts else core.GaugeMetricFamily
            family = kind(f"td_guard_{figure.name}", figure.help, labels=[figure.label] if figure.label else [])
            for value, x in figure.values.items():
                family.add_metric([value] if figure.label else [], x)
            yield family

    def _serve(self) -> Any:
        where = (self._settings.port, self._settings.address)
        try:
            server, thread = self._client.start_http_server(*where, registry=self._registry)
        except OSError as e:
            raise UsageError(
                f"[metrics] {where[1]}:{where[0]} cannot be listened on: {e.strerror}; give another --metrics-port"
            ) from e

        def end() -> None:
            server.shutdown()
            server.server_close()
            thread.join()

        return end

    def _write(self) -> None:
        self._due = time.monotonic() + WRITE_S
        try:
            write_bytes(Path(self._settings.file), self._client.generate_latest(self._registry))
        except StorageError as e:
            self._faults.add("metrics", str(e))


def _client() -> Any:
    try:
        import prometheus_client
        import prometheus_client.core
    except ImportError as e:
        raise UsageError(
            "[metrics] needs the package prometheus_client; pip install 'td-loop[guard-metrics]'"
        ) from e
    return prometheus_client
