"""Which subset an episode belongs to: a pure function, so that every process and every machine agrees.

An episode's id is hashed to a number u in [0, 1), uniform and independent of the weight, and the canary has the
episodes with u < weight. So the expected share is the weight itself, and a larger weight only ever adds episodes:
no ramp takes one away from the canary.

Scores such as weight x hash, the largest wins, look alike and are wrong: at 5 % they give the canary 2.6 % of the
episodes. What is right among scores, -ln(u) / weight with the smallest winning (Efraimidis and Spirakis, "Weighted
random sampling with a reservoir", 2006), needs a hash a subset, and comes to the same shares for two of them.
"""

from __future__ import annotations

import hashlib

from td_loop.deploy.names import FULL_BP, Subset


def subset_of(episode_id: str, salt: str, weight_bp: int) -> Subset:
    """The subset of a new episode.

    Args:
        episode_id: whatever the client calls its episode.
        salt: of the release (the hash of the canary, say): another one draws anew, so that the same clients are
            not the first to try every canary.
        weight_bp: the canary's share in basis points, 0..10000. 0 is nobody and 10000 is everybody, exactly.
    """
    return "canary" if _hash(episode_id, salt) * FULL_BP < weight_bp << 64 else "stable"


def _hash(episode_id: str, salt: str) -> int:
    """64 bits, uniform. The salt's length goes in, so that no salt and id can be told apart from another pair."""
    salted = salt.encode(errors="surrogatepass")
    data = b"%d:%b%b" % (len(salted), salted, episode_id.encode(errors="surrogatepass"))
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")
