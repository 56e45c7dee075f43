"""Telemetry over Redis Streams: writers on several machines, one guard.

An entry of the stream has the fields `lines` (one line of telemetry or several), `writer` and `n`: a name that a
client draws for itself, and a number that it counts up. A client that heard no answer sends its entry again: these
two show that it was there already. A program of another make may leave them out:

    XADD td_loop:guard MAXLEN ~ 10000 * lines '{"step": 7, "kl": 0.01}'
"""

from __future__ import annotations

import os
import re
import threading
from collections import deque
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from td_loop.errors import UsageError
from td_loop.guard.sinks import RETRY_S
from td_loop.guard.sources import MAX_BYTES, Batch, Complaints, Poll, Position

DEFAULT_STREAM = "td_loop:guard"
MAX_ENTRIES = 10_000
"""The server keeps about so many entries of a stream, some 8 minutes of the busiest writer."""

PAUSE_S = 0.05
"""Seconds that a client gathers lines for one entry."""

_MAX_WAITING = 10_000
"""Lines that wait for a server that does not answer. Later ones are lost."""
_ENTRY_LINES = 200
_TIMEOUT_S = 2.0
_BLOCK_MS = 500
_MAX_ARRIVED = 100
_MAX_WRITERS = 10_000
_ENTRY_ID = re.compile(r"\d{1,20}-\d{1,20}")


class Address:
    """`redis://[user:password@]host[:port][/db][?stream=NAME]`, or `rediss://` for TLS.

    Raises:
        UsageError: it cannot be meant, or the package `redis` is not installed.
    """

    def __init__(self, where: str) -> None:
        try:
            import redis
            from redis.backoff import NoBackoff
            from redis.retry import Retry
        except ImportError as e:
            raise UsageError(
                f"{where.partition('://')[0]}://: telemetry over Redis needs the package redis; "
                "pip install 'td-loop[guard-redis]'"
            ) from e
        self.full = where
        parts = urlsplit(where)
        options = dict(parse_qsl(parts.query))
        self.stream = options.pop("stream", DEFAULT_STREAM)
        host = parts.netloc.rpartition("@")[2]
        self.name = f"{parts.scheme}://{host}{parts.path}?stream={self.stream}"  # for people: without the password
        try:
            self.client: Any = redis.Redis.from_url(
                urlunsplit(parts._replace(query=urlencode(options))),
                socket_timeout=_TIMEOUT_S,
                socket_connect_timeout=_TIMEOUT_S,
                retry=Retry(NoBackoff(), 0),
                protocol=2,
            )
            """Not connected yet. It waits _TIMEOUT_S at most, and tries nothing twice."""
        except (ValueError, TypeError) as e:
            raise UsageError(f"{self.name}: {e}; give redis://host:port/db?stream=NAME") from e


class RedisSink:
    """A thread sends what a queue holds; whoever reports a batch only appends to the queue."""

    def __init__(self, where: str) -> None:
        address = Address(where)
        self._client, self._stream = address.client, address.stream
        self._writer = os.urandom(8).hex()
        self._number = 0
        self._waiting: deque[bytes] = deque()
        self._sending: list[bytes] = []  # the entry of that number: it stays the same until the server has it
        self._dropped = 0
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def lost(self) -> int:
        """Lines that found the queue full, or were in it at the end."""
        return self._dropped

    def write(self, line: bytes) -> None:
        """Put one line into the queue."""
        if len(self._waiting) >= _MAX_WAITING:
            self._dropped += 1
            return
        self._waiting.append(line)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Send what waits, if the server answers within _TIMEOUT_S."""
        self._end.set()
        if self._thread is not None:
            self._thread.join(_TIMEOUT_S)
        self._dropped += len(self._waiting) + len(self._sending)

    def abandon(self) -> None:
        """The child has not got the thread, and redis-py makes it a connection of its own."""

    def _run(self) -> None:
        ok = True
        while not self._end.wait(PAUSE_S if ok else RETRY_S):
            ok = self._send()
        self._send()

    def _send(self) -> bool:
        """Send what waits; False when the server does not take it."""
        while self._sending or self._waiting:
            if not self._sending:
                self._sending = [self._waiting.popleft() for _ in range(min(len(self._waiting), _ENTRY_LINES))]
            entry = {"lines": b"".join(self._sending), "writer": self._writer, "n": self._number}
            try:
                self._client.xadd(self._stream, entry, maxlen=MAX_ENTRIES, approximate=True)
            except Exception:  # refused, timed out, full, or starting: all of it may pass
                return False
            self._sending = []
            self._number += 1
        return True


class RedisSource:
    """Reads one stream. A thread waits for the server, so that `poll` never does."""

    def __init__(self, where: str, at: Position | None = None) -> None:
        """Read what comes after `at` (a `position()` of earlier); None: after what the stream holds now.

        Raises:
            UsageError: the address cannot be meant, the server does not answer, or the package is not installed.
        """
        self._address = Address(where)
        self._client, self._stream = self._address.client, self._address.stream
        try:
            last = self._last_id()
        except Exception as e:
            raise UsageError(
                f"{self._address.name}: the server does not answer ({e}); start it, or give another address"
            ) from e
        known = (at or {}).get("id")
        # of the last entry handed out,
        self._id = known if isinstance(known, str) and _ENTRY_ID.fullmatch(known) else last
        self._read = self._id  # and of the last one that the thread has
        self._seen: dict[bytes, int] = {}  # number of the last entry of each writer
        self._arrived: deque[tuple[str, dict[bytes, bytes]]] = deque()
        self._news: deque[str] = deque(maxlen=10)  # what the thread has to say of the server
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="telemetry source", daemon=True)
        self._thread.start()

    def poll(self) -> Poll:
        """Take what the thread has received, MAX_BYTES and an entry at most."""
        batch = Batch()
        while self._news:
            batch.faults.append(f"{self._address.name}: {self._news.popleft()}")
        size = 0
        while self._arrived and size < MAX_BYTES:
            self._id, fields = self._arrived.popleft()
            lines = fields.get(b"lines")
            where = f"{self._address.name}, entry {self._id}"
            if lines is None:
                batch.faults.append(f"{where}: has no field 'lines'; the entry is left out")
            elif self._is_new(fields):
                size += len(lines)
                for i, line in enumerate(lines.splitlines(), 1):
                    batch.line(line, f"{where}, line {i}")
        batch.more = bool(self._arrived)
        return batch.poll()

    def address(self) -> str:
        """The address as it was given, password included."""
        return self._address.full

    def position(self) -> Position:
        """The id of the last entry that was handed out."""
        return {"id": self._id}

    def close(self) -> None:
        """Stop the thread."""
        self._end.set()
        self._thread.join(_TIMEOUT_S)
        self._client.close()

    def _is_new(self, fields: dict[bytes, bytes]) -> bool:
        """Whether an entry has not been sent before, as far as its writer says."""
        writer, n = fields.get(b"writer"), fields.get(b"n", b"")
        if writer is None or not n.isdigit():
            return True
        if int(n) <= self._seen.get(writer, -1):
            return False
        self._seen.pop(writer, None)
        self._seen[writer] = int(n)
        if len(self._seen) > _MAX_WRITERS:
            del self._seen[next(iter(self._seen))]
        return True

    def _run(self) -> None:
        complaints = Complaints()
        while not self._end.is_set():
            said = Batch()
            try:
                self._receive(said)
                complaints.over()
                pause = 0.0
            except Exception as e:  # a server that was stopped, or is starting
                complaints.say(said, f"the server does not answer ({e}); trying again every {RETRY_S:g} s")
                pause = RETRY_S
            self._news.extend(said.faults)
            self._end.wait(pause)

    def _receive(self, said: Batch) -> None:
        """Wait for entries, at most _BLOCK_MS, and take them while there is room."""
        if len(self._arrived) >= _MAX_ARRIVED:  # they wait at the server
            self._end.wait(PAUSE_S)
            return
        found = self._client.xread({self._stream: self._read}, count=_MAX_ARRIVED, block=_BLOCK_MS)
        entries = found[0][1] if found else []
        for id_, fields in entries:
            self._read = id_.decode()
            self._arrived.append((self._read, fields))
        if not entries and _order(self._last_id()) < _order(self._read):
            said.faults.append(f"the stream began anew before entry {self._read}; it is read from its start")
            self._read = "0-0"

    def _last_id(self) -> str:
        """The id of the last entry that the stream ever had; 0-0 where there is none."""
        if not self._client.exists(self._stream):
            return "0-0"
        last: bytes = self._client.xinfo_stream(self._stream)["last-generated-id"]
        return last.decode()


def _order(entry_id: str) -> tuple[int, int]:
    ms, _, number = entry_id.partition("-")
    return int(ms), int(number or 0)
