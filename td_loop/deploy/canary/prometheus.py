"""The counters as a Prometheus has scraped them.

Three instant queries a look: what time it is there, every counter at that time, and when each server was scraped
last. All are read at one moment of Prometheus's own clock, so that numbers of different names fit together and no
clock of ours matters to how old they are. Averages over windows are not asked for: `rate()` extrapolates, and what
falls is taken for a restart in silence.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from http.client import HTTPException
from typing import Any

from td_loop.deploy import names
from td_loop.deploy.canary.exposition import Sample, observation, wanted
from td_loop.deploy.canary.observation import Observation, SourceError
from td_loop.errors import UsageError

TIMEOUT_S = 5.0


class Prometheus:
    """A Prometheus server, asked by its HTTP API."""

    def __init__(self, url: str, selector: str = "") -> None:
        """Nothing is asked yet.

        Args:
            url: such as http://127.0.0.1:9090.
            selector: label matchers that tell our servers from others, such as `job="policy"`.

        Raises:
            UsageError: `url` is none.
        """
        if not url.startswith(("http://", "https://")):
            raise UsageError(f"--prometheus {url}: must begin with http:// or https://")
        self._url = f"{url.rstrip('/')}/api/v1/query"
        more = f", {selector.strip().strip('{}')}" if selector.strip() else ""
        self._counters = f'{{__name__=~"{"|".join(wanted())}"{more}}}'
        self._scraped = f'timestamp({{__name__="{names.REQUESTS}"{more}}})'
        # A proxy that the environment names is for the world, not for a server of ours.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def observe(self) -> Observation:
        """The counters as of the newest scrape."""
        try:
            now = float(self._ask("time()", None, "scalar")[1])
            found = [_sample(series) for series in self._ask(self._counters, now, "vector")]
            scraped: dict[str, float] = {}
            for series in self._ask(self._scraped, now, "vector"):
                sample = _sample(series)
                where = _instance(sample)
                scraped[where] = max(sample.value, scraped.get(where, 0.0))
        except (LookupError, TypeError, ValueError, AttributeError) as e:
            raise SourceError(f"{self._url}: an answer of another kind than expected ({e!r})") from e
        if not scraped:
            raise SourceError(f"{self._url} knows no {names.REQUESTS}: it scrapes no server of ours, or cannot")
        instances = tuple(scraped)
        return observation(
            found, time=max(scraped.values()), age=max(0.0, now - min(scraped.values())), instances=instances
        )

    def close(self) -> None:
        """Nothing is kept open."""

    def _ask(self, query: str, at: float | None, kind: str) -> Any:
        """The result of an instant query.

        Raises:
            SourceError: no answer, a refusal, or one that is not whole.
        """
        form = {"query": query} | ({} if at is None else {"time": f"{at:.3f}"})
        request = urllib.request.Request(self._url, data=urllib.parse.urlencode(form).encode())
        try:
            with self._opener.open(request, timeout=TIMEOUT_S) as answer:
                found = json.load(answer)
        except urllib.error.HTTPError as e:
            with e:
                raise SourceError(f"{self._url} answers {e.code}: {e.read(200).decode(errors='replace')}") from e
        except (OSError, ValueError, HTTPException) as e:
            raise SourceError(f"{self._url} does not answer: {e}") from e
        if found.get("status") != "success":
            raise SourceError(f"{self._url}: {found.get('error', 'no success')}")
        if warnings := found.get("warnings"):
            raise SourceError(f"{self._url}: the answer is not whole: {'; '.join(map(str, warnings))}")
        data = found["data"]
        if data["resultType"] != kind:
            raise SourceError(f"{self._url}: a {data['resultType']} where a {kind} was asked for")
        return data["result"]


def _sample(series: Any) -> Sample:
    labels = dict(series["metric"])
    return Sample(labels.pop("__name__", ""), labels, float(series["value"][1]))


def _instance(sample: Sample) -> str:
    return f"{sample.labels.get('job', '')} {sample.labels.get('instance', '')}".strip()
