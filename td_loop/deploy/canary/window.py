"""The counters as the server itself tells them, at `/metrics`: for whoever runs no Prometheus."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Callable, Iterator
from http.client import HTTPException

from td_loop.deploy.canary.exposition import Sample, observation, wanted
from td_loop.deploy.canary.observation import Observation, SourceError
from td_loop.errors import UsageError

TIMEOUT_S = 5.0


class Window:
    """A server's own counters; any of its processes tells the sum of all."""

    def __init__(self, url: Callable[[], str], now: Callable[[], float] = time.time) -> None:
        """Nothing is asked yet.

        Args:
            url: tells where the server is now, such as http://127.0.0.1:8080; raises UsageError where it cannot.
            now: the clock by which observations are dated.

        Raises:
            UsageError: prometheus_client is not installed.
        """
        try:
            import prometheus_client.parser  # noqa: F401
        except ImportError as e:
            raise UsageError("needs the package prometheus_client: pip install 'td-loop[deploy]'") from e
        self._url, self._now = url, now
        # A proxy that the environment names is for the world, not for a server of ours.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def observe(self) -> Observation:
        """The counters at this moment."""
        try:
            url = f"{self._url().rstrip('/')}/metrics"
        except UsageError as e:
            raise SourceError(str(e)) from e
        try:
            with self._opener.open(url, timeout=TIMEOUT_S) as answer:
                content = answer.read().decode()
        except (OSError, ValueError, HTTPException) as e:
            raise SourceError(f"{url} does not tell its counters: {e}") from e
        try:
            samples = list(parse(content))
        except ValueError as e:
            raise SourceError(f"{url}: no metrics in the text format ({e})") from e
        return observation(samples, time=self._now(), age=0.0, instances=(url,))

    def close(self) -> None:
        """Nothing is kept open."""


def parse(content: str) -> Iterator[Sample]:
    """The samples of a text in Prometheus's exposition format that an observation is made of.

    Raises:
        ValueError: it is none.
    """
    from prometheus_client.parser import text_string_to_metric_families

    names = set(wanted())
    for family in text_string_to_metric_families(content):
        for s in family.samples:
            if s.name in names:
                yield Sample(s.name, s.labels, float(s.value))
