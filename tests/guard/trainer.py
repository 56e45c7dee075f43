"""A training program that learns nothing, and starts in no time: `python -I -S trainer.py PLAN`.

PLAN is a JSON list with a list of moves for each attempt; the last is for all later ones, too. What it saves is
the number of its last step, and it goes on from that.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

HEALTHY = {"kl": 0.01, "entropy": 1.0, "value_loss": 0.5}
STRAY = """
import os, sys, time
with open(sys.argv[1] + ".tmp", "w") as f:
    f.write(str(os.getpid()))
os.rename(sys.argv[1] + ".tmp", sys.argv[1])
time.sleep(600)
"""


class Trainer:
    """Its methods are the moves."""

    def __init__(self) -> None:
        self.attempt = int(os.environ["TD_GUARD_ATTEMPT"])
        self.out = os.open(os.environ["TD_GUARD_TELEMETRY"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        active = Path(os.environ["TD_GUARD_ACTIVE"])
        self.resumed = active.exists()
        self.step = int(active.read_text()) if self.resumed else 0
        self.print(f"attempt {self.attempt} from {self.step}")

    def print(self, text: str) -> None:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    def raw(self, text: str) -> None:
        os.write(self.out, text.encode())

    def say(self, **what: object) -> None:
        self.raw(json.dumps({"step": self.step, "attempt": self.attempt, **what}) + "\n")

    def train(self, n: int, **metrics: float) -> None:
        for _ in range(n):
            self.step += 1
            self.say(**{**HEALTHY, **metrics})

    def diverge(self, n: int) -> None:
        self.train(n, kl=0.9)

    def jump(self, step: int) -> None:
        self.step = step

    def save(self, initial: bool = False) -> None:
        if initial and self.resumed:
            return
        path = Path(os.environ["TD_GUARD_STAGING"]) / f"model_{self.step}.txt"
        path.write_text(str(self.step))
        self.say(checkpoint=str(path), **({"initial": True} if initial else {}))

    def save_twice(self) -> None:
        """Under one name, announced in one breath: when it can be looked at, the first is the second."""
        path = Path(os.environ["TD_GUARD_STAGING"]) / "model.txt"
        lines = [json.dumps({"step": self.step + k, "checkpoint": str(path)}) + "\n" for k in (0, 1)]
        self.step += 1
        path.write_text(str(self.step))
        self.raw("".join(lines))

    def note(self, path: str) -> None:
        """Write down what we find in the environment."""
        found = {k: v for k, v in os.environ.items() if k.startswith(("TD_", "LEARN"))}
        with Path(path).open("a") as f:
            f.write(json.dumps(found) + "\n")

    def touch(self, path: str) -> None:
        """Tell that we have come here, and who we are."""
        Path(path + ".tmp").write_text(str(os.getpid()))
        Path(path + ".tmp").rename(path)

    def chatter(self, n: int) -> None:
        self.print("x" * n)

    def stray(self, path: str) -> None:
        """Start a process that outlives this one: nobody tells it anything."""
        null = subprocess.DEVNULL
        line = [sys.executable, "-I", "-S", "-c", STRAY, path]
        subprocess.Popen(line, start_new_session=True, stdout=null, stderr=null)

    def until(self, path: str) -> None:
        while not Path(path).exists():
            time.sleep(0.005)

    def on_term(self, code: int, saves: bool = False) -> None:
        def end(*_: object) -> None:
            if saves:
                self.save()
            os._exit(code)

        signal.signal(signal.SIGTERM, end)
        signal.signal(signal.SIGINT, end)

    def ignore(self, signum: int) -> None:
        signal.signal(signum, signal.SIG_IGN)

    def wait(self) -> None:
        time.sleep(600)

    def exit(self, code: int) -> None:
        sys.exit(code)

    def die(self, signum: int) -> None:
        os.kill(os.getpid(), signum)


if __name__ == "__main__":
    plans = json.loads(sys.argv[1])
    trainer = Trainer()
    for name, *args in plans[min(trainer.attempt, len(plans) - 1)]:
        options = args.pop() if args and isinstance(args[-1], dict) else {}
        getattr(trainer, name)(*args, **options)
