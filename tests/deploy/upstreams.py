"""Tiny servers that tell who they are, and a client that keeps its connections: for tests of routers."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")


class Loop:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def begin(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.begin(coroutine).result(60)

    def close(self) -> None:
        async def end() -> None:
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        self.run(end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def read_message(reader: asyncio.StreamReader) -> tuple[str, dict[str, str], bytes]:
    """First line, headers (names in lower case), body of an HTTP/1.1 message with a content-length."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    first, *lines = head.strip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return first, headers, await reader.readexactly(int(headers.get("content-length", 0)))


@dataclass
class Upstream:
    """A server that answers everything with its name; `subsets` are the x-rl-subset headers that it saw."""

    name: str
    port: int = 0
    delay_s: float = 0.0
    ready: bool = True
    asked: int = 0
    paths: list[str] = field(default_factory=list)
    subsets: list[str] = field(default_factory=list)
    _server: asyncio.Server | None = None
    _open: set[asyncio.StreamWriter] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """As if it were killed."""
        if self._server is None:
            return
        self._server.close()
        for writer in list(self._open):
            writer.transport.abort()
        await self._server.wait_closed()
        self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            while True:
                first, headers, _ = await read_message(reader)
                path = first.split(" ")[1]
                status = 200
                if path == "/readyz":
                    status = 200 if self.ready else 503
                else:
                    self.asked += 1
                    self.paths.append(path)
                    self.subsets.append(headers.get("x-rl-subset", ""))
                    if self.delay_s:
                        await asyncio.sleep(self.delay_s)
                body = self.name.encode()
                writer.write(b"HTTP/1.1 %d x\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._open.discard(writer)
            writer.close()


class Client:
    """A connection that stays open; another one is made when the server closes it between two requests."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, headers: dict[str, str], path: str = "/v1/decide") -> tuple[int, str]:
        """Status and body."""
        if self._streams is None or self._streams[0].at_eof():
            await self.close()
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        lines = "".join(f"{k}: {v}\r\n" for k, v in headers.items())
        writer.write(f"POST {path} HTTP/1.1\r\nhost: rl\r\ncontent-length: 2\r\n{lines}\r\n{{}}".encode())
        first, _, body = await read_message(reader)
        return int(first.split(" ")[1]), body.decode()

    async def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            with contextlib.suppress(ConnectionError):
                await self._streams[1].wait_closed()
            self._streams = None


async def ask_all(
    port: int, requests: Iterable[dict[str, str]], connections: int = 8, path: str = "/v1/decide"
) -> list[tuple[int, str]]:
    """Status and body of each request, over a few connections at once."""
    todo: Iterator[tuple[int, dict[str, str]]] = iter(enumerate(requests))
    answers: dict[int, tuple[int, str]] = {}

    async def work() -> None:
        client = Client(port)
        try:
            for number, headers in todo:
                answers[number] = await client.ask(headers, path)
        finally:
            await client.close()

    await asyncio.gather(*(work() for _ in range(connections)))
    return [answers[n] for n in range(len(answers))]


async def ask_until(port: int, stop: Callable[[], bool], connections: int = 4) -> list[tuple[int, str]]:
    """Ask for new episodes, over and over, until `stop` says so."""
    answers: list[tuple[int, str]] = []

    async def work(number: int) -> None:
        client = Client(port)
        try:
            n = 0
            while not stop():
                answers.append(await client.ask({"x-episode-id": f"{number}-{n}"}))
                n += 1
        finally:
            await client.close()

    await asyncio.gather(*(work(n) for n in range(connections)))
    return answers
