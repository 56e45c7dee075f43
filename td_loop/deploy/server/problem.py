"""What is wrong with a request, or with the server."""

from __future__ import annotations

from td_loop.deploy.names import Subset


class Problem(Exception):
    """An answer that is not 200: told to the client, and no fault of the server's.

    Attributes:
        status: of HTTP.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Fault(Exception):
    """Something of the server's own broke while a subset's policy was to answer; the cause is the exception's.

    Attributes:
        subset: whose answer it was to be.
    """

    def __init__(self, subset: Subset) -> None:
        super().__init__(f"no answer of the {subset} policy")
        self.subset: Subset = subset
