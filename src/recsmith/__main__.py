"""`python -m recsmith` is `recsmith`."""

from recsmith.cli import main

main()
