"""The best plan of TorchRec's own planner over a list of settings, judged by a cost model of RecSmith's."""

from collections.abc import Sequence

from recsmith.adapters.torchrec_planner import plan_with_torchrec
from recsmith.adapters.torchrec_settings import TorchRecSettings
from recsmith.costs import Evaluator, step_seconds
from recsmith.errors import NoPlanFound
from recsmith.plans import Placement
from recsmith.problems import footprint_of


def best_of_settings(
    evaluator: Evaluator, settings: Sequence[TorchRecSettings]
) -> tuple[tuple[Placement, ...], TorchRecSettings]:
    """The placements with the least seconds of a step by the evaluator, and the settings that found them.

    Raises:
        NoPlanFound: no setting found a plan.
    """
    problem = evaluator.problem
    best: tuple[float, tuple[Placement, ...], TorchRecSettings] | None = None
    for each in settings:
        try:
            placements = plan_with_torchrec(problem.workload, problem.cluster, problem.space, each)
        except NoPlanFound:
            continue
        seconds = step_seconds(evaluator, footprint_of(problem, placements))
        if best is None or seconds < best[0]:
            best = seconds, placements, each
    if best is None:
        raise NoPlanFound(f"TorchRec's planner found no plan under any of {len(settings)} settings")
    return best[1], best[2]
