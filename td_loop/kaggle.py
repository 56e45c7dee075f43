"""Agents of other programs, found in their file and called as the official environment (Kaggle's) does.

Standard library only: an agent's process should cost no more than the agent itself.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

Agent = Callable[..., Any]
"""`agent(obs)` or `agent(obs, config)` -> action."""


class Record(dict[str, Any]):
    """A dict whose entries are attributes too: agents written for the official environment use either."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value


def call_agent(agent: Agent, obs: dict[str, Any], config: dict[str, Any]) -> Any:
    """Call an agent with as many of (obs, config) as it takes, by the official rule."""
    args: list[Any] = [Record(obs), Record(config)]
    code = getattr(agent, "__code__", None)
    if hasattr(code, "co_argcount"):
        args = args[: code.co_argcount]  # type: ignore[union-attr]
    return agent(*args)


def load_agent(path: Path) -> Agent:
    """Run a Python file and return its function `agent`, or else the official choice: its last callable.

    Modules beside the file can be imported from it.

    Raises:
        Exception: whatever the file raises; it may also exit the process.
        TypeError: there is no callable in it.
    """
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location("agent_file", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and pickle look a class's module up there
    spec.loader.exec_module(module)
    found = vars(module).get("agent")
    if callable(found):
        return found  # type: ignore[no-any-return]
    callables = [v for name, v in vars(module).items() if callable(v) and not name.startswith("__")]
    if not callables:
        raise TypeError(f"{path.name} has no function agent(obs) or agent(obs, config)")
    return callables[-1]  # type: ignore[no-any-return]
