"""CPython's `random.Random` inside kernels: the same Mersenne Twister, the same draws, bit for bit.

Map and comets are drawn with `random()`, `uniform` and `randint`, among rejected tries; drawing them in a kernel
saves the thousands of Python calls that dominate the making of a game. Source: CPython `Modules/_randommodule.c`
and `Lib/random.py` (3.9 and later draw alike); the tests compare every draw with `random.Random`.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

from td_loop.kernels import allocating, inlined, kernel

U32 = npt.NDArray[np.uint32]

WORDS = 624
_SIZE = WORDS + 1  # the words, then the position of the next one


def seed_key(seed: int | str) -> U32:
    """The key words (little end first) that `random.Random(seed)` hands to its generator.

    Args:
        seed: an int (its sign is dropped, as CPython does) or a string (hashed, version 2 seeding).
    """
    if isinstance(seed, str):
        raw = seed.encode()
        number = int.from_bytes(raw + hashlib.sha512(raw).digest(), "big")
    else:
        number = abs(int(seed))
    n = max(1, (number.bit_length() + 31) // 32)
    return np.frombuffer(number.to_bytes(4 * n, "little"), dtype="<u4").astype(np.uint32)


@allocating
def seeded(key: U32) -> U32:
    """u32[625]: the generator's state after seeding with `key` (init_by_array of the reference code)."""
    mt = np.empty(_SIZE, np.uint32)
    mask = np.uint64(0xFFFFFFFF)
    x = np.uint64(19650218)
    mt[0] = np.uint32(x)
    for i in range(1, WORDS):
        x = (np.uint64(1812433253) * (x ^ (x >> np.uint64(30))) + np.uint64(i)) & mask
        mt[i] = np.uint32(x)
    i = 1
    j = 0
    n = len(key)
    for _ in range(max(WORDS, n)):
        p = np.uint64(mt[i - 1])
        x = (
            (np.uint64(mt[i]) ^ ((p ^ (p >> np.uint64(30))) * np.uint64(1664525)))
            + np.uint64(key[j])
            + np.uint64(j)
        )
        mt[i] = np.uint32(x & mask)
        i += 1
        j += 1
        if i >= WORDS:
            mt[0] = mt[WORDS - 1]
            i = 1
        if j >= n:
            j = 0
    for _ in range(WORDS - 1):
        p = np.uint64(mt[i - 1])
        x = (np.uint64(mt[i]) ^ ((p ^ (p >> np.uint64(30))) * np.uint64(1566083941))) - np.uint64(i)
        mt[i] = np.uint32(x & mask)
        i += 1
        if i >= WORDS:
            mt[0] = mt[WORDS - 1]
            i = 1
    mt[0] = np.uint32(0x80000000)
    mt[WORDS] = np.uint32(WORDS)
    return mt


@kernel
def _refill(mt: U32) -> None:
    upper = np.uint32(0x80000000)
    lower = np.uint32(0x7FFFFFFF)
    for k in range(WORDS):
        y = (mt[k] & upper) | (mt[(k + 1) % WORDS] & lower)
        twist = np.uint32(0x9908B0DF) if y & np.uint32(1) else np.uint32(0)
        mt[k] = mt[(k + 397) % WORDS] ^ (y >> np.uint32(1)) ^ twist
    mt[WORDS] = np.uint32(0)


@inlined
def _word(mt: U32) -> int:
    if mt[WORDS] >= WORDS:
        _refill(mt)
    y = np.uint32(mt[np.int64(mt[WORDS])])
    mt[WORDS] += np.uint32(1)
    y ^= y >> np.uint32(11)
    y ^= (y << np.uint32(7)) & np.uint32(0x9D2C5680)
    y ^= (y << np.uint32(15)) & np.uint32(0xEFC60000)
    y ^= y >> np.uint32(18)
    return np.int64(y)  # type: ignore[return-value]


@inlined
def uniform(mt: U32, low: float, high: float) -> float:
    """`Random.uniform(low, high)`."""
    a = _word(mt) >> 5
    b = _word(mt) >> 6
    r = (a * 67108864.0 + b) * (1.0 / 9007199254740992.0)
    return low + (high - low) * r


@inlined
def randint(mt: U32, low: int, high: int) -> int:
    """`Random.randint(low, high)` for ranges below 2**32."""
    n = high - low + 1
    bits = 0
    while n >> bits:
        bits += 1
    r = _word(mt) >> (32 - bits)
    while r >= n:
        r = _word(mt) >> (32 - bits)
    return low + r
