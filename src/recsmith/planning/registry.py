"""The planners that can be asked for by name: RecSmith's own, and the entry points of other packages."""

import re

from recsmith import _plugins
from recsmith.planners import Planner
from recsmith.planners.auto import Auto
from recsmith.planners.autoshard import AutoShard
from recsmith.planners.dreamshard import DreamShard
from recsmith.planners.exact import Exact
from recsmith.planners.greedy import GREEDIES
from recsmith.planners.ldm import Ldm
from recsmith.planners.neuroshard import NeuroShard
from recsmith.planners.rnn import Rnn
from recsmith.planners.surco import SurCo

PLANNERS: dict[str, Planner] = {
    planner.name: planner
    for planner in (
        Auto(), NeuroShard(), DreamShard(), AutoShard(), SurCo(), Rnn(), Ldm(), *GREEDIES, Exact(),
    )
}  # fmt: skip
WITH_OPTIONS = {"dreamshard": DreamShard.of, "autoshard": AutoShard.of, "rnn": Rnn.of, "surco": SurCo.of}
"""What makes a planner of a word with options, such as dreamshard?samples=16: a name, and what follows ':' or '?'."""


def find_planner(planner: str | Planner) -> Planner:
    """The planner of a name or word (dreamshard?samples=16), RecSmith's own first; an object of your own as it is.

    Raises:
        UsageError: there is none of that name, its package cannot be loaded, or the object is no planner.
    """
    if isinstance(planner, str) and planner not in PLANNERS:
        make = WITH_OPTIONS.get(re.split("[:?]", planner, maxsplit=1)[0])
        if make is not None:
            return make(planner)
    return _plugins.find_named(planner, PLANNERS, _plugins.PLANNERS, Planner, "planner", "plan")
