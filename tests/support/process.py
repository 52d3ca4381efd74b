"""Processes that tests start."""

import signal


def heed_interrupts() -> None:
    """Undo what a shell does to background jobs: they, and all that they start, would ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
