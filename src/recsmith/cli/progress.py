"""How far a long run is, printed on stderr while it runs."""

import sys
import time
from collections.abc import Callable
from typing import Any, TextIO, cast

import click

from recsmith._printable import printable

QUIET_S = 2.0  # seconds of a search before its progress is printed: shorter ones are not worth a line
CLEAR = "\x1b[K"  # what makes a terminal erase the rest of a line
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
        text = printable(f"recsmith: {words(progress)}")
        click.echo(f"\r{text}{CLEAR}" if watched else text, err=True, nl=not watched)

    return on_progress


def search_printer(quiet_s: float = QUIET_S) -> Callable[[float], None] | None:
    """What prints the best plan of a search on a terminal, once it has taken a while; None where nobody watches."""
    if not is_watched():
        return None
    from recsmith.units import format_time

    begun = time.monotonic()
    say = progress_printer(
        lambda total_s: f"{time.monotonic() - begun:.0f} s, best step {format_time(total_s)}; Ctrl-C ends with it", 0.0
    )

    def on_improve(total_s: float) -> None:
        if time.monotonic() - begun > quiet_s:
            say(total_s)

    return on_improve


def proof_printer(quiet_s: float = QUIET_S) -> Callable[[float, float], None] | None:
    """What prints both ends of a proof on a terminal: the best plan, and the bound; None where nobody watches."""
    if not is_watched():
        return None
    from recsmith.units import format_time

    begun = time.monotonic()
    say = progress_printer(
        lambda ends: f"proving: best step {format_time(ends[0])}, bound {format_time(ends[1])}, "
        f"{ends[0] / max(ends[1], 1e-12) - 1:.2%} apart", 0.0
    )  # fmt: skip

    def on_bound(total_s: float, bound_s: float) -> None:
        if time.monotonic() - begun > quiet_s:
            say((total_s, bound_s))

    return on_bound


def end_line() -> None:
    """Erase the line of progress on a terminal, so that what follows begins at its left."""
    if is_watched():
        click.echo(f"\r{CLEAR}", err=True, nl=False)


def is_watched(stream: TextIO | None = None) -> bool:
    """Whether a stream, by default stderr, is a terminal; it may be closed."""
    stream = cast(TextIO | None, stream or sys.stderr)
    return stream is not None and stream.isatty()


def note(text: str) -> None:
    """Print a note on stderr."""
    say(f"note: {text}")


def say(text: str) -> None:
    """Print a line on stderr, safe to print."""
    click.echo(printable(f"recsmith: {text}"), err=True)
