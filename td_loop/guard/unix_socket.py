"""Telemetry over a Unix socket: any number of writers on one machine, and no file that grows."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import socket
import tempfile
from pathlib import Path

from td_loop.errors import UsageError
from td_loop.files import storage_errors
from td_loop.guard.sinks import UNIX
from td_loop.guard.sources import MAX_BYTES, Batch, Complaints, Lines, Poll, Position

_MAX_PATH = 107
"""Bytes that Linux takes as the path of a socket."""

_BACKLOG = 128
_PIECE = 1 << 16


class UnixSource:
    """Listens on a stream socket. A line is whole or a fault: each writer has a connection of his own."""

    def __init__(self, path: str | None = None) -> None:
        """Listen at `path`; None: in a new folder under the system's folder for temporary files.

        Raises:
            UsageError: the path is too long for a socket, or somebody listens there.
            StorageError: no socket can be made there.
        """
        self._folder = tempfile.mkdtemp(prefix="td_guard_") if path is None else None
        self._path = str(Path(path).absolute()) if path is not None else f"{self._folder}/telemetry.sock"
        if len(os.fsencode(self._path)) > _MAX_PATH:
            raise UsageError(
                f"{UNIX}{self._path}: a socket's path may have {_MAX_PATH} bytes; give a shorter one, "
                f"or '{UNIX}' alone to have one chosen"
            )
        self._writers: dict[int, tuple[socket.socket, Lines]] = {}  # by their number, from 1
        self._number = 0
        self._complaints = Complaints()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.setblocking(False)
        try:
            self._bind()
        except BaseException:
            self._socket.close()
            raise

    def poll(self) -> Poll:
        """Take what the writers have sent: from each in turn, MAX_BYTES in all."""
        batch = Batch()
        self._accept(batch)
        left = MAX_BYTES
        for number in list(self._writers):
            if left <= 0:
                batch.more = True
                break
            left -= self._receive(number, batch)
        return batch.poll()

    def fileno(self) -> int:
        """The listening socket, for `select`."""
        return self._socket.fileno()

    def address(self) -> str:
        """`unix:` and the absolute path."""
        return UNIX + self._path

    def position(self) -> Position:
        """Empty: what was sent cannot be read twice."""
        return {}

    def close(self) -> None:
        """Hang up, and remove the socket."""
        for writer, _ in self._writers.values():
            writer.close()
        self._writers.clear()
        self._socket.close()
        with contextlib.suppress(OSError):
            os.unlink(self._path)  # noqa: PTH108 - a rendezvous, no file of anybody's
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _bind(self) -> None:
        path = Path(self._path)
        if path.is_socket() and not _answers(self._path):
            path.unlink(missing_ok=True)  # left over from a guard that was killed
        try:
            with storage_errors(path):
                self._socket.bind(self._path)
                path.chmod(0o600)
                self._socket.listen(_BACKLOG)
        except OSError as e:
            if e.errno == errno.EADDRINUSE:
                raise UsageError(
                    f"{UNIX}{self._path}: is there already; stop who listens there, or give another"
                ) from e
            if e.errno == errno.ENOENT:
                raise UsageError(f"{UNIX}{self._path}: there is no such folder; make it, or give another") from e
            raise

    def _accept(self, batch: Batch) -> None:
        for _ in range(_BACKLOG):
            try:
                writer, _ = self._socket.accept()
            except BlockingIOError:
                self._complaints.over()
                return
            except OSError as e:  # no more file descriptors, most likely
                self._complaints.say(
                    batch, f"{self.address()}: no writer can be let in: {e.strerror}; trying again"
                )
                return
            writer.setblocking(False)
            self._number += 1
            self._writers[self._number] = (writer, Lines(f"{self.address()}, writer {self._number}"))

    def _receive(self, number: int, batch: Batch) -> int:
        """Bytes received from one writer, who is forgotten once he has hung up."""
        writer, lines = self._writers.pop(number)
        try:
            data = writer.recv(_PIECE)
        except BlockingIOError:
            self._writers[number] = (writer, lines)
            return 0
        except OSError:  # he went without a word
            data = b""
        lines.feed(data, batch)
        if data:
            # To the end of the queue: nobody's flood keeps the others from being heard.
            self._writers[number] = (writer, lines)
            batch.more = batch.more or len(data) == _PIECE
        else:
            lines.end(batch)
            writer.close()
        return len(data)


def _answers(path: str) -> bool:
    """Whether somebody listens."""
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as s:
        s.setblocking(False)
        return s.connect_ex(path) in (0, errno.EAGAIN)
