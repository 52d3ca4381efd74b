"""Runs trained one after another on the ranks of one job; what came of each, or what refused it."""

from typing import Any

from recsmith.errors import RecSmithError


def train_all(runs: list[dict[str, Any]]) -> list[Any]:
    """What `train_on_rank` returned for each run, or its error in words."""
    from recsmith.training.rank import train_on_rank

    said: list[Any] = []
    for run in runs:
        try:
            said.append(train_on_rank(run))
        except RecSmithError as error:
            said.append(str(error))
    return said
