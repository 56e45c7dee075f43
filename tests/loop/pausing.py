"""A door to td-loop that stops at a named moment, and says by a file that it stands there.

    python tests/loop/pausing.py "call td_loop.loop.attempt:stage3#2" run --tag ...

MOMENT is "import MODULE" (just before it is imported) or "call MODULE:NAME#N" (just before the N-th call of a
function, or of a method, as MODULE knows it; N is 1 where it is not given). There the process writes
$PAUSE_FOLDER/here and waits for $PAUSE_FOLDER/go; with "say" in front of the MOMENT it does not wait.
"""

from __future__ import annotations

import importlib
import importlib.abc
import itertools
import os
import sys
import time
from pathlib import Path
from typing import Any

FOLDER = "PAUSE_FOLDER"

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[2])


def pause(*, wait: bool) -> None:
    folder = Path(os.environ[FOLDER])
    (folder / "here").touch()
    while wait and not (folder / "go").exists():
        time.sleep(0.005)


class PauseBeforeImport(importlib.abc.MetaPathFinder):
    def __init__(self, name: str, *, wait: bool) -> None:
        self.name, self.wait = name, wait

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:
        if fullname == self.name:
            pause(wait=self.wait)


def pause_before_call(where: str, number: int, *, wait: bool) -> None:
    module, _, name = where.partition(":")
    owner: Any = importlib.import_module(module)
    *path, attribute = name.split(".")
    for part in path:
        owner = getattr(owner, part)
    original, calls = getattr(owner, attribute), itertools.count(1)

    def paused(*args: Any, **kwargs: Any) -> Any:
        if next(calls) == number:
            pause(wait=wait)
        return original(*args, **kwargs)

    setattr(owner, attribute, paused)


def main(argv: list[str]) -> int:
    wait = not argv[0].startswith("say ")
    what, _, where = argv[0].removeprefix("say ").partition(" ")
    if what == "import":
        sys.meta_path.insert(0, PauseBeforeImport(where, wait=wait))
    elif what == "call":
        where, _, number = where.partition("#")
        pause_before_call(where, int(number or 1), wait=wait)

    from td_loop.__main__ import main as door

    return door(argv[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
