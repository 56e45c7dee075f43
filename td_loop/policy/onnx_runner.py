"""A policy network in onnxruntime, as a server wants it: one thread, which sleeps while it has nothing to do.

With two threads inside one call the slowest calls take ten times as long on a busy machine, and threads that spin
take the core from whoever serves the next request.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from td_loop.errors import DataError, OutputError, UsageError
from td_loop.games.served import Inputs, Tensor
from td_loop.policy.artefact import OUTPUT, Artefact

_ERRORS_ONLY = 3


class OnnxRunner:
    """See `Runner`. Several threads may call one: onnxruntime keeps no state between calls of a session.

    Raises:
        DataError: onnxruntime does not take the network.
        UsageError: onnxruntime is not installed.
    """

    def __init__(self, artefact: Artefact) -> None:
        ort = import_onnxruntime()
        try:
            self._session = ort.InferenceSession(artefact.data, _options(ort), providers=["CPUExecutionProvider"])
        except Exception as e:  # onnxruntime has a class of its own for every status
            raise DataError(f"{artefact.path}: onnxruntime does not take it ({_first_line(e)})") from e
        self._names = [spec.name for spec in artefact.meta.contract.inputs]

    def __call__(self, inputs: Inputs) -> Tensor:
        """f32[B, S, O].

        Raises:
            OutputError: the network cannot be computed for these inputs.
        """
        feeds = {name: np.ascontiguousarray(inputs[name], np.float32) for name in self._names}
        try:
            logits: Tensor = self._session.run([OUTPUT], feeds)[0]
        except Exception as e:
            raise OutputError(f"onnxruntime: {_first_line(e)}") from e
        return logits


def import_onnxruntime() -> Any:
    """The package onnxruntime.

    Raises:
        UsageError: it is not installed.
    """
    try:
        import onnxruntime
    except ImportError as e:
        raise UsageError("to run a policy takes the package onnxruntime; pip install 'td-loop[deploy]'") from e
    return onnxruntime


def _options(ort: Any) -> Any:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    options.log_severity_level = _ERRORS_ONLY
    return options


def _first_line(e: Exception) -> str:
    return str(e).strip().splitlines()[0] if str(e).strip() else type(e).__name__
