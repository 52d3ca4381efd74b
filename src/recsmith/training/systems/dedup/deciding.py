"""Whether deduplication pays: the step of a run is predicted without it and with it.

On a job of several ranks, rank 0 predicts for all.
"""

import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from recsmith._types import noun
from recsmith.analyses.aims import NAMED
from recsmith.analyses.paying import gain_of, pays, said_of
from recsmith.errors import RecSmithError
from recsmith.plans import Plan
from recsmith.training.launch.ranks import launcher_environment, local_ranks
from recsmith.training.run import Run
from recsmith.training.sources import BatchSource
from recsmith.units import format_time


@noun
class AskedGain:
    """Seconds of a step without and with deduplication.

    plain_s, distinct_s: without it and with it; of embeddings alone if the rest is not predicted, as on GPUs. refused:
    why the run cannot have it; '' if it can.
    """

    plain_s: float
    distinct_s: float = 0.0
    refused: str = ""

    @property
    def pays(self) -> bool:
        """Whether deduplication saves a large enough share of a step."""
        return not self.refused and pays(gain_of(self.plain_s, self.distinct_s))

    def __str__(self) -> str:
        """The two times and the saving as text, or why deduplication is refused."""
        if self.refused:
            return f"it cannot be had here: {self.refused}"
        return (
            f"a step takes {format_time(self.distinct_s)} in place of {format_time(self.plain_s)}, which "
            f"{said_of(gain_of(self.plain_s, self.distinct_s), NAMED['step'])}"
        )


def ranks_of_job(run: Run) -> int:
    """The number of ranks that train, as far as it is known when the model is built."""
    environment = launcher_environment()
    return local_ranks(run) if environment is None else int(environment["WORLD_SIZE"])


def asked_gain(run: Run, source: BatchSource, groups: Sequence[Sequence[str]]) -> AskedGain:
    """What deduplicating groups of features saves in a run; the same on every rank.

    Raises what preparing the run raises.
    """
    ranks = ranks_of_job(run)

    def ask() -> dict[str, Any]:
        plain_s = _step_s(run, source, "off", ranks)
        try:
            return {"plain_s": plain_s, "distinct_s": _step_s(run, source, tuple(map(tuple, groups)), ranks)}
        except RecSmithError as error:
            return {"plain_s": plain_s, "refused": str(error)}

    return AskedGain(**_by_rank_0(ask))


def _by_rank_0(ask: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    from torch import distributed

    from recsmith.adapters.rank_0 import from_rank_0

    together = distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1
    return from_rank_0(ask) if together else ask()


def _step_s(run: Run, source: BatchSource, groups: Any, ranks: int) -> float:
    """Seconds of a step of the run under a plan made for it, as a dry run predicts them."""
    from recsmith.training.job.models import unsharded
    from recsmith.training.job.preparing import predicted_step, prepare

    made = replace(run, data=replace(run.data, deduplicate=groups))
    with warnings.catch_warnings(action="ignore"):  # the job repeats the warnings on the range of its cost model
        prepared = prepare(made, ranks, parts=unsharded(made, source), plan_by=_planned, priced=True)
        step = predicted_step(prepared)
    return prepared.priced.cost.step_s if step is None else step.step_s


def _planned(parts: Any, before: Plan | None, holders: int) -> Plan:
    from recsmith.training.job.plan import plan_to_go_on

    return plan_to_go_on(parts, before, holders, min(holders, int(os.environ.get("LOCAL_WORLD_SIZE", holders))))
