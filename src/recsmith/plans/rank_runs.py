"""Ranks of placements as runs, such as '0-4095': what plan files with many shards hold in place of a list.

A table that is copied to 4,096 ranks would list as many numbers, and thousands of tables are copied. Equal texts give
one tuple, so that a plan in memory holds it once.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any, cast

from recsmith.errors import CorruptFile
from recsmith.files import Raw

RUNS = r"^\d+(-\d+)?(, ?\d+(-\d+)?)*$"  # the form of a text
MOST_RANKS = 2**20  # of a placement: a text of few characters could ask for any number


def runs_of(ranks: Sequence[int]) -> str:
    """Ranks in their order, those that follow each other as a run: '0-3, 8' of 0, 1, 2, 3, 8."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and runs[-1][1] + 1 == rank:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def ranks_from(text: str) -> tuple[int, ...]:
    """The ranks of such a text.

    Raises:
        ValueError: it is none, or names more ranks than any plan has.
    """
    ranks: list[int] = []
    for run in text.split(","):
        first, dash, last = run.strip().partition("-")
        if not (run.isascii() and first.isdecimal() and (last.isdecimal() or not dash)):
            raise ValueError
        begin, end = int(first), int(last or first) + 1
        if end <= begin or len(ranks) + end - begin > MOST_RANKS:
            raise ValueError
        ranks += range(begin, end)
    return tuple(ranks)


def without_runs(placements: Any, source: str) -> tuple[Any, dict[int, tuple[int, ...]]]:
    """Raw placements whose texts of ranks are lists of none, and the ranks of these by their place.

    Raises:
        CorruptFile: a text is not one of runs of ranks.
    """
    if not isinstance(placements, list):
        return placements, {}
    known, found = cache(ranks_from), dict[int, tuple[int, ...]]()
    made: list[Any] = list(cast(Any, placements))
    for place, raw in enumerate(made):
        if isinstance(raw, dict) and isinstance(cast(Raw, raw).get("ranks"), str):
            found[place] = _known(known, cast(Raw, raw), source)
            made[place] = {**cast(Raw, raw), "ranks": []}
    return made, found


def _known(known: Any, raw: Raw, source: str) -> tuple[int, ...]:
    try:
        return known(raw["ranks"])
    except ValueError:
        raise CorruptFile(
            f"'{source}': ranks of table '{raw.get('table')}' are '{raw['ranks'][:60]}'; write a list of ranks, or "
            "runs of them such as '0-7, 16'"
        ) from None
