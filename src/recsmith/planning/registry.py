"""The planners by name: RecSmith's own, and those that other packages provide as entry points.

Names may carry options, which the named planner parses (`TakesOptions`); NAME is dreamshard or autoshard:

    NAME                          the policy shipped for the cluster's device
    NAME:mine.safetensors         a policy of your own, or the name of a shipped one
    NAME?samples=16               also draws 16 placements from the policy
    dreamshard?splits=8           splits tables one by one, by a policy for splits, with 8 draws
    dreamshard:mine.safetensors?splits=8    a policy for splits of your own
    NAME?refine                   continues with the local search of planner auto
    NAME?whole                    splits no table that fits a device
    NAME?longest_first            places by the policy's cost network alone, without the policy
    NAME:mine.safetensors?samples=16&refine

Planners surco and rnn are in a separate package, packages/recsmith-per-problem.
"""

import re

from recsmith import _plugins
from recsmith._install import PER_PROBLEM
from recsmith.errors import MissingExtra, UsageError
from recsmith.planners import Planner, TakesOptions

IN_A_PACKAGE = ("surco", "rnn")  # planners installed by PER_PROBLEM
SHOWN = 60  # most characters of a name in a message

PLANNERS = _plugins.OwnNames[Planner](
    "plan",
    {
        "auto": "recsmith.planners.auto:Auto",
        "neuroshard": "recsmith.planners.neuroshard:NeuroShard",
        "dreamshard": "recsmith.planners.dreamshard:DreamShard",
        "autoshard": "recsmith.planners.autoshard:AutoShard",
        "ldm": "recsmith.planners.ldm:Ldm",
        "longest_first": "recsmith.planners.longest_first:LongestFirst",
        "random": "recsmith.planners.greedy:RANDOM",
        "dim_greedy": "recsmith.planners.greedy:DIM_GREEDY",
        "size_greedy": "recsmith.planners.greedy:SIZE_GREEDY",
        "lookup_greedy": "recsmith.planners.greedy:LOOKUP_GREEDY",
        "size_lookup_greedy": "recsmith.planners.greedy:SIZE_LOOKUP_GREEDY",
        "cost_greedy": "recsmith.planners.greedy:COST_GREEDY",
        "exact": "recsmith.planners.exact:Exact",
    },
)


def find_planner(planner: str | Planner) -> Planner:
    """The planner of a name, with or without options, RecSmith's own first; an object of your own is returned as it is.

    Raises:
        UsageError: there is none of that name, its package is missing or cannot be loaded, or the object is no planner.
    """
    if not isinstance(planner, str) or planner in PLANNERS:
        return _named(planner)
    name = re.split("[:?]", planner, maxsplit=1)[0]
    known = name in PLANNERS or name in _plugins.plugin_names(_plugins.PLANNERS)
    if name in IN_A_PACKAGE and not known:
        raise MissingExtra(f"planner {name} needs the package recsmith-per-problem: {PER_PROBLEM}; or use planner auto")
    return _with_options(_named(name), planner) if known and name != planner else _named(planner)


def _named(planner: str | Planner) -> Planner:
    return _plugins.find_named(planner, PLANNERS, _plugins.PLANNERS, Planner, "planner", "plan")


def _with_options(planner: Planner, text: str) -> Planner:
    """The planner of a text that begins with its name; UsageError if it does not take these options."""
    if not isinstance(planner, TakesOptions):
        raise UsageError(f"planner {planner.name} takes no options; write {planner.name} instead of '{text[:SHOWN]}'")
    made = planner.with_options(text)
    if made.name != text:
        raise UsageError(
            f"planner {planner.name} makes of '{text[:SHOWN]}' one that is called '{made.name}'; "
            "its with_options must give the whole text as the name"
        )
    return made
