"""The planners that can be asked for by name."""

from recsmith.errors import UsageError
from recsmith.files import did_you_mean
from recsmith.planners import Planner
from recsmith.planners.auto import Auto
from recsmith.planners.exact import Exact
from recsmith.planners.greedy import GREEDIES
from recsmith.planners.ldm import Ldm
from recsmith.planners.neuroshard import NeuroShard

PLANNERS: dict[str, Planner] = {planner.name: planner for planner in (Auto(), NeuroShard(), Ldm(), *GREEDIES, Exact())}


def find_planner(name: str) -> Planner:
    """The planner of a name; UsageError where there is none."""
    if name not in PLANNERS:
        raise UsageError(f"no planner is called '{name}'{did_you_mean(name, list(PLANNERS))}")
    return PLANNERS[name]
