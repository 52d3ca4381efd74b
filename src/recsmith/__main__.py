"""`python -m recsmith` is `recsmith`; like that command, it imports nothing from the working folder."""

import os
import sys

if not sys.flags.safe_path and sys.path and os.path.realpath(sys.path[0]) == os.path.realpath(os.curdir):
    del sys.path[0]  # the folder that `-m` puts before the standard library

from recsmith.cli import main

main()
