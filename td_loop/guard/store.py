"""The snapshots of a guard's folder: taken in, promoted, rolled back, pruned; whole after a kill at any moment.

    snapshots/step_000001200_a0/    one snapshot: the checkpoint under its own name, and snapshot.json
    stable_checkpoint_latest        link to the checkpoint of the newest stable one
    active                          link to the checkpoint that a trainer loads when it starts
    staging/                        where trainers save; what they announce is moved from there
    quarantine/                     what a rollback fenced off; nothing is ever deleted there

What is true is what stands in `snapshots/`: a snapshot exists once its checkpoint is beside its snapshot.json, and
is stable once that says so. `stable_checkpoint_latest` is derived from it. `active` leads to the newest snapshot,
stable or pending, so that a run which was interrupted loses little; a rollback leads it back to the newest stable
one before anything is moved. Every operation can be repeated, and then completes what a kill cut short.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from td_loop.errors import DataError
from td_loop.files import (
    atomic_folder,
    make_dir,
    move,
    point,
    pointed,
    read_json,
    remove_tree,
    sweep_temporaries,
    unpoint,
    write_json,
)
from td_loop.guard import payload
from td_loop.guard import snapshots as rules
from td_loop.guard.snapshots import Promotion, Snapshot

SNAPSHOTS, STAGING, QUARANTINE = "snapshots", "staging", "quarantine"
STABLE, ACTIVE = "stable_checkpoint_latest", "active"
DESCRIPTION = "snapshot.json"
LOCK = "lock"
"""Held by the guard that works in the folder."""


@dataclass(frozen=True)
class Rollback:
    """What a rollback did.

    Attributes:
        target: what `active` leads to now; None if nothing was stable, and training begins anew.
        fenced: names in `quarantine/` of what was moved there.
    """

    target: Snapshot | None
    fenced: tuple[str, ...]


class Store:
    """The snapshots in one folder, for the one process that holds its lock."""

    def __init__(self, folder: Path, fault: Callable[[str], None] = lambda _: None) -> None:
        """Read what is there, and complete what a kill left half done.

        Args:
            folder: the guard's.
            fault: is told, in a sentence, of what is damaged and was set aside.

        Raises:
            StorageError: the folder cannot be written.
        """
        self.folder, self._fault = folder, fault
        for name in (SNAPSHOTS, STAGING, QUARANTINE):
            make_dir(folder / name)
        self._all: list[Snapshot] = []
        sweep_temporaries(folder, (STABLE, ACTIVE))
        sweep_temporaries(folder / SNAPSHOTS)
        for entry in sorted((folder / SNAPSHOTS).iterdir()):
            if (found := self._found(entry)) is not None:
                self._all.append(found)
        self._all.sort(key=lambda s: s.number)
        self._point_stable()

    @property
    def all(self) -> Sequence[Snapshot]:
        """Every snapshot that is not fenced off, in the order of arrival."""
        return tuple(self._all)

    @property
    def staging(self) -> Path:
        """The folder whose checkpoints are the guard's."""
        return self.folder / STAGING

    @property
    def active(self) -> Path:
        """The link that a trainer loads; it need not be there."""
        return self.folder / ACTIVE

    def path(self, snapshot: Snapshot) -> Path:
        """Where the checkpoint of a snapshot lies."""
        return self.folder / SNAPSHOTS / snapshot.name / snapshot.payload

    # --- taking in ---------------------------------------------------------------------------------------------

    def take(self, announced: Path, *, step: int, attempt: int, initial: bool, when: float) -> Snapshot:
        """Take in a checkpoint that was saved completely, as a pending snapshot, and let `active` lead to it.

        One in `staging/` is moved; one elsewhere is copied and left alone.

        Args:
            announced: a file or folder, or a link to one.
            step, attempt, initial: of the record that announced it.
            when: Unix seconds.

        Raises:
            DataError: it is not there, or is none that can be taken in; the message says why. What was taken in
                already, before a kill, is returned once more.
            StorageError: the disk is full, read-only or failing. The checkpoint is where it was.
        """
        try:
            real = announced.resolve()
            there = real.exists()
        except (OSError, ValueError, RuntimeError) as e:  # a null byte in it; links that lead in a circle
            raise DataError(f"{str(announced)[:200]!r}: cannot be a file or folder: {e}"[:500]) from e
        if not there and (known := self._known(announced, step, attempt)) is not None:
            return known
        if self.folder.resolve().is_relative_to(real):
            raise DataError(f"{announced}: holds the guard's own folder, and cannot be a checkpoint; see --dir")
        if real in {(self.folder / name).resolve() for name in (SNAPSHOTS, STAGING, QUARANTINE)}:
            raise DataError(
                f"{announced}: is a folder of the guard's own; save each checkpoint under a name of its own in "
                "$TD_GUARD_STAGING, and announce that"
            )
        taken = {entry.name for name in (SNAPSHOTS, QUARANTINE) for entry in (self.folder / name).iterdir()}
        name = rules.folder_name(step, attempt, taken)
        new = Snapshot(
            name=name,
            number=1 + max((s.number for s in self._all), default=0),
            step=step,
            attempt=attempt,
            payload=real.name if real.name != DESCRIPTION else f"payload_{DESCRIPTION}",
            sha256={},
            bytes=0,
            time=when,
            initial=initial,
            source=str(announced.absolute()),
        )
        ours = real.is_relative_to(self.staging.resolve()) and not announced.is_symlink()
        if ours and there and real.stat().st_dev == (self.folder / SNAPSHOTS).stat().st_dev:
            digests, size = payload.seal(real)
            new = replace(new, sha256=_renamed(digests, real.name, new.payload), bytes=size)
            with atomic_folder(self._folder(new)) as folder:
                write_json(folder / DESCRIPTION, new.as_json())
            move(real, self.path(new))
        else:
            with atomic_folder(self._folder(new)) as folder:
                digests, size = payload.copy(real, folder / new.payload)
                new = replace(new, sha256=digests, bytes=size)
                write_json(folder / DESCRIPTION, new.as_json())
        self._all.append(new)
        self._point(ACTIVE, new)
        return new

    # --- trusting ----------------------------------------------------------------------------------------------

    def promote(self, snapshot: Snapshot, healthy_steps: int) -> Snapshot:
        """Make a pending snapshot stable.

        Raises:
            StorageError: the disk is full, read-only or failing; it is still pending.
        """
        if snapshot.promoted is not None:
            return snapshot
        new = replace(snapshot, promoted=Promotion(healthy_steps, time.time()))
        write_json(self._folder(new) / DESCRIPTION, new.as_json())
        self._all[self._all.index(snapshot)] = new
        self._point_stable()
        return new

    def prune(self, keep: int) -> list[Snapshot]:
        """Delete stable snapshots beyond the `keep` newest that no pointer names. Quarantine is left alone.

        Raises:
            StorageError: one cannot be deleted.
        """
        named = {link: pointed(self.folder / link) for link in (STABLE, ACTIVE)}
        pointers = {Path(target).parent.name for target in named.values() if target is not None}
        gone = rules.outdated(self._all, keep, pointers)
        for old in gone:
            remove_tree(self._folder(old))
            self._all.remove(old)
        return gone

    # --- going back --------------------------------------------------------------------------------------------

    def rollback(self, *, anew: bool = False) -> Rollback:
        """Lead `active` back to the newest stable snapshot, and fence off what came after and what is pending.

        A stable snapshot whose files were damaged is fenced off, too, and the one before it is taken. What lies
        unannounced in `staging/` was perhaps cut short, and goes with the rest.

        Args:
            anew: without a stable snapshot fence off everything; nothing is active then.

        Raises:
            DataError: there is no stable snapshot, and `anew` is not set. Nothing was changed.
            StorageError: the disk refused; run it again.
        """
        target = next((s for s in rules.stable(self._all) if not self._damaged(s)), None)
        if target is None and not anew:
            raise DataError(
                f"{self.folder}: there is no stable snapshot to roll back to, so nothing is started again; see "
                f"{self.folder / SNAPSHOTS} for what was saved, then `td-loop guard reset` to begin anew, with a "
                "smaller learning rate, or with an initial checkpoint announced before the first batch"
            )
        if target is None:
            unpoint(self.folder / ACTIVE)
            unpoint(self.folder / STABLE)
        else:
            self._point(ACTIVE, target)
            self._point(STABLE, target)
        fenced = [self._fence(s) for s in rules.beyond(self._all, target)]
        return Rollback(target, (*fenced, *self._fence_staging()))

    def settle(self) -> Snapshot | None:
        """Lead `active` to the newest snapshot that is whole, as a trainer is to be started; return it.

        One that is damaged, and what lies unannounced in `staging/`, is fenced off.

        Raises:
            StorageError: the disk refused; run it again.
        """
        while (last := rules.newest(self._all)) is not None and self._damaged(last):
            self._fence(last)
        self._point_stable()
        if last is None:
            unpoint(self.folder / ACTIVE)
        else:
            self._point(ACTIVE, last)
        self._fence_staging()
        return last

    # --- inside ------------------------------------------------------------------------------------------------

    def _folder(self, snapshot: Snapshot) -> Path:
        return self.folder / SNAPSHOTS / snapshot.name

    def _point(self, link: str, snapshot: Snapshot) -> None:
        point(self.folder / link, f"{SNAPSHOTS}/{snapshot.name}/{snapshot.payload}")

    def _point_stable(self) -> None:
        found = rules.stable(self._all)
        if found:
            self._point(STABLE, found[0])
        else:
            unpoint(self.folder / STABLE)

    def _found(self, entry: Path) -> Snapshot | None:
        """The snapshot in a folder, its checkpoint moved there if a kill came before that; None if none is."""
        try:
            sweep_temporaries(entry, (DESCRIPTION,))
            found = rules.from_json(entry.name, read_json(entry / DESCRIPTION))
        except (DataError, NotADirectoryError) as e:
            self._set_aside(entry, str(e))
            return None
        if not self.path(found).exists():
            source = Path(found.source)
            wanted = _renamed(found.sha256, found.payload, source.name)
            if (what := payload.damage(source.parent, wanted)) is not None:
                self._set_aside(entry, f"{self.path(found)} is not there, and {what}")
                return None
            move(source, self.path(found))
        return found

    def _known(self, announced: Path, step: int, attempt: int) -> Snapshot | None:
        """The snapshot that an announcement made, which is read once more after a kill."""
        is_it = (
            s for s in self._all if (s.source, s.step, s.attempt) == (str(announced.absolute()), step, attempt)
        )
        return next(is_it, None)

    def _damaged(self, snapshot: Snapshot) -> bool:
        what = payload.damage(self._folder(snapshot), snapshot.sha256)
        if what is not None:
            self._fault(f"snapshot {snapshot.name} cannot be used: {what}")
        return what is not None

    def _fence(self, snapshot: Snapshot) -> str:
        name = self._quarantine(self._folder(snapshot), snapshot.name)
        self._all.remove(snapshot)
        return name

    def _fence_staging(self) -> list[str]:
        return [self._quarantine(entry, f"staging_{entry.name}") for entry in sorted(self.staging.iterdir())]

    def _set_aside(self, entry: Path, why: str) -> None:
        name = self._quarantine(entry, entry.name)
        self._fault(f"{entry} is no whole snapshot ({why}); moved to {QUARANTINE}/{name}")

    def _quarantine(self, entry: Path, name: str) -> str:
        place = self.folder / QUARANTINE
        free = rules.free_name(name, {e.name for e in place.iterdir()})
        move(entry, place / free)
        return free


def _renamed(digests: Mapping[str, str], old: str, new: str) -> dict[str, str]:
    """Digests of a checkpoint that is to lie under another name."""
    return {new + path.removeprefix(old): digest for path, digest in digests.items()}
