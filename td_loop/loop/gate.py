"""The gate: what a match of the candidate against `latest_good` means for its promotion.

The match is a sequential test (`td-loop tournament --sprt`), played as a stage like prepare and fit. H1 accepted:
the candidate is promoted. H0 accepted, or no answer within the rounds: it is reverted. A match that could not be
played, or whose result is not what its exit code says, is a failed stage, and aborts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from td_loop.errors import SPRT_REJECTED, SPRT_UNDECIDED, DataError
from td_loop.files import as_float, read_json, sha256
from td_loop.loop.config import RunConfig
from td_loop.loop.layout import AttemptPaths
from td_loop.loop.manifest import Json, Status
from td_loop.loop.outputs import require_file

VERDICTS: Mapping[int, str] = {0: "H1", SPRT_REJECTED: "H0", SPRT_UNDECIDED: "undecided"}
"""What the exit codes of a match that was played say."""
GAMES_A_ROUND = 2
"""One map, and the seats swapped."""
KEYS = (
    "config",
    "wall_s",
    "exit_code",
    "verdict",
    "bounds",
    "llr",
    "rounds",
    "games",
    "games_played",
    "score",
    "result_sha256",
    "games_sha256",
)
"""Of a record's `gate`; `message` where the match was played, `failure` where it could not be."""


def begun(config: RunConfig, seed: int) -> Json:
    """The `gate` of a record while its match is played: all that is not known yet is None.

    Args:
        config: the attempt's.
        seed: that maps are drawn from.
    """
    seconds, evals = config.match.limit(config.prepare)
    settings = {
        "elo": list(config.match.gate_elo),
        "rounds": config.match.gate_rounds,
        "budget_s": seconds,
        "budget_evals": evals,
        "workers": config.prepare.workers,
        "seed": seed,
    }
    return dict.fromkeys(KEYS) | {"config": settings}


def played(gate: Json, paths: AttemptPaths, opponent: str) -> Json:
    """A record's `gate` with how the match ended.

    Args:
        gate: as it was begun, with `wall_s` and an `exit_code` of VERDICTS.
        paths: of the attempt.
        opponent: name of the weights that it was against.

    Raises:
        DataError: it left no valid result, or another one than its exit code says.
    """
    require_file(paths.match)
    require_file(paths.games)
    if missing := [p for p in (paths.match, paths.games) if not p.is_file()]:
        raise DataError(f"{missing[0]}: no such file")
    hashes = {"result_sha256": sha256(paths.match), "games_sha256": sha256(paths.games)}
    result = gate | _numbers(paths.match, gate["config"]) | hashes
    if (fault := contradiction(result)) is not None:
        raise DataError(f"{paths.match}: {fault}")
    return result | {"message": _message(result, opponent)}


def _numbers(path: Path, config: Json) -> Json:
    """What the result of a match says, under the keys of a record's `gate`."""
    result = read_json(path)
    try:
        sprt, pair = result["sprt"], result["pair"]
        elo = [as_float(sprt["elo0"]), as_float(sprt["elo1"])]
        found = {
            "verdict": str(sprt["verdict"]),
            "bounds": [as_float(x) for x in sprt["bounds"]],
            "llr": as_float(sprt["llr"]),
            "rounds": int(sprt["rounds"]),
            "games": GAMES_A_ROUND * int(sprt["rounds"]),
            "games_played": int(result["games_played"]),
            "score": as_float(pair["score_a"]),
        }
    except (KeyError, TypeError, ValueError) as e:
        raise DataError(f"{path}: is no result of a sequential test ({type(e).__name__} {e})") from e
    if elo != config["elo"]:
        raise DataError(f"{path}: is of a test between {elo} Elo, not {config['elo']}")
    return found


def contradiction(gate: Json) -> str | None:
    """In what the numbers of a match that was played do not agree with each other; None: they do."""
    low, high = gate["bounds"]
    llr, rounds = gate["llr"], gate["rounds"]
    if not all(math.isfinite(x) for x in (low, high, llr)) or not low < high:
        return f"llr {llr} and bounds {low}, {high} are no finite numbers in their order"
    follows = "H1" if llr >= high else "H0" if llr <= low else "undecided"
    code, verdict = gate["exit_code"], gate["verdict"]
    if not verdict == VERDICTS.get(code) == follows:
        return f"verdict {verdict!r}, exit code {code} ({VERDICTS.get(code)}) and llr {llr} ({follows}) differ"
    if not 0 < rounds <= gate["config"]["rounds"] or gate["games"] != GAMES_A_ROUND * rounds:
        return f"{rounds} rounds with {gate['games']} games, of {gate['config']['rounds']} rounds at most"
    return None if 0.0 <= gate["score"] <= 1.0 else f"score {gate['score']} is none"


def status(gate: Json) -> Status | None:
    """What an attempt's match ends it with; None: it was won, and nothing stands in the way of a promotion."""
    if "failure" in gate:
        return Status.HARD_ABORTED
    return None if gate["verdict"] == VERDICTS[0] else Status.REVERTED


def _message(gate: Json, opponent: str) -> str:
    """How the match ended, in a sentence."""
    (elo0, elo1), (low, high) = gate["config"]["elo"], gate["bounds"]
    scored = (
        f"scored {gate['score']:.1%} against {opponent} in {gate['rounds']} rounds ({gate['games']} games), "
        f"LLR {gate['llr']:.2f}"
    )
    if gate["verdict"] == "H1":
        return f"H1 accepted: {scored} (>= {high:.2f}): {elo1:g} Elo stronger rather than {elo0:g}"
    if gate["verdict"] == "H0":
        return f"H0 accepted: {scored} (<= {low:.2f}): {elo0:g} Elo stronger rather than {elo1:g}"
    return (
        f"out of rounds: {scored} ({low:.2f} to {high:.2f}): neither {elo0:g} nor {elo1:g} Elo is settled; more "
        "--gate-rounds go on from there"
    )
