"""Every benchmark starts with the command that its docs give, from wherever it is called."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

FILES = sorted((Path(__file__).parents[2] / "benchmarks").glob("*.py"))
SCRIPTS = [file for file in FILES if '\nif __name__ == "__main__":' in file.read_text()]
OURS = ("benchmarks", "tests")
"""Packages of the checkout that are not installed."""


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda s: s.stem)
def test_a_script_finds_what_is_not_installed(script: Path) -> None:
    source = script.read_text()
    ours = [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in OURS
    ]
    finds = [n for n, line in enumerate(source.splitlines(), 1) if line.startswith("sys.path.insert(0, ")]
    assert not ours or (finds and finds[0] < min(ours)), "python benchmarks/X.py does not find the checkout itself"
