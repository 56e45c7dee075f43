"""Counts every change that a run makes in its directory, over all its processes, and spoils one of them.

Nothing of td_loop knows of this. Python tells an audit hook of every file that is opened and every name that is
changed, before it happens, and an exception raised there makes it fail; writes, of which it tells nothing, go
through a file object of ours. All processes of a run count in one file.
"""

from __future__ import annotations

import builtins
import errno
import fcntl
import io
import json
import os
import re
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

VARIABLE = "CRASH_PLAN"
"""Environment variable that holds the `Plan`, for the processes that a run starts."""

COUNTED_WRITES = frozenset({1, 2, 4, 8, 16, 32, 64})
"""Which writes to one open file are points; a file of an iteration takes some dozens."""


class Kind(StrEnum):
    """What happens at the point."""

    COUNT = "count"  # nothing
    KILL = "kill"  # SIGKILL to every process of the run
    ENOSPC = "enospc"  # this one change fails: no space left
    EIO = "eio"  # this one change fails: input/output error
    FULL = "full"  # this and all later changes that need space fail, in all processes, until the run has ended


NEEDS_SPACE = frozenset({"create", "write", "half write", "say", "mkdir", "symlink", "link"})

_NAMELESS = frozenset({"write", "half write", "say", "fsync", "fsync folder", "truncate"})
"""Changes by descriptor: of their failure Python names no file."""


@dataclass(frozen=True)
class Plan:
    """What to do to a run.

    Attributes:
        run: the run directory, absolute.
        changes: the file in which its processes count.
        kind: what happens.
        point: the number of the change that it happens to, from 1.
    """

    run: str
    changes: str
    kind: Kind
    point: int = 0

    def as_env(self) -> dict[str, str]:
        return {VARIABLE: json.dumps(asdict(self))}


@dataclass(frozen=True, order=True)
class Change:
    """One change: by which process ("driver", "prepare", "fit"), what, and of which file."""

    process: str
    what: str
    path: str  # relative to the run directory; random parts of temporary names are a *

    @property
    def needs_space(self) -> bool:
        """Whether a full disk refuses it."""
        return self.what in NEEDS_SPACE

    def __str__(self) -> str:
        return f"{self.what} {self.path or '.'} ({self.process})"


def read_changes(path: Path) -> list[Change]:
    """What `Plan.changes` holds after a run."""
    if not path.exists():
        return []
    return [Change(*line.split("\t")) for line in path.read_text().splitlines()]


def session_members(session: int) -> list[int]:
    """Processes of a session that are not dead."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                state, _, _, its = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
            except OSError:
                continue
            if int(its) == session and state not in "ZX":
                found.append(int(folder.name))
    return found


class Faults:
    """The counting, in one process."""

    def __init__(self, plan: Plan) -> None:
        self._plan, self._process = plan, ""

    def install(self, process: str) -> None:
        """Watch this process from now on, and those that it forks, under the name `process`."""
        self._process = process
        if self.inside(_path_of(1)):  # a stage, whose standard output is its log
            sys.stdout = io.TextIOWrapper(io.BufferedWriter(_Output(self, 1, "wb", closefd=False)))
        if installed() is self:  # by the process that forked this one; a hook cannot be taken back
            return
        _installed.append(self)
        sys.addaudithook(self._audit)
        os.fsync = self._fsync
        os.write = self._wrap_write(os.write)
        os.pwrite = self._wrap_write(os.pwrite)
        os.fdopen = self._wrap_open(os.fdopen)
        io.open = builtins.open = self._wrap_open(builtins.open)

    # --- counting ----------------------------------------------------------------------------------------------

    def change(self, what: str, path: str, half: Callable[[], Any] | None = None) -> None:
        """Count a change that is about to happen; make it fail, if it is to fail.

        Args:
            what: kind of change.
            path: absolute.
            half: does half of it, which the fault then leaves behind.

        Raises:
            OSError: the injected one.
        """
        number = self._count(f"{self._process}\t{what}\t{self._name(path)}\n")
        plan = self._plan
        one = plan.kind in (Kind.KILL, Kind.ENOSPC, Kind.EIO) and number == plan.point
        if not one and not (plan.kind is Kind.FULL and number >= plan.point and what in NEEDS_SPACE):
            return
        if half is not None:
            half()
        if plan.kind is Kind.KILL:
            _kill_session()
        code = errno.EIO if plan.kind is Kind.EIO else errno.ENOSPC
        raise OSError(code, os.strerror(code), *([] if what in _NAMELESS else [path]))

    def need_space(self) -> None:
        """Refuse a write that is not counted, when the disk is full by now."""
        if self._plan.kind is Kind.FULL and self._count("") >= self._plan.point:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _count(self, line: str) -> int:
        """Append a line for all processes; how many there are then."""
        fd = os.open(self._plan.changes, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            if line:
                _write(fd, line.encode())
            return os.pread(fd, 1 << 20, 0).count(b"\n")
        finally:
            os.close(fd)

    def inside(self, path: str) -> bool:
        """Whether a path is in the run directory, or it itself."""
        return path == self._plan.run or path.startswith(self._plan.run + "/")

    def _name(self, path: str) -> str:
        name = os.path.relpath(path, self._plan.run)
        return re.sub(r"(^|/)\.([^/]+)\.[^./]+\.tmp", r"\1.\2.*.tmp", name)

    # --- what Python tells of --------------------------------------------------------------------------------

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = args
            if (
                isinstance(flags, int)
                and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
                and not isinstance(path, int)
            ):
                where = _absolute(path)
                self._event("open" if os.path.lexists(where) else "create", where)
            return
        handler = _EVENTS.get(event)
        if handler is not None:
            handler(self, *args)

    def _event(self, what: str, path: str) -> None:
        if self.inside(path):
            self.change(what, path)

    def _mkdir(self, path: Any, _mode: int, dir_fd: int) -> None:
        if not os.path.lexists(where := _absolute(path, dir_fd)):
            self._event("mkdir", where)

    def _remove(self, path: Any, dir_fd: int) -> None:
        if os.path.lexists(where := _absolute(path, dir_fd)):
            self._event("remove", where)

    def _rename(self, _source: Any, target: Any, _source_fd: int, dir_fd: int) -> None:
        self._event("rename", _absolute(target, dir_fd))

    def _symlink(self, _target: Any, path: Any, dir_fd: int) -> None:
        self._event("symlink", _absolute(path, dir_fd))

    def _link(self, _source: Any, path: Any, _source_fd: int, dir_fd: int) -> None:
        self._event("link", _absolute(path, dir_fd))

    def _chmod(self, path: Any, _mode: int, dir_fd: int) -> None:
        self._event("chmod", _absolute(path, dir_fd))

    def _truncate(self, path: Any, _length: int) -> None:
        self._event("truncate", _absolute(path))

    # --- what it does not tell of -----------------------------------------------------------------------------

    def _fsync(self, fd: int) -> None:
        """Count; the disk itself is not waited for: nobody pulls the plug here."""
        path = _path_of(fd if isinstance(fd, int) else fd.fileno())
        self._event("fsync folder" if Path(path).is_dir() else "fsync", path)

    def _wrap_write(self, real: Callable[..., int]) -> Callable[..., int]:
        def write(fd: int, data: Any, *offset: int) -> int:
            if self.inside(path := _path_of(fd)):
                self.change("write", path)
                self.change("half write", path, lambda: real(fd, data[: len(data) // 2], *offset))
            return real(fd, data, *offset)

        return write

    def _wrap_open(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def opened(file: Any, mode: str = "r", buffering: int = -1, *args: Any, **kwargs: Any) -> Any:
            if "b" not in mode or not set(mode) & set("wax+"):
                return real(file, mode, buffering, *args, **kwargs)
            path = _path_of(file) if isinstance(file, int) else _absolute(file)
            if not self.inside(path):
                return real(file, mode, buffering, *args, **kwargs)
            raw = (_Log if path.endswith(".log") else _File)(self, file, mode)
            if buffering == 0:
                return raw
            return io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)

        return opened


_installed: list[Faults] = []


def installed() -> Faults | None:
    """What was installed in this process, or in the one that forked it."""
    return _installed[0] if _installed else None


class _File(io.FileIO):
    """A file in the run directory that is written through a buffer, as all are: its writes are system calls."""

    def __init__(self, faults: Faults, file: Any, mode: str, **kwargs: Any) -> None:
        super().__init__(file, mode, **kwargs)
        self._faults, self._path, self._writes = faults, _path_of(self.fileno()), 0

    def write(self, data: Any) -> int:
        self._writes += 1
        if self._writes in COUNTED_WRITES:
            self._faults.change("write", self._path)
        if self._writes == 1:
            view = memoryview(data)
            write = super().write
            self._faults.change("half write", self._path, lambda: write(view[: len(view) // 2]))
        return super().write(data)


class _Output(_File):
    """A stage's standard output, which goes to its log."""

    def write(self, data: Any) -> int:
        if self._faults.inside(_path_of(self.fileno())):  # until nobody wants to hear it any more
            self._faults.change("say", self._path)
        return io.FileIO.write(self, data)


class _Log(_File):
    """The log to which the driver copies a stage's errors; how often is chance, so it is not counted."""

    def write(self, data: Any) -> int:
        self._faults.need_space()
        return io.FileIO.write(self, data)


_EVENTS: dict[str, Callable[..., None]] = {
    "os.mkdir": Faults._mkdir,
    "os.remove": Faults._remove,
    "os.rmdir": Faults._remove,
    "os.rename": Faults._rename,
    "os.symlink": Faults._symlink,
    "os.link": Faults._link,
    "os.chmod": Faults._chmod,
    "os.truncate": Faults._truncate,
}


def _kill_session() -> None:
    """End every process of the run, this one last, with no chance to do anything."""
    if threading.current_thread() is threading.main_thread():
        # The end of the driver is a SIGTERM to this stage (the lifeline), which may be quicker than our own end.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for pid in session_members(os.getsid(0)):
        if pid != os.getpid():
            os.kill(pid, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def _write(fd: int, data: bytes) -> None:
    """`os.write`, uncounted."""
    with io.FileIO(fd, "ab", closefd=False) as f:
        f.write(data)


def _path_of(fd: int) -> str:
    """Where an open file is; of one that has no name, something that is in no folder."""
    try:
        return str(Path(f"/proc/self/fd/{fd}").readlink())
    except OSError:
        return ""


def _absolute(path: Any, dir_fd: int = -1) -> str:
    """The path of an argument that may be a descriptor, bytes, or relative to a folder's descriptor."""
    if isinstance(path, int):
        return _path_of(path)
    folder = Path(_path_of(dir_fd)) if dir_fd >= 0 else Path.cwd()
    return os.path.normpath(folder / os.fsdecode(path))
