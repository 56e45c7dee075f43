"""One hypothesis profile for all tests: no deadline, because a first example may compile a kernel."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("td_loop", deadline=None)
settings.load_profile("td_loop")
