"""What is wrong with a request."""

from __future__ import annotations


class Problem(Exception):
    """An answer that is not 200: told to the client, and no fault of the server's.

    Attributes:
        status: of HTTP.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
