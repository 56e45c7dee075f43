"""Which policies a server has: a file that its processes follow.

`policies.json` in the server's folder names them, by path and hash, under a revision that grows with every change.
The word of the traffic split carries the revision too, so each process sees with its next request that there is a
new one, loads what it lacks in a thread of its own, and swaps. Until then its canary gets nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from td_loop.deploy.traffic import Traffic, TrafficState
from td_loop.errors import DataError
from td_loop.files import read_json, sha256, write_json
from td_loop.lock import locked

FILE, LOCK = "policies.json", "policies.lock"
FORMAT_VERSION = 1
_REVISIONS = 2**16


@dataclass(frozen=True, slots=True)
class Named:
    """An artefact.

    Attributes:
        path: absolute.
        sha256: hex, of the file.
    """

    path: str
    sha256: str

    @classmethod
    def of(cls, path: Path) -> Self:
        """The artefact that lies at `path`.

        Raises:
            DataError: there is no such file.
        """
        try:
            return cls(str(path.resolve()), sha256(path))
        except FileNotFoundError as e:
            raise DataError(f"{path}: no such file") from e


@dataclass(frozen=True, slots=True)
class Policies:
    """What a server is to serve.

    Attributes:
        revision: grows with every change; 1..65535, then 1 again.
        stable: always there.
        canary: None: there is none.
        shadow: the canary answers beside the stable policy, for nobody.
    """

    revision: int
    stable: Named
    canary: Named | None = None
    shadow: bool = False


def read_policies(folder: Path) -> Policies | None:
    """What a folder's server serves, or last served; None if none ever did.

    Raises:
        DataError: the file is damaged.
    """
    path = folder / FILE
    if not path.exists():
        return None
    found = read_json(path)
    try:
        if found["format_version"] != FORMAT_VERSION:
            raise DataError(f"{path}: is of format version {found['format_version']}, this program reads 1")
        canary = None if found["canary"] is None else Named(**found["canary"])
        return Policies(int(found["revision"]), Named(**found["stable"]), canary, bool(found["shadow"]))
    except (KeyError, TypeError, ValueError) as e:
        raise DataError(f"{path}: is no list of policies ({e!r}); move it away, and give --stable") from e


def publish(folder: Path, traffic: Traffic, policies: Policies, weight_bp: int | None) -> Policies:
    """Let all processes of a folder's server serve `policies` under the next revision, at this weight.

    A weight of None is the one that holds when the word is written: one that was read before could undo a rollback
    that came between.

    The file goes first: whoever sees the word's revision finds what it stands for. Until the word is written the
    canary that was there keeps its share; so whoever replaces one takes its traffic away before.

    Raises:
        RunInUse: another process has been changing it for a while.
        StorageError: the disk is full, read-only or failing.
    """
    with locked(folder / LOCK, "try again"):
        before = read_policies(folder)
        revision = max(traffic.read().revision, 0 if before is None else before.revision)
        new = replace(policies, revision=revision % (_REVISIONS - 1) + 1)
        write_json(folder / FILE, as_json(new))

        def changed(s: TrafficState) -> TrafficState:
            weight = s.canary_weight_bp if weight_bp is None else weight_bp
            return replace(s, revision=new.revision, shadow=new.shadow, canary_weight_bp=weight)

        traffic.change(changed)
        return new


def as_json(policies: Policies) -> dict[str, Any]:
    """What `policies.json` holds."""

    def named(x: Named | None) -> dict[str, str] | None:
        return None if x is None else {"path": x.path, "sha256": x.sha256}

    return {
        "format_version": FORMAT_VERSION,
        "revision": policies.revision,
        "stable": named(policies.stable),
        "canary": named(policies.canary),
        "shadow": policies.shadow,
    }
