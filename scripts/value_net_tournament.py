"""Door to `td-loop tournament`: the same command, with the same flags."""

import sys

from td_loop.__main__ import main

if __name__ == "__main__":
    sys.exit(main(["tournament", *sys.argv[1:]]))
