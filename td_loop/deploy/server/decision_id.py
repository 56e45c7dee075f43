"""Names of decisions: they carry what a reward has to know, so that any process can take one.

    subset "." version | ledger | process, number | flags | policy | episode | signature

The subset stands in front in plain text, for proxies that keep an episode where it was; the rest is base64.
The signature is keyed BLAKE2b (RFC 7693) with the key of the server's folder: nobody else can make up a decision,
or move a reward from the fallback to the canary.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
import struct
from dataclasses import dataclass
from pathlib import Path

from td_loop.deploy.names import DECISION_PREFIX, Subset
from td_loop.files import atomic_file

KEY_FILE = "key"
KEY_BYTES = 32
POLICY_BYTES = 8
NUMBER_BITS = 48

_VERSION = 1
_BODY = struct.Struct(">BIQB8sI")
_SIGNATURE_BYTES = 10
_CANARY, _FALLBACK, _SWITCHED = 1, 2, 4


@dataclass(frozen=True, slots=True)
class DecisionId:
    """What the name of a decision says.

    Attributes:
        ledger: which book of decisions it stands in; see `ledger`.
        process: the number of the server process that gave it.
        number: its number among those of that process.
        subset: whose it is.
        policy: the first bytes of the artefact's SHA-256.
        episode: a tag of the episode.
        fallback: the rule answered, not the policy.
        switched: an earlier decision of the episode was the other subset's.
    """

    ledger: int
    process: int
    number: int
    subset: Subset
    policy: bytes
    episode: int
    fallback: bool
    switched: bool


class Signer:
    """Writes names of decisions, and reads those that were written with the same key."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def write(self, x: DecisionId) -> str:
        """The name: 55 letters that need no escaping in URLs and headers."""
        flags = (x.subset == "canary") * _CANARY | x.fallback * _FALLBACK | x.switched * _SWITCHED
        where = x.process << NUMBER_BITS | x.number
        body = _BODY.pack(_VERSION, x.ledger, where, flags, x.policy, x.episode)
        letters = base64.urlsafe_b64encode(body + self._signature(body)).decode()
        return DECISION_PREFIX.format(subset=x.subset) + letters

    def read(self, text: str) -> DecisionId | None:
        """What a name says; None of what no server of this folder has written."""
        prefix, _, letters = text.rpartition(".")
        try:
            data = base64.b64decode(letters, altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):  # ValueError: letters beyond ASCII
            return None
        body, signature = data[: _BODY.size], data[_BODY.size :]
        if len(body) < _BODY.size or not hmac.compare_digest(signature, self._signature(body)):
            return None
        version, ledger, where, flags, policy, episode = _BODY.unpack(body)
        subset: Subset = "canary" if flags & _CANARY else "stable"
        if version != _VERSION or prefix != subset:
            return None
        return DecisionId(
            ledger,
            where >> NUMBER_BITS,
            where & (1 << NUMBER_BITS) - 1,
            subset,
            policy,
            episode,
            bool(flags & _FALLBACK),
            bool(flags & _SWITCHED),
        )

    def _signature(self, body: bytes) -> bytes:
        return hashlib.blake2b(body, key=self._key, digest_size=_SIGNATURE_BYTES).digest()


def folder_key(folder: Path) -> bytes:
    """The key of a folder; made, for nobody else to read, if there is none.

    Raises:
        StorageError: it cannot be made.
    """
    path = folder / KEY_FILE
    if not path.exists() or path.stat().st_size != KEY_BYTES:
        with atomic_file(path, KEY_BYTES, private=True) as f:
            f.write(secrets.token_bytes(KEY_BYTES))
    return path.read_bytes()
