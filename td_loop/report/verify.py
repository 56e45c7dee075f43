"""What `td-loop verify` prints."""

from __future__ import annotations

from pathlib import Path

from td_loop.loop.fault import Fault
from td_loop.loop.verify import Examination
from td_loop.report.text import count, driver_line, indented


def verify_text(run: Path, found: Examination) -> str:
    """The faults one by one, the notes, and at the end what was looked at."""
    lines = [] if found.driver is None else [*indented("", driver_line(found.driver)), ""]
    for number, fault in enumerate(found.faults, 1):
        lines += [*_fault_lines(number, fault), ""]
    for note in found.notes:
        lines += indented("note: ", note)
    looked_at = f"{count(found.promoted, 'promoted iteration')}, {count(found.weights, 'weights file')}, " + (
        f"{count(found.caches, 'cache')} checked"
    )
    verdict = count(len(found.faults), "fault") if found.faults else "nothing wrong"
    return "\n".join([*lines, *indented("", f"{run}: {verdict}; {looked_at}")])


def _fault_lines(number: int, fault: Fault) -> list[str]:
    return [
        *indented(f"{number}. ", f"{fault.file}: {fault.what} ({fault.rule})"),
        *indented("   found     ", fault.found),
        *indented("   expected  ", fault.expected),
        *indented("   remedy    ", fault.remedy),
    ]
