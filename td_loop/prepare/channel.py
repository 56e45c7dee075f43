"""The parent's end of a worker's socket, on which nothing ever blocks.

A worker can be stopped in the middle of a message (SIGSTOP, a debugger, a machine that swaps). Whoever then waits
for the rest of it waits for ever, and no time limit helps. So bytes are taken as they come.
"""

from __future__ import annotations

import pickle
import socket
import struct
from typing import Any

LENGTH = struct.Struct("<Q")
_PIECE = 1 << 20


class Channel:
    """Pickled objects in both directions, each after its length in bytes (u64)."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._socket, self._received, self._unsent = end, bytearray(), b""

    def fileno(self) -> int:
        """For `select`."""
        return self._socket.fileno()

    @property
    def has_unsent(self) -> bool:
        """True while the other end has not taken all that was sent: call `flush` when it can."""
        return bool(self._unsent)

    def send(self, message: Any) -> None:
        """Send `message`, or as much of it as the other end takes now.

        Raises:
            OSError: the other end is closed.
        """
        self._unsent += framed(message)
        self.flush()

    def flush(self) -> None:
        """Send what is unsent, as much of it as the other end takes now (see `send`)."""
        try:
            while self._unsent:
                self._unsent = self._unsent[self._socket.send(self._unsent) :]
        except BlockingIOError:
            return

    def receive(self) -> list[Any]:
        """The messages that are there whole.

        Raises:
            EOFError: the other end is closed, and every whole message of it was returned before.
        """
        closed = False
        try:
            while piece := self._socket.recv(_PIECE):
                self._received += piece
            closed = True
        except BlockingIOError:
            pass
        except ConnectionError:
            closed = True
        messages = []
        while (end := self._end_of_message()) is not None:
            messages.append(pickle.loads(bytes(self._received[LENGTH.size : end])))
            del self._received[:end]
        if closed and not messages:
            raise EOFError
        return messages

    def _end_of_message(self) -> int | None:
        """Where the first message that was received ends, once it is whole."""
        if len(self._received) < LENGTH.size:
            return None
        end = LENGTH.size + int(LENGTH.unpack_from(self._received)[0])
        return end if end <= len(self._received) else None

    def close(self) -> None:
        """Close this end."""
        self._socket.close()


def framed(message: Any) -> bytes:
    """`message` as bytes, its length first."""
    data = pickle.dumps(message)
    return LENGTH.pack(len(data)) + data
