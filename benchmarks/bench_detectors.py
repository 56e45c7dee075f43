"""How late do the guard's detectors find a fault, how often do they cry wolf, and what does a record cost them?

    python benchmarks/bench_detectors.py [--steps 1000000] [--traces 120] [--seed 1] [--jobs 1]

All of it on the labelled traces of `guard_traces.py`, with the default settings. The reference, in the same run,
is the bare rule that the requirements sketch: trip on a NaN of KL, entropy or value loss, or when any of the three
has been beyond its limit for three records in a row, a value that is missing counting as fine.

- Found and delay: the share of faulty traces in which a detector trips within the time given to its kind of fault,
  and the steps from the fault's onset to the trip, median and worst.
- False alarms: trips before the onset, in healthy traces and in late dips that recover; after each the detector
  starts anew. Sick steps trip nothing, but hold snapshots back.
- Cost: microseconds of processor time a record, all detectors together, and the state's size as JSON.

Exit status 1: a fault was missed, or there was more than one false alarm in 100,000 healthy steps.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.guard_traces import FAULTS, STYLES, Trace, faulty, healthy, late_dip
from td_loop.files import dumps_json
from td_loop.guard.health import Health
from td_loop.guard.panel import Panel

ALLOWED = 1e-5
"""False alarms a healthy step."""
RULE = "bare rule"
ANY = "any of ours"


class BareRule:
    """The rule of the requirements, on its own."""

    def __init__(self) -> None:
        self.failures = 0

    def trips(self, values: Mapping[str, float]) -> bool:
        """Whether training would be stopped at this record."""
        if not all(math.isfinite(values.get(k, 0.0)) for k in ("kl", "entropy", "value_loss")):
            return True
        bad = (
            values.get("kl", 0.0) > 0.05
            or values.get("entropy", 1.0) < 0.01
            or values.get("value_loss", 0.0) > 50.0
        )
        self.failures = self.failures + 1 if bad else 0
        return self.failures >= 3


@dataclass
class Outcome:
    """Of one trace: the first trip of each detector within the time given, and what was wrong before the onset."""

    kind: str
    style: str
    steps: int
    first: dict[str, int] = field(default_factory=dict)
    alarms: Counter[str] = field(default_factory=Counter)
    sick: Counter[str] = field(default_factory=Counter)


def watch(trace: Trace, panel: Panel) -> Outcome:
    """Show a trace to the panel and to the bare rule, line by line."""
    fault = trace.kind in FAULTS
    until = trace.onset if fault and trace.onset is not None else len(trace)
    end = min(len(trace), until + FAULTS[trace.kind][2]) if fault else len(trace)
    out = Outcome(trace.kind, trace.style, until)
    state, rule = panel.start(), BareRule()
    fresh = panel.start()
    for record in trace.records():
        if record.step >= end:
            break
        state, judgement = panel.step(state, record)
        tripped = [f.detector for f in judgement.findings if f.trips]
        if rule.trips(record.values):
            tripped.append(RULE)
            rule = BareRule()
        if record.step >= until:
            for name in tripped:
                out.first.setdefault(name, record.step - until)
            continue
        if tripped:
            out.alarms.update(tripped)
            out.alarms[ANY] += any(name != RULE for name in tripped)
            state = {name: fresh[name] if name in tripped else s for name, s in state.items()}
        if judgement.health is Health.SICK:
            out.sick[ANY] += 1
            out.sick.update(f.detector for f in judgement.sick)
    ours = [d for name, d in out.first.items() if name != RULE]
    if ours:
        out.first[ANY] = min(ours)
    return out


def job(task: tuple[Callable[[int], Trace], int]) -> Outcome:
    """One trace, in a process of its own."""
    make, index = task
    return watch(make(index), Panel())


def row(cells: Sequence[object]) -> str:
    """A line of a Markdown table."""
    return f"| {' | '.join(str(c) for c in cells)} |"


def delays(found: Sequence[int], n: int) -> str:
    """Found share, median and worst delay."""
    if not found:
        return "–"
    share = len(found) / n
    said = "all" if len(found) == n else f"{share:.0%}"
    return f"{said}, {statistics.median(found):.0f} / {max(found)}"


def found_table(outcomes: Sequence[Outcome], names: Sequence[str]) -> list[str]:
    """Detectors that found something, by kind of fault."""
    kinds = list(FAULTS)
    by_kind = {k: [o for o in outcomes if o.kind == k] for k in kinds}
    lines = [row(["found, delay median / worst", *kinds]), row(["---"] * (1 + len(kinds)))]
    for name in [RULE, ANY, *names]:
        cells = [delays([o.first[name] for o in by_kind[k] if name in o.first], len(by_kind[k])) for k in kinds]
        if any(c != "–" for c in cells):
            lines.append(row([name, *cells]))
    ratios = []
    for k in kinds:
        both = [(o.first[ANY], o.first[RULE]) for o in by_kind[k] if {ANY, RULE} <= set(o.first)]
        more = sum(ANY in o.first for o in by_kind[k]) / max(1, sum(RULE in o.first for o in by_kind[k]))
        sooner = statistics.mean((a + 1) / (b + 1) for a, b in both) if both else math.nan
        found = f"{more:.2f}x found" if any(RULE in o.first for o in by_kind[k]) else "only ours"
        ratios.append(found if math.isnan(sooner) else f"{found}, {sooner:.2f}x the delay")
    lines.append(row(["ours to the rule", *ratios]))
    return lines


def alarm_table(outcomes: Sequence[Outcome], names: Sequence[str]) -> list[str]:
    """False alarms and sick steps, in healthy traces, before faults, and in late dips."""
    groups: dict[str, list[Outcome]] = defaultdict(list)
    for o in outcomes:
        groups["healthy" if o.kind == "healthy" else "late dip" if o.kind == "late dip" else "before"].append(o)
    steps = {g: sum(o.steps for o in of) for g, of in groups.items()}
    lines = [
        row(
            [
                "per 1,000 steps",
                *(f"{g}: alarms ({steps[g]:,} steps)" for g in groups),
                "healthy: sick steps",
                "alarms to the rule's",
            ]
        ),
        row(["---"] * (len(groups) + 3)),
    ]
    rule = sum(o.alarms[RULE] for o in outcomes)
    for name in [RULE, ANY, *names]:
        counts = {g: sum(o.alarms[name] for o in of) for g, of in groups.items()}
        sick = sum(o.sick[name] for o in groups["healthy"])
        total = sum(counts.values())
        lines.append(
            row(
                [
                    name,
                    *(f"{1000 * counts[g] / steps[g]:.4f} ({counts[g]})" for g in groups),
                    "" if name == RULE else f"{1000 * sick / steps['healthy']:.3f}",
                    f"{total / rule:.2f}x" if rule else f"{total} to 0",
                ]
            )
        )
    return lines


def cost(panel: Panel, seed: int) -> list[str]:
    """Time a record of a PPO trace, for all detectors together and for the bare rule, and the state's size."""
    trace = healthy(seed, 0)
    records = list(trace.records())
    best: dict[str, float] = {}
    state: Any = None
    for _ in range(5):
        state = panel.start()
        t = time.process_time()
        for record in records:
            state, _ = panel.step(state, record)
        best["panel"] = min(best.get("panel", math.inf), time.process_time() - t)
        rule, t = BareRule(), time.process_time()
        for record in records:
            rule.trips(record.values)
        best["rule"] = min(best.get("rule", math.inf), time.process_time() - t)
    ours, bare = (1e6 * best[k] / len(records) for k in ("panel", "rule"))
    size = len(dumps_json(panel.save(state)))
    return [
        f"A record with {len(trace.columns)} metrics costs {ours:.1f} µs for {len(panel.detectors)} detectors "
        f"(bare rule {bare:.2f} µs, ratio {ours / bare:.0f}x); the saved state has {size / 1000:.0f} kB."
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=1_000_000, help="healthy steps, at least")
    parser.add_argument("--traces", type=int, default=120, help="traces a kind of fault")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    args = parser.parse_args()

    panel = Panel()
    names = [d.name for d in panel.detectors]
    tasks: list[tuple[Callable[[int], Trace], int]] = []
    tasks += [(partial(healthy, args.seed), i) for i in range(math.ceil(args.steps / 4000))]
    tasks += [(partial(faulty, args.seed, kind), i) for kind in FAULTS for i in range(args.traces)]
    tasks += [(partial(late_dip, args.seed), i) for i in range(args.traces)]
    if args.jobs > 1:
        with ProcessPoolExecutor(args.jobs) as pool:
            outcomes = list(pool.map(job, tasks, chunksize=4))
    else:
        outcomes = [job(task) for task in tasks]

    print(f"{args.traces} traces a kind of fault, seed {args.seed}; healthy styles: {', '.join(STYLES)}\n")
    print(
        "\n".join([*found_table(outcomes, names), "", *alarm_table(outcomes, names), "", *cost(panel, args.seed)])
    )

    missed = Counter((o.kind, o.style) for o in outcomes if o.kind in FAULTS and ANY not in o.first)
    for (kind, style), n in sorted(missed.items()):
        print(f"missed: {kind} in {style}: {n}")
    steps = sum(o.steps for o in outcomes)
    alarms = sum(o.alarms[ANY] for o in outcomes)
    by_style = Counter({(o.style, n): 0 for o in outcomes for n in o.alarms})
    for o in outcomes:
        for n, k in o.alarms.items():
            by_style[(o.style, n)] += k
    for (style, n), k in sorted(by_style.items()):
        if k and n != ANY:
            print(f"false alarms: {style}, {n}: {k}")
    dips = [o for o in outcomes if o.kind == "late dip"]
    print(f"late dips that tripped: {sum(o.alarms[ANY] > 0 for o in dips)} of {len(dips)}")
    print(f"\n{alarms} false alarms in {steps:,} steps without a fault: {1e5 * alarms / steps:.2f} per 100,000")
    return 1 if missed or alarms > ALLOWED * steps else 0


if __name__ == "__main__":
    sys.exit(main())
