"""`python -m td_loop` is `td-loop`."""

import sys

from td_loop.cli import main

sys.exit(main())
