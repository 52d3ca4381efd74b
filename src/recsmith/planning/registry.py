"""The planners that can be asked for by name: RecSmith's own, and the entry points of other packages."""

from recsmith import _plugins
from recsmith.planners import Planner
from recsmith.planners.auto import Auto
from recsmith.planners.exact import Exact
from recsmith.planners.greedy import GREEDIES
from recsmith.planners.ldm import Ldm
from recsmith.planners.neuroshard import NeuroShard

PLANNERS: dict[str, Planner] = {planner.name: planner for planner in (Auto(), NeuroShard(), Ldm(), *GREEDIES, Exact())}


def find_planner(planner: str | Planner) -> Planner:
    """The planner of a name, RecSmith's own first; an object of your own as it is.

    Raises:
        UsageError: there is none of that name, its package cannot be loaded, or the object is no planner.
    """
    return _plugins.find_named(planner, PLANNERS, _plugins.PLANNERS, Planner, "planner", "plan")
