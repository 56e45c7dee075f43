"""Scalar geometry agrees with the official functions in every bit."""

from __future__ import annotations

import math
import random
import subprocess
import sys
from types import ModuleType

import numpy as np

from td_loop.games.orbit_wars import exact
from td_loop.kernels import allocating


def test_intel_s_vector_library_is_left_aside() -> None:
    """In a process of its own: numba decides once, when it is first imported."""
    code = "import td_loop.kernels; from numba.core.config import *; print(DISABLE_INTEL_SVML, USING_SVML)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.split() == ["1", "False"]


@allocating
def _distances(a: np.ndarray, two: float) -> np.ndarray:
    return np.array([exact.distance(r[0], r[1], r[2], r[3], two) for r in a])


@allocating
def _sun(a: np.ndarray, two: float) -> np.ndarray:
    return np.array([exact.sun_distance(r[0], r[1], r[2], r[3], two) for r in a])


@allocating
def _hits(a: np.ndarray) -> np.ndarray:
    return np.array([exact.swept_hit(r[0], r[1], r[2], r[3], r[4], r[5], r[6], r[7], r[8]) for r in a])


@allocating
def _maths(a: np.ndarray) -> np.ndarray:
    out = np.empty((len(a), 4))
    for i in range(len(a)):
        x = a[i]
        out[i] = np.array([math.sin(x), math.cos(x), math.log(abs(x)), math.sqrt(abs(x)) ** 1.5])
    return out


@allocating
def _squares(a: np.ndarray, two: float) -> np.ndarray:
    return np.array([x**two for x in a])


def test_squares_are_the_c_library_s_pow_and_not_products() -> None:
    rng = random.Random(0)
    xs = [rng.uniform(-100, 100) for _ in range(200_000)]
    expected = [x**2 for x in xs]
    assert any(x * x != e for x, e in zip(xs, expected, strict=True)), (
        "these values do not tell pow from a product"
    )
    assert _squares(np.array(xs), 2.0).tolist() == expected


def test_elementary_functions_agree_with_the_interpreter_s() -> None:
    rng = random.Random(1)
    xs = [rng.uniform(-30, 30) for _ in range(50_000)]
    expected = [[math.sin(x), math.cos(x), math.log(abs(x)), math.sqrt(abs(x)) ** 1.5] for x in xs]
    assert _maths(np.array(xs)).tolist() == expected


def test_distances_agree_with_the_official_ones(official: ModuleType) -> None:
    rng = random.Random(2)
    rows = [[rng.uniform(0, 100) for _ in range(4)] for _ in range(20_000)]
    rows += [[50.0, 50.0, 50.0, 50.0], [3.0, 4.0, 3.0, 4.0]]  # a segment without length
    pairs = [((r[0], r[1]), (r[2], r[3])) for r in rows]
    assert _distances(np.array(rows), 2.0).tolist() == [official.distance(a, b) for a, b in pairs]
    expected = [official.point_to_segment_distance((50.0, 50.0), a, b) for a, b in pairs]
    assert _sun(np.array(rows), 2.0).tolist() == expected


def test_swept_hits_agree_with_the_official_ones(official: ModuleType) -> None:
    rng = random.Random(3)
    rows = []
    for _ in range(20_000):
        a = [rng.uniform(40, 60) for _ in range(2)]
        p = [rng.uniform(40, 60) for _ in range(2)]
        rows.append([*a, *(v + rng.uniform(-6, 6) for v in a), *p, *(v + rng.uniform(-2, 2) for v in p), 2.0])
    rows += [[1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 0.0], [math.nan] * 9]
    expected = [official.swept_pair_hit(r[0:2], r[2:4], r[4:6], r[6:8], r[8]) for r in rows]
    assert 0 < sum(expected) < len(rows)
    assert _hits(np.array(rows)).tolist() == expected
