"""Who can play: weights under the game's search, policies, built-in players, agents of other programs.

A contestant's identity is made of content (a hash of the file) and of what it may spend on a move. It names who
played in a stored game, so a file that was changed since is another contestant, and one that was moved is not.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from td_loop.errors import DataError, UsageError
from td_loop.files import follow, sha256
from td_loop.games.base import Budget, Playable
from td_loop.policy.artefact import read_artefact
from td_loop.value.io import load_weights

LABEL_LENGTH = 16
_AT_BUDGET = re.compile(r"(?P<source>.+)@(?P<amount>\d+(?:\.\d+)?)(?P<unit>[se])")


class Kind(StrEnum):
    """What a contestant is."""

    WEIGHTS = "weights"
    POLICY = "policy"
    BUILT_IN = "built-in"
    OUTSIDE = "outside"


@dataclass(frozen=True)
class Contestant:
    """One who plays.

    Attributes:
        label: what tables call it; unique among the contestants of a tournament.
        kind: what it is.
        source: path of its file, or name of a built-in player.
        identity: kind, content hash and budget: what stored games know it by.
        budget: of the search, for weights; None for the others.
    """

    label: str
    kind: Kind
    source: str
    identity: str
    budget: Budget | None = None


def parse(spec: str, game: Playable[Any, Any], budget: Budget, aliases: Mapping[str, Path]) -> Contestant:
    """The contestant that a person means.

    Args:
        spec: `[LABEL=]WHO[@BUDGET]`; WHO is an .npz of weights, an .onnx of a policy, a .py file, a folder with a
            main.py, an alias, or a built-in player; BUDGET is `0.2s` or `400e` (evals), for weights only.
        game: the game.
        budget: for weights that name none.
        aliases: names of weights files.

    Raises:
        UsageError: there is nobody of that name.
        WeightsError: the weights cannot be used in this game.
        DataError: a file cannot be read, or is a policy for another game.
    """
    label, equals, who = spec.partition("=")
    if not equals:
        label, who = "", spec
    at = _AT_BUDGET.fullmatch(who)
    if at:
        who, amount = at["source"], at["amount"]
        budget = Budget(seconds=float(amount)) if at["unit"] == "s" else Budget(evals=int(float(amount)))
    weights = aliases.get(who) or (Path(who) if who.endswith(".npz") else None)
    if weights is not None:
        suffix = f"@{_spent(budget)}"
        name = who if who in aliases else Path(who).stem
        identity = f"{Kind.WEIGHTS}:{_checked_weights(weights, game)}{suffix}"
        return Contestant(label or name + (suffix if at else ""), Kind.WEIGHTS, str(weights), identity, budget)
    if at:
        raise UsageError(f"{spec}: only weights have a budget")
    path = Path(who)
    if path.suffix == ".onnx":
        identity = f"{Kind.POLICY}:{_checked_policy(path, game)}"
        return Contestant(label or path.stem, Kind.POLICY, str(path), identity)
    if path.suffix == ".py" or path.is_dir():
        file = path / "main.py" if path.is_dir() else path
        name = path.name if path.is_dir() else path.parent.name if path.name == "main.py" else path.stem
        return Contestant(label or name, Kind.OUTSIDE, str(file.absolute()), f"{Kind.OUTSIDE}:{_agent_hash(path)}")
    if who in game.players:
        return Contestant(label or who, Kind.BUILT_IN, who, f"{Kind.BUILT_IN}:{who}")
    known = ", ".join([*aliases, *game.players])
    raise UsageError(
        f"no contestant {who!r}: neither an .npz, an .onnx, a .py, a folder with a main.py, nor one of {known}"
    )


def _spent(budget: Budget) -> str:
    parts = [f"{budget.seconds:g}s"] if budget.seconds is not None else []
    return "+".join(parts + ([f"{budget.evals}e"] if budget.evals is not None else []))


def _checked_weights(path: Path, game: Playable[Any, Any]) -> str:
    """The hash of weights that this game can play with."""
    value = load_weights(path, feature_names=game.feature_names)
    if value.meta.get("game") != game.name:
        raise DataError(f"{path}: made for the game {value.meta.get('game')!r}, not {game.name!r}; give others")
    return sha256(follow(path))


def _checked_policy(path: Path, game: Playable[Any, Any]) -> str:
    """The hash of a policy that this game can play with."""
    contract = getattr(game, "contract", None)
    if contract is None:
        raise UsageError(f"{path}: the game {game.name!r} has no policies; give weights, or a built-in player")
    return read_artefact(path, contract).sha256


def _agent_hash(path: Path) -> str:
    """Of a .py file, or of a whole folder: a file alone may import what stands beside it, and that is its risk."""
    if path.is_dir() and not (path / "main.py").is_file():
        raise DataError(f"{path}: has no main.py; give the agent's .py file")
    files = [path] if not path.is_dir() else sorted(p for p in path.rglob("*") if p.is_file() and _is_content(p))
    try:
        hashes = [f"{p.relative_to(path)} {sha256(p)}" for p in files]
    except OSError as e:
        raise DataError(f"{path}: cannot be read ({e.strerror})") from e
    return hashlib.sha256("\n".join(hashes).encode()).hexdigest()


def _is_content(path: Path) -> bool:
    return "__pycache__" not in path.parts and not any(part.startswith(".") for part in path.parts)


def line_up(found: Sequence[Contestant]) -> tuple[list[Contestant], list[str]]:
    """Each contestant once, under a label of its own.

    Returns:
        The contestants, and a sentence for each that was left out because it is another one.
    """
    first: dict[str, Contestant] = {}
    notes = []
    for c in found:
        if c.identity in first:
            notes.append(f"{c.label} is the same as {first[c.identity].label}: it plays once")
        else:
            first[c.identity] = replace(c, label=c.label[:LABEL_LENGTH])
    counts = Counter(c.label for c in first.values())
    seen: Counter[str] = Counter()
    out = []
    for c in first.values():
        seen[c.label] += 1
        tail = "" if counts[c.label] == 1 else f"#{seen[c.label]}"
        out.append(replace(c, label=c.label[: LABEL_LENGTH - len(tail)] + tail))
    return out, notes
