"""Planners and cost models of other packages, found by their entry points.

    [project.entry-points."recsmith.planners"]       # in the pyproject.toml of the other package
    mine = "my_package.planner:MyPlanner"

An entry point leads to an object, or to a class or function without arguments that makes one. Names are listed without
importing anything; a package is imported when its name is asked for.
"""

from typing import TYPE_CHECKING

from recsmith.errors import UsageError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

PLANNERS, COST_MODELS = "recsmith.planners", "recsmith.cost_models"  # groups of entry points


def plugin_names(group: str) -> list[str]:
    """Names of a group that installed packages offer, in order."""
    from importlib.metadata import entry_points

    return sorted({point.name for point in entry_points(group=group)})


def load_plugin(group: str, name: str, what: str, method: str) -> object | None:
    """The object of an entry point's name; None where no package offers it.

    what, method: 'planner' and 'plan', for errors and for telling a class from what it makes.

    Raises:
        UsageError: two packages offer the name, the package cannot be imported, or its object is called otherwise.
    """
    from importlib.metadata import entry_points

    points = list(entry_points(group=group, name=name))
    if not points:
        return None
    if len({point.value for point in points}) > 1:
        packages = " and ".join(sorted(map(_package, points)))
        raise UsageError(f"{what} '{name}' is offered by {packages}; uninstall one of them")
    try:
        found = points[0].load()
        made = found() if isinstance(found, type) or not hasattr(found, method) else found
    except Exception as error:
        words = f"{type(error).__name__}: {error}"
        raise UsageError(f"{what} '{name}' of {_package(points[0])} cannot be loaded ({words}); repair it") from error
    called = getattr(made, "name", None)
    if called != name:
        raise UsageError(
            f"the entry point '{name}' of {_package(points[0])} makes a {what} that is called {called!r}; "
            "give both one name"
        )
    return made


def _package(point: "EntryPoint") -> str:
    return f"package '{point.dist.name}'" if point.dist else f"'{point.value}'"
