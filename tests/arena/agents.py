"""Files of outside agents for the toy game, written where a test wants them."""

from __future__ import annotations

from pathlib import Path

AGENTS = {
    "one": "def agent(obs):\n    return [[obs['player'], 1]]\n",
    "two": "def agent(obs, config):\n    assert config.turns == 18\n    return [(obs.player, 1)]\n",
    "last": "import math\n\ndef helper(x):\n    return x\n\ndef play(obs):\n    return [[obs.player, 1]]\n",
    "decoy": "def agent(obs):\n    return [[obs.player, 2]]\n\ndef main():\n    raise SystemExit\n",
    "nothing": "def agent(obs):\n    return None\n",
    "counting": "n = 0\n\ndef agent(obs):\n    global n\n    n += 1\n    return [[obs.player, n]]\n",
    "raises": "def agent(obs):\n    raise ValueError('no idea')\n",
    "exits": "import sys\n\ndef agent(obs):\n    sys.exit(3)\n",
    "dies": "import os\n\ndef agent(obs):\n    os.kill(os.getpid(), 9)\n",
    "deaf": "import os, time\n\ndef agent(obs):\n    os.closerange(3, 256)\n    time.sleep(100)\n",
    "syntax": "def agent(obs)\n",
    "empty": "x = 1\n",
    "scribbles": "import os\n\ndef agent(obs):\n    for fd in range(3, 256):\n        try:\n"
    "            os.write(fd, (8).to_bytes(8, 'little') + b'rubbish!')\n"
    "        except OSError:\n            pass\n",
    "slow": "import time\n\ndef agent(obs):\n    time.sleep(0.2)\n    return []\n",
    "hangs": "import time\n\ndef agent(obs):\n    time.sleep(1000)\n",
    "hungry": "def agent(obs):\n    return [[0, len(bytearray(400_000_000))]]\n",
    "odd": "def agent(obs):\n    return [[0, object()]]\n",
    "malformed": "def agent(obs):\n    return [[1, 2, 3]]\n",
    "array": "import numpy as np\n\ndef agent(obs):\n    return [np.array([obs.player, 1])]\n",
    "beside": "import neighbour\n\ndef agent(obs):\n    open('data.txt').close()\n    return neighbour.say(obs)\n",
}


def write_agent(folder: Path, name: str) -> Path:
    path = folder / f"{name}.py"
    path.write_text(AGENTS[name])
    return path
