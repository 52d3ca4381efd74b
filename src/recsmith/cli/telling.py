"""How far a long run is, on stderr."""

import sys
import time
from collections.abc import Callable
from typing import Any, cast

import click

WATCHED_S = 0.5  # between two lines for a person


def teller(
    words: Callable[[Any], str], every_s: float, ends: Callable[[Any], bool] = lambda _: False, at_once: bool = False
) -> Callable[[Any], None]:
    """What says `words` of a run's progress: on one line for a person, every so many seconds in a log.

    ends: whether a progress is the last one, which is said in any case. at_once: whether the first one is, too.
    """
    watched = cast(Any, sys.stderr) is not None and sys.stderr.isatty()
    said = float("-inf") if at_once else time.monotonic()

    def tell(progress: Any) -> None:
        nonlocal said
        if time.monotonic() - said < (WATCHED_S if watched else every_s) and not ends(progress):
            return
        said = time.monotonic()
        text = f"recsmith: {words(progress)}"
        click.echo(f"\r{text}   " if watched else text, err=True, nl=not watched)

    return tell


def left(seconds: float | None) -> str:
    """', 3.2 min left', or nothing where it cannot be told."""
    return "" if seconds is None else f", {seconds / 60:.1f} min left"
