"""The real command line under fault injection: `python tests/crash/door.py run ...`, and the stages that it runs.

What happens when stands in the environment (`faults.Plan`); without that, this is `python -m td_loop`.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from td_loop.cli import main
from tests.crash.faults import VARIABLE, Faults, Kind, Plan, installed

STAGES = ("prepare", "fit")


def run(argv: list[str]) -> int:
    """Run one command line; its exit code."""
    if VARIABLE in os.environ:
        fields = json.loads(os.environ[VARIABLE])
        faults = installed() or Faults(Plan(**fields | {"kind": Kind(fields["kind"])}))
        faults.install(argv[0] if argv[0] in STAGES else "driver")
    return main(argv)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
