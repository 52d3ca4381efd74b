"""Ranks of placements as runs, such as '0-4095', which plan files with many shards contain instead of lists.

A table that is copied to 4,096 ranks would list as many numbers, and thousands of tables may be copied. Equal texts
give the same tuple, so that a plan in memory stores it once.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any, cast

from recsmith.errors import CorruptFile
from recsmith.files import Raw

RUNS = r"^\d+(-\d+)?(, ?\d+(-\d+)?)*$"  # regular expression of such a text
MOST_RANKS = 2**20  # most ranks of a placement: a short text could name any number


def runs_of(ranks: Sequence[int]) -> str:
    """The text for ranks in their order, with consecutive ranks as a run: '0-3, 8' for 0, 1, 2, 3, 8."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and runs[-1][1] + 1 == rank:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def ranks_from(text: str) -> tuple[int, ...]:
    """The ranks that a text of runs names.

    Raises:
        ValueError: the text has another form, or names more ranks than any plan has.
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
    """Raw placements with texts of ranks replaced by empty lists, and these ranks by the placement's index.

    Raises:
        CorruptFile: a text does not consist of runs of ranks.
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
