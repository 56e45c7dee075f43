"""Import and verify: games/s and peak memory on a folder of real-size replays, against `orjson.loads`.

    python benchmarks/bench_replays.py [FOLDER] [--games N]

FOLDER holds episode files (default: ../shared/replays beside the clone). The reference, `orjson.loads` of the same
unpacked bytes, runs in the same process on the same files, interleaved game by game. Times are processor time of
this one thread, so that other work on the machine counts little. Kernels are compiled before anything is timed.
The parser switches Python's cycle collector off while it holds the tree; a second reference shows `loads` with
the same done.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import tempfile
import time
from pathlib import Path

import numpy as np
import orjson

from td_loop.games.orbit_wars.replays.importer import import_games
from td_loop.games.orbit_wars.replays.parse import parse_episode
from td_loop.games.orbit_wars.replays.sources import Reader, Source, find_sources
from td_loop.games.orbit_wars.replays.store import ReplayStore
from td_loop.games.orbit_wars.replays.verify import verdict
from td_loop.games.orbit_wars.replays.writer import new_store

DEFAULT = Path(__file__).parents[2] / "shared" / "replays"
READS = 5000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=DEFAULT)
    parser.add_argument("--games", type=int, default=0, help="only the first N files")
    args = parser.parse_args()
    sources = [s for s in find_sources([args.folder]) if s.name.endswith((".json", ".json.gz"))]
    sources = sources[: args.games or None]
    with tempfile.TemporaryDirectory() as folder:
        stages(sources, Path(folder) / "store")
        memory(sources, Path(folder))


def stages(sources: list[Source], path: Path) -> None:
    """Time each stage of an import and of verifying, game by game."""
    stage = dict.fromkeys(("unpack", "loads", "quiet", "parse", "write", "verify"), 0.0)
    n_bytes = 0
    with Reader() as reader:
        verdict(parse_episode(reader.read(sources[0]), "warm-up"))
        with new_store(path) as writer:
            for source in sources:
                t0 = time.process_time()
                data = reader.read(source)
                t1 = time.process_time()
                document = orjson.loads(data)
                del document  # freeing the tree is part of what using `loads` costs
                t2 = time.process_time()
                gc.disable()
                document = orjson.loads(data)
                del document
                gc.enable()
                t3 = time.process_time()
                record = parse_episode(data, source.name)
                t4 = time.process_time()
                writer.add(record)
                t5 = time.process_time()
                found = verdict(record)
                t6 = time.process_time()
                assert found.difference is None, f"{source.name}: {found.label}"
                n_bytes += len(data)
                for name, seconds in zip(stage, np.diff([t0, t1, t2, t3, t4, t5, t6]), strict=True):
                    stage[name] += seconds
    store = ReplayStore(path)
    n = len(sources)
    frames = sum(e.n_frames for e in store.entries)
    on_disk = sum(p.stat().st_size for p in path.iterdir())
    print(f"{n} games, {frames} frames, {n_bytes / 1e6:.0f} MB of JSON, {on_disk / 1e6:.1f} MB as a store\n")
    print(f"{'stage':<44}{'games/s':>9}{'MB/s':>8}{'x loads':>9}")
    rows = {
        "orjson.loads, tree freed (the reference)": stage["loads"],
        "orjson.loads, cycle collector off": stage["quiet"],
        "unpack gzip": stage["unpack"],
        "parse: JSON to arrays (loads inside)": stage["parse"],
        "hash and write to the store": stage["write"],
        "import: unpack, parse, hash, write": stage["unpack"] + stage["parse"] + stage["write"],
        "verify: map, comets and every turn, from seed": stage["verify"],
    }
    for name, seconds in rows.items():
        print(f"{name:<45}{n / seconds:>8.0f}{n_bytes / 1e6 / seconds:>8.0f}{seconds / stage['loads']:>9.2f}")
    reads(store)


def reads(store: ReplayStore) -> None:
    """Time random frames and actions."""
    rng = np.random.default_rng(0)
    games = rng.integers(len(store), size=READS).tolist()
    turns = [int(rng.integers(store.games[g].n_frames)) for g in games]
    for what, read in (("state", store.state), ("action", lambda g, t: store.action(g, t, 0))):
        t0 = time.process_time()
        for g, t in zip(games, turns, strict=True):
            read(g, t)
        print(f"\nread a random {what}: {(time.process_time() - t0) / READS * 1e6:.1f} µs", end="")
    print()


def _peak(sources: list[Source], path: Path) -> tuple[float, float]:
    """Peak memory (MB) of this process before and after an import."""
    before = _high_water()
    import_games(sources, path, verify=False)
    return before, _high_water()


def _high_water() -> float:
    """Largest resident size of this process so far, MB (`ru_maxrss` would count the parent's too)."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1e3


def memory(sources: list[Source], folder: Path) -> None:
    """Peak memory of an import in a process of its own: it must not grow with the number of games."""
    largest = max(sources, key=lambda s: s.path.stat().st_size)
    print(f"\n{'peak memory of an import':<34}{'before, MB':>12}{'peak, MB':>10}")
    for name, chosen in (("the largest game alone", [largest]), (f"all {len(sources)} games", sources)):
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            before, peak = pool.apply(_peak, (chosen, folder / name.replace(" ", "_")))
        print(f"{name:<34}{before:>12.0f}{peak:>10.0f}")


if __name__ == "__main__":
    main()
