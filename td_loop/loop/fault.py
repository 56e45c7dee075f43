"""A fault of a run directory, and the first kind of it: weights that are not what the manifest says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from td_loop.errors import DataError, ManifestError
from td_loop.files import sha256
from td_loop.loop.layout import BOOTSTRAP_COPY, MANIFEST
from td_loop.loop.manifest import Manifest, Status

RESTORE = "restore the file, or start under another --tag"
RESTORE_MANIFEST = "restore manifest.json from a copy, or start under another --tag"


@dataclass(frozen=True)
class Fault:
    """Something in a run directory that is not as it must be.

    Attributes:
        file: relative to the run directory.
        rule: the invariants of docs/architecture.md that it breaks: "I8".
        what: is wrong, in a few words.
        found: what is there.
        expected: what should be there.
        remedy: what to do about it.
    """

    file: str
    rule: str
    what: str
    found: str
    expected: str
    remedy: str

    def sentence(self, run: Path) -> str:
        """All of it, as the message of an error."""
        return f"{run / self.file}: {self.what} ({self.found}, expected {self.expected}); {self.remedy}"


def weights_fault(run: Path, name: str, digest: str, kind: str = "promoted weights") -> Fault | None:
    """What is wrong with the weights file `name`, which should have the SHA-256 `digest`; None: nothing."""

    def fault(what: str, found: str) -> Fault:
        return Fault(name, "I8", f"{kind} {what}", found, f"sha256 {_short(digest)}", RESTORE)

    path = run / name
    if not path.is_file():
        return fault("are missing", "no such file")
    try:
        found = sha256(path)
    except (DataError, OSError) as e:
        return fault("cannot be read", str(e))
    return None if found == digest else fault("were changed", f"sha256 {_short(found)}")


def _short(digest: str) -> str:
    return f"{digest[:12]}..."


def promoted_weights(manifest: Manifest) -> dict[str, str]:
    """SHA-256 of every file that was promoted, the copy of the bootstrap included, by name."""
    expected = {BOOTSTRAP_COPY: manifest.bootstrap_sha256}
    for record in manifest.iters:
        if record.status is Status.PROMOTED and record.weights and record.weights_sha256:
            expected[record.weights] = record.weights_sha256
    return expected


def unpromoted_names(manifest: Manifest) -> list[Fault]:
    """What `latest_good` and `best_val` name though no iteration promoted it."""
    named = {"latest_good": manifest.latest_good}
    if manifest.best_val:
        named["best_val"] = manifest.best_val.path
    promoted = promoted_weights(manifest)
    return [
        Fault(
            MANIFEST,
            "I8",
            f"the manifest names {name}, which no iteration promoted",
            f"{key} {name}",
            "weights of a promoted iteration",
            RESTORE_MANIFEST,
        )
        for key, name in named.items()
        if name not in promoted
    ]


def require_promoted(run: Path, manifest: Manifest) -> None:
    """Check that all that was promoted is there, unchanged: before a run is resumed.

    Raises:
        ManifestError: names the first file that is missing or has other bytes.
    """
    for name, digest in promoted_weights(manifest).items():
        require_weights(run, name, digest)
    _refuse(run, unpromoted_names(manifest))


def require_weights(run: Path, name: str, digest: str) -> None:
    """Check one promoted file.

    Raises:
        ManifestError: it is missing or has other bytes.
    """
    fault = weights_fault(run, name, digest)
    _refuse(run, [] if fault is None else [fault])


def _refuse(run: Path, faults: Sequence[Fault]) -> None:
    if faults:
        raise ManifestError(faults[0].sentence(run))
