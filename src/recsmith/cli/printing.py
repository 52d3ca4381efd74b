"""Printing of commands: results on stdout; notes and the progress of long runs on stderr."""

import os
import sys
import time
from collections.abc import Callable
from typing import Any, TextIO, cast

import click

from recsmith.cli.live import running
from recsmith.errors import printable

NOTE, FAILURE = "yellow", "red"  # colours of messages on stderr
OWN_PROCESS = "recsmith"  # the `obj` of click's context when the command runs as its own process
QUIET_S = 0.3  # seconds of a search before its progress is printed; shorter searches print none
LEAST_S = 1e-12  # seconds, below any step time: used as the divisor if the bound is 0
CLEAR = "\x1b[K"  # terminal code that erases the rest of a line
WATCHED_S = 0.5  # seconds between two updates on a terminal: often enough to see that the run goes on


def print_as(format_: str, report: Callable[[], Any], raw: Callable[[], Any]) -> None:
    """Print a result as JSON or as its report, as `format_` says."""
    if format_ == "json":
        print_json(raw())
    else:
        show_report(report())


def print_plan(plan: Any, output: str | None, format_: str, report: Callable[[], Any], raw: Callable[[], Any]) -> None:
    """Write a plan to its file and print the result as JSON or as its report; output `-` prints the plan alone."""
    from recsmith.plans import plan_to_raw, save_plan

    if output == "-":
        print_json(plan_to_raw(plan))
        return
    if output:
        save_plan(plan, output)
    print_as(format_, report, raw)


def print_json(raw: Any) -> None:
    """Print plain data as JSON."""
    from recsmith.files import dump_json

    click.echo(dump_json(raw), nl=False)


def show_report(report: Any) -> None:
    """Print a report: an object that rich draws, or lines."""
    from recsmith.reports.layout import show

    show(report)


def progress_printer(
    describe: Callable[[Any], str],
    every_s: float,
    is_last: Callable[[Any], bool] = lambda _: False,
    *,
    at_once: bool = False,
) -> Callable[[Any], None]:
    """A callback that prints a run's progress as `describe` words it.

    On a terminal it rewrites one line; in a log it prints a line every `every_s` seconds. is_last: whether a progress
    is the last one, which is always printed. at_once: whether the first one is always printed, too.
    """
    watched = is_watched()
    printed = float("-inf") if at_once else time.monotonic()

    def on_progress(progress: Any) -> None:
        nonlocal printed
        if time.monotonic() - printed < (WATCHED_S if watched else every_s) and not is_last(progress):
            return
        printed = time.monotonic()
        if line := running():
            line.tell(describe(progress))
            return
        text = printable(f"recsmith: {describe(progress)}")
        click.echo(f"\r{text}{CLEAR}" if watched else text, err=True, nl=not watched)

    return on_progress


def search_printer(quiet_s: float = QUIET_S) -> Callable[[float], None] | None:
    """A callback that shows a search's best plan on a terminal, after `quiet_s` seconds; None without a terminal."""
    from recsmith.units import format_time

    def best(total_s: float) -> str:
        return f"best step {format_time(total_s)}; Ctrl-C ends with it"

    if line := running():
        return lambda total_s: line.tell(best(total_s))
    return _late_printer(lambda spent_s, total_s: f"{spent_s:.0f} s, {best(total_s)}", quiet_s)


def verdict_printer() -> Callable[[str], None] | None:
    """A callback that notes on a terminal that no plan exists, before advice is computed; None without a terminal."""
    if not is_watched():
        return None
    return lambda proof: note(f"{proof} Looking for a change that works; Ctrl-C ends it")


def proof_printer(quiet_s: float = QUIET_S) -> Callable[[float, float], None] | None:
    """A callback that shows the best plan and the bound of a proof on a terminal; None without a terminal."""
    from recsmith.units import format_time

    def describe(_: float, ends: tuple[float, float]) -> str:
        total_s, bound_s = ends
        apart = total_s / max(bound_s, LEAST_S) - 1
        return f"proving: best step {format_time(total_s)}, bound {format_time(bound_s)}, {apart:.2%} apart"

    say = _late_printer(describe, quiet_s)
    return None if say is None else lambda total_s, bound_s: say((total_s, bound_s))


def _late_printer(describe: Callable[[float, Any], str], quiet_s: float) -> Callable[[Any], None] | None:
    """A callback that prints nothing in the first `quiet_s` seconds; None without a terminal.

    describe: words for the seconds since the start and a progress.
    """
    if not is_watched():
        return None
    begun = time.monotonic()
    say = progress_printer(lambda progress: describe(time.monotonic() - begun, progress), 0.0)

    def on_progress(progress: Any) -> None:
        if time.monotonic() - begun > quiet_s:
            say(progress)

    return on_progress


def end_line() -> None:
    """Erase the progress line on a terminal, so that the next output begins at the left margin."""
    if is_watched():
        click.echo(f"\r{CLEAR}", err=True, nl=False)


def is_watched(stream: TextIO | None = None) -> bool:
    """Whether a stream (default: stderr) is a terminal; False if it is closed."""
    stream = cast(TextIO | None, stream or sys.stderr)
    return stream is not None and stream.isatty()


def heard_switches() -> Callable[[str], None] | None:
    """A callback that shows on a terminal which change of a job is being priced; None without a terminal."""
    if line := running():
        return lambda name: line.tell(f"trying {name}")
    return (lambda name: say(f"trying {name}")) if is_watched() else None


def note(text: str) -> None:
    """Print a note on stderr."""
    say(f"note: {text}", NOTE)


def say(text: str, colour: str = "") -> None:
    """Print a line on stderr, with unsafe characters escaped. colour: of its first word, on terminals with colours."""
    if line := running():
        line.clear()
    first = click.style("recsmith:", fg=colour, bold=True) if colour and has_colours() else "recsmith:"
    click.echo(first + printable(f" {text}"), err=True)


def has_colours() -> bool:
    """Whether stderr is a terminal with colours that nobody has switched off (https://no-color.org)."""
    return is_watched() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
