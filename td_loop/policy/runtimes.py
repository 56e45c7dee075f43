"""`open_runner`: an artefact in one of the runtimes."""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, get_args

from td_loop.errors import UsageError
from td_loop.policy.artefact import Artefact, read_artefact
from td_loop.policy.runner import Runner

Runtime = Literal["onnxruntime", "numpy", "torch"]
RUNTIMES: tuple[Runtime, ...] = get_args(Runtime)
_CLASSES: dict[Runtime, str] = {
    "onnxruntime": "td_loop.policy.onnx_runner:OnnxRunner",
    "numpy": "td_loop.policy.network:NumpyRunner",
    "torch": "td_loop.policy.torch_module:TorchRunner",
}
"""Where each stands, by name: torch is not loaded for a server, nor onnxruntime for the arena's numpy."""


def open_runner(artefact: Artefact | Path, runtime: Runtime = "onnxruntime") -> Runner:
    """The network of an artefact, loaded.

    Raises:
        DataError: see `read_artefact`; or the runtime does not take the network.
        UsageError: there is no such runtime, or it is not installed.
    """
    if runtime not in _CLASSES:
        raise UsageError(f"there is no runtime {runtime!r}; there are: {', '.join(RUNTIMES)}")
    if isinstance(artefact, Path):
        artefact = read_artefact(artefact)
    module, _, name = _CLASSES[runtime].partition(":")
    runner: Runner = getattr(importlib.import_module(module), name)(artefact)
    return runner


def fastest_runtime() -> Runtime:
    """onnxruntime, or numpy where that is not installed."""
    return "onnxruntime" if find_spec("onnxruntime") is not None else "numpy"
