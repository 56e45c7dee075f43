"""The record that an artefact passed its admission: `ARTEFACT.verified.json`, beside it or in a chosen folder.

It is of one file's bytes: whoever gives traffic to an artefact compares the SHA-256, and refuses what has none.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import platform
import time
from pathlib import Path
from typing import Any

from td_loop.deploy.admission.verify import Verification
from td_loop.errors import DataError, Refused
from td_loop.files import read_json, remove, sha256, write_json
from td_loop.machine import physical_cores
from td_loop.policy.artefact import Artefact

FORMAT_VERSION = 1
_PACKAGES = ("td-loop", "onnxruntime", "numpy", "torch")


def record_path(artefact: Path, folder: Path | None = None) -> Path:
    """Where the record of an artefact stands."""
    return (folder or artefact.parent) / f"{artefact.name}.verified.json"


def as_json(found: Verification, t: float) -> dict[str, Any]:
    """The record as JSON data; `t` Unix seconds."""
    return {
        "format_version": FORMAT_VERSION,
        "artefact": found.artefact.path.name,
        "sha256": found.artefact.sha256,
        "game": found.artefact.meta.contract.game,
        "verified": not found.failed,
        "failed": [check.name for check in found.failed],
        "sla_ms": found.sla_ms,
        "checks": [vars(check) for check in found.checks],
        "t": t,
        "utc": datetime.datetime.fromtimestamp(t, datetime.UTC).isoformat(timespec="seconds"),
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in _PACKAGES}},
        "machine": {"processor": _processor(), "cores": physical_cores(), "system": platform.platform()},
    }


def keep_record(found: Verification, folder: Path | None = None) -> Path | None:
    """Write the record of an artefact that passed. Of one that did not an earlier record goes, too.

    Returns:
        The record's path; None where there is none.

    Raises:
        StorageError: the disk is full, read-only or failing.
    """
    path = record_path(found.artefact.path, folder)
    if found.failed:
        remove(path)
        return None
    write_json(path, as_json(found, time.time()))
    return path


def require_verified(artefact: Artefact, folder: Path | None = None) -> None:
    """Refuse an artefact without a record of its own bytes.

    Raises:
        Refused: there is none, it is damaged, or it is of other bytes.
    """
    if (fault := _fault(artefact.sha256, record_path(artefact.path, folder))) is not None:
        where = "" if folder is None else f" --dir {folder}"
        raise Refused(f"{artefact.path}: {fault}; run `td-loop deploy verify {artefact.path}{where}` first")


def is_verified(path: Path, folder: Path | None = None) -> bool:
    """Whether the artefact that lies at `path` now has passed.

    Raises:
        DataError: there is no such file, or it cannot be read.
    """
    try:
        return _fault(sha256(path), record_path(path, folder)) is None
    except FileNotFoundError as e:
        raise DataError(f"{path}: no such file") from e


def _fault(sha: str, record: Path) -> str | None:
    """Why a record does not speak for these bytes; None if it does."""
    if not record.exists():
        return f"has not been verified: there is no {record}"
    try:
        content = read_json(record)
    except DataError as e:
        return f"its record cannot be used ({e})"
    if not isinstance(content, dict) or content.get("format_version") != FORMAT_VERSION:
        return f"its record {record} is of no version that this program reads"
    if content.get("sha256") != sha:
        return f"has changed since it was verified ({record} is of other bytes)"
    return None if content.get("verified") is True else f"its record {record} does not say that it passed"


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())
