"""What an examination found, as text of at most 80 columns."""

from __future__ import annotations

from td_loop.deploy.admission.verify import Verification
from td_loop.text import WIDTH, table


def verification_text(found: Verification) -> str:
    """The table, and a line on top."""
    artefact = found.artefact
    head = f"{artefact.path.name}  {artefact.sha256[:12]}  {artefact.meta.contract.game}"
    names = max(len(check.name) for check in found.checks)
    limits = max(len(check.limit) for check in found.checks)
    room = max(20, WIDTH - names - limits - len("FAIL") - 3)
    rows = [(c.name, "pass" if c.passed else "FAIL", _cut(c.figure, room), c.limit) for c in found.checks]
    return "\n".join([head, *table(("check", "", "found", "limit"), rows, "<<<<")])


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else f"{text[: room - 1]}…"
