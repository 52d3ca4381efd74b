"""The planners that can be asked for by name: RecSmith's own, and the entry points of other packages."""

from recsmith import _plugins
from recsmith.errors import UsageError
from recsmith.files import did_you_mean
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
    if not isinstance(planner, str):
        return _checked(planner)
    if planner in PLANNERS:
        return PLANNERS[planner]
    found = _plugins.load_plugin(_plugins.PLANNERS, planner, "planner", "plan")
    if found is None:
        known = list(dict.fromkeys((*PLANNERS, *_plugins.plugin_names(_plugins.PLANNERS))))
        raise UsageError(f"no planner is called '{planner}'{did_you_mean(planner, known)}")
    return _checked(found)


def _checked(planner: object) -> Planner:
    """The object, if it has what the protocol of planners asks for (recsmith.planners.Planner)."""
    name = getattr(planner, "name", None)
    if isinstance(planner, type) or not isinstance(name, str) or not isinstance(planner, Planner):
        what = f"the class {planner.__name__}" if isinstance(planner, type) else f"a {type(planner).__name__}"
        raise UsageError(f"{what} is no planner; give a name, or an object with a `name` and a method `plan`")
    if name in PLANNERS and not isinstance(planner, type(PLANNERS[name])):
        raise UsageError(f"a planner of your own is called '{name}' as RecSmith's is; give it another name")
    return planner
