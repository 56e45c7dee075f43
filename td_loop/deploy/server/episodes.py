"""Episodes that are under way and whose they are: a table of fixed size, shared by all processes of a server.

An episode stays with the policy that began it while weights change, whichever process its next request reaches.
The table is set-associative: an episode's hash names a row of WAYS entries, where it replaces the one that has
been silent the longest. Who loses its entry that way is assigned anew, by hash, and by the name of its previous
decision if the client sends that.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from td_loop.deploy.names import Subset
from td_loop.deploy.server.mapped import HEAD_BYTES, Mapped

FILE = "episodes"
ROWS, WAYS = 1 << 14, 8
"""131,072 episodes at a time, in 2 MB."""
IDLE_S = 1800
"""Seconds after which an episode that is silent is over."""

_CANARY, _SWITCHED = 1, 2
_FLAG_BITS, TAG_BITS = 8, 24


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of an episode that has begun.

    Attributes:
        subset: where its last request went.
        policy: the first bits of the hash of the artefact that answered there, see `policy_tag`.
        switched: it has had decisions of several policies.
    """

    subset: Subset
    policy: int
    switched: bool = False


def policy_tag(sha256: str) -> int:
    """TAG_BITS of an artefact's hash (hex)."""
    return int(sha256[: TAG_BITS // 4], 16)


def episode_key(episode: str) -> int:
    """64 bits of an episode's id, never 0."""
    data = episode.encode(errors="surrogatepass")
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little") or 1


class Episodes:
    """The table of one folder. Processes need no lock: one that loses a race loses an entry."""

    def __init__(self, folder: Path) -> None:
        """Open the table, or make an empty one.

        Raises:
            StorageError: it cannot be made.
        """
        what = f"td_loop episodes 1: {ROWS} rows of {WAYS}\n"
        self._file = Mapped(folder / FILE, what, ROWS * WAYS * 16)
        self._words = self._file.words

    def close(self) -> None:
        """Give the file back."""
        self._file.close()

    def get(self, key: int, now: float) -> Known | None:
        """What is known of an episode at the time `now` (Unix seconds); None if it is new, or over."""
        at = self._find(key)
        if at is None:
            return None
        word = self._words[at + 1]
        if int(now) - (word >> _FLAG_BITS + TAG_BITS) > IDLE_S:
            return None
        policy = word >> _FLAG_BITS & (1 << TAG_BITS) - 1
        return Known("canary" if word & _CANARY else "stable", policy, bool(word & _SWITCHED))

    def put(self, key: int, known: Known, now: float) -> None:
        """Note an episode, and that it was heard of at the time `now`."""
        flags = (known.subset == "canary") * _CANARY | known.switched * _SWITCHED
        word = (int(now) << TAG_BITS | known.policy) << _FLAG_BITS | flags
        at = self._find(key)
        if at is None:
            row = self._row(key)
            at = min(range(row, row + 2 * WAYS, 2), key=lambda i: self._words[i + 1])
            self._words[at] = 0  # whoever looks meanwhile does not take the old entry's word for the new one's
            self._words[at + 1] = word
            self._words[at] = key
        else:
            self._words[at + 1] = word

    def _row(self, key: int) -> int:
        return HEAD_BYTES // 8 + (key % ROWS) * 2 * WAYS

    def _find(self, key: int) -> int | None:
        row = self._row(key)
        keys = self._words[row : row + 2 * WAYS : 2].tolist()
        return row + 2 * keys.index(key) if key in keys else None
