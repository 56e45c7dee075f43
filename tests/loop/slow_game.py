"""A toy game whose search takes for ever, and says so once both workers are in it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from td_loop.value.model import SplineValue
from tests.loop.pausing import FOLDER
from tests.toy_game import Toy


class Searching(Toy):
    def make_search(self, value: SplineValue) -> Any:
        def search(*_: Any) -> Any:
            folder = Path(os.environ[FOLDER])
            (folder / f"searching-{os.getpid()}").touch()
            if len(list(folder.glob("searching-*"))) == 2:
                (folder / "here").touch()
            time.sleep(1000)

        return search


SEARCHING = Searching()
