"""How far a long run is, printed on stderr while it runs."""

import sys
import time
from collections.abc import Callable
from typing import Any, cast

import click

WATCHED_S = 0.5  # seconds between two lines on a terminal: often enough to see that the run lives


def progress_printer(
    words: Callable[[Any], str],
    every_s: float,
    is_last: Callable[[Any], bool] = lambda _: False,
    *,
    at_once: bool = False,
) -> Callable[[Any], None]:
    """What prints `words` of a run's progress: over one line on a terminal, every so many seconds in a log.

    is_last: whether a progress is the last one, which is printed in any case. at_once: whether the first one is, too.
    """
    watched = is_watched()
    printed = float("-inf") if at_once else time.monotonic()

    def on_progress(progress: Any) -> None:
        nonlocal printed
        if time.monotonic() - printed < (WATCHED_S if watched else every_s) and not is_last(progress):
            return
        printed = time.monotonic()
        text = f"recsmith: {words(progress)}"
        click.echo(f"\r{text}   " if watched else text, err=True, nl=not watched)

    return on_progress


def is_watched() -> bool:
    """Whether stderr is a terminal; it may be closed."""
    return cast(Any, sys.stderr) is not None and sys.stderr.isatty()


def note(text: str) -> None:
    """Print a note on stderr."""
    click.echo(f"recsmith: note: {text}", err=True)
