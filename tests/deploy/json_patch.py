"""JSON Patch (RFC 6902) over JSON Pointer (RFC 6901), as an API server applies it: all operations, or none."""

from __future__ import annotations

import copy
import re
from typing import Any


class PatchError(Exception):
    """The patch is none, or cannot be applied."""


def apply(document: Any, operations: Any) -> Any:
    """A new document; the old one stays as it was."""
    if not isinstance(operations, list):
        raise PatchError("a JSON Patch is a list of operations")
    document = copy.deepcopy(document)
    for operation in operations:
        document = _apply(document, operation)
    return document


def _apply(document: Any, operation: Any) -> Any:
    if not isinstance(operation, dict) or not isinstance(operation.get("path"), str):
        raise PatchError(f"no operation with a path: {operation!r}")
    kind, path = operation.get("op"), operation["path"]
    if kind in ("add", "replace", "test") and "value" not in operation:
        raise PatchError(f"{kind} without a value")
    match kind:
        case "test":
            if not same(get(document, path), operation["value"]):
                raise PatchError(f"testing value {path} failed")
            return document
        case "add":
            return add(document, path, copy.deepcopy(operation["value"]))
        case "remove":
            return remove(document, path)
        case "replace":
            get(document, path)
            if path == "":
                return copy.deepcopy(operation["value"])
            parent, key = _parent(document, path)
            parent[key] = copy.deepcopy(operation["value"])
            return document
        case "move" | "copy":
            source = operation.get("from")
            if not isinstance(source, str):
                raise PatchError(f"{kind} without from")
            value = copy.deepcopy(get(document, source))
            if kind == "move":
                if path.startswith(f"{source}/"):
                    raise PatchError("a value cannot be moved into itself")
                document = remove(document, source)
            return add(document, path, value)
    raise PatchError(f"unknown operation {kind!r}")


def same(a: Any, b: Any) -> bool:
    """RFC 6902 4.6: equal by type and value; true is no number."""
    if isinstance(a, bool) or isinstance(b, bool) or a is None or b is None:
        return a is b
    if isinstance(a, int | float) and isinstance(b, int | float):
        return a == b
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return isinstance(a, str) and isinstance(b, str) and a == b


def get(document: Any, path: str) -> Any:
    for token in _tokens(path):
        document = _step(document, token)
    return document


def add(document: Any, path: str, value: Any) -> Any:
    if path == "":
        return value
    *above, last = _tokens(path)
    parent = document
    for token in above:
        parent = _step(parent, token)
    if isinstance(parent, dict):
        parent[last] = value
    elif isinstance(parent, list):
        at = len(parent) if last == "-" else _index(last)
        if at > len(parent):
            raise PatchError(f"{path} is beyond the end")
        parent.insert(at, value)
    else:
        raise PatchError(f"{path} has no parent")
    return document


def remove(document: Any, path: str) -> Any:
    get(document, path)
    if path == "":
        return None
    parent, key = _parent(document, path)
    del parent[key]
    return document


def _parent(document: Any, path: str) -> tuple[Any, Any]:
    *above, last = _tokens(path)
    for token in above:
        document = _step(document, token)
    return document, _index(last) if isinstance(document, list) else last


def _step(value: Any, token: str) -> Any:
    if isinstance(value, dict) and token in value:
        return value[token]
    if isinstance(value, list) and token != "-" and _index(token) < len(value):
        return value[_index(token)]
    raise PatchError(f"there is no {token!r}")


def _index(token: str) -> int:
    if not re.fullmatch("0|[1-9][0-9]*", token):
        raise PatchError(f"{token!r} is no index")
    return int(token)


def _tokens(path: str) -> list[str]:
    if path == "":
        return []
    if not path.startswith("/"):
        raise PatchError(f"{path!r} is no pointer")
    return [token.replace("~1", "/").replace("~0", "~") for token in path[1:].split("/")]
