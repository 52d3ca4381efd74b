"""Reads the lines of a run's log.jsonl, for resumed jobs, benchmarks and watches. Imports no torch."""

import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from recsmith.errors import CorruptFile, UsageError
from recsmith.files import json_lines

LOG = "log.jsonl"
RANKS = "ranks"  # event with the times of all ranks, at the end of training
BROUGHT = "brought"  # event with the effect of each system of a run, at the end of training
ODD = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError)
"""What reading raises where a line lacks something, or it is of another type."""
LARGEST = sys.float_info.max  # largest valid number; whole numbers of a damaged line may be larger


def logged(file: Path, event: str | None = None, until: int | None = None) -> list[dict[str, Any]]:
    """The complete lines of one event or of all, up to step `until` if given; UsageError if there is no log."""
    if not file.exists():
        raise UsageError(f"'{file.parent}' has no {LOG}; give the output folder of a run")
    return [each for _, each in json_lines(file) if each is not None and _is_wanted(each, event, until)]


def _is_wanted(line: dict[str, Any], event: str | None, until: int | None) -> bool:
    step = line.get("step", 0)
    whole = isinstance(line.get("event"), str) and isinstance(step, int) and abs(step) < 2**63
    return whole and event in (None, line["event"]) and (until is None or step <= until)


def logged_number(file: Path, line: dict[str, Any], name: str) -> float:
    """A finite number of a line; CorruptFile if the line lacks it."""
    value = line.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= LARGEST:
        raise CorruptFile(
            f"'{file}': '{name}' of a line '{line['event']}' is {str(value)[:40]}, and it is a number; the line is "
            "damaged"
        )
    return float(value)


def speed_over(file: Path, lines: Sequence[dict[str, Any]]) -> float:
    """Samples per second over consecutive lines of training: the mean over all of their time, not a typical line.

    Reading a window of samples falls within few steps, which a typical line would leave out. All lines must cover
    equally many steps.
    """
    speeds = [logged_number(file, line, "samples_per_s") for line in lines]
    if min(speeds) < 0:
        raise CorruptFile(f"'{file}': samples_per_s of a line is {min(speeds):g}; it is 0 or more; the line is damaged")
    return statistics.harmonic_mean(speeds)


def lacking(file: Path, error: Exception) -> CorruptFile:
    """The error for a log in which a line lacks a value."""
    return CorruptFile(f"'{file}': a line lacks {error}; it is damaged, or of another version")
