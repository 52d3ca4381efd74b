"""Planners and cost models by name: those of RecSmith, and those of other packages, found by entry points.

    [project.entry-points."recsmith.planners"]       # in the pyproject.toml of the other package
    mine = "my_package.planner:MyPlanner"

    PLANNERS = OwnNames[Planner]("plan", {"auto": "recsmith.planners.auto:Auto"})    # the same, inside RecSmith

Each target is an object, or a class or function that makes one without arguments. Names are listed without importing
anything; a module is imported when its name is requested.
"""

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from recsmith.errors import UsageError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Named = TypeVar("Named")
PLANNERS, COST_MODELS = "recsmith.planners", "recsmith.cost_models"  # groups of entry points


class OwnNames(Mapping[str, Named]):
    """The objects of a group that RecSmith provides, by name; each is stored as 'module:name' until first requested.

    method: a method that every object of the group has, as for load_plugin.
    """

    def __init__(self, method: str, places: Mapping[str, str]) -> None:
        self._method = method
        self.places: dict[str, str | Named] = dict(places)

    def __getitem__(self, name: str) -> Named:
        place = self.places[name]
        if not isinstance(place, str):
            return place
        module, _, attribute = place.partition(":")
        made: Named = _made(getattr(import_module(module), attribute), self._method)
        self.places[name] = made
        return made

    def __contains__(self, name: object) -> bool:
        return name in self.places

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)


def _made(found: Any, method: str) -> Any:
    """The object itself, or the object that it makes if it is a class or function without this method."""
    return found() if isinstance(found, type) or not hasattr(found, method) else found


def plugins(group: str) -> dict[str, str]:
    """The names of a group that installed packages offer, sorted, with the package that offers each."""
    from importlib.metadata import entry_points

    return {point.name: _package(point) for point in sorted(entry_points(group=group), key=lambda point: point.name)}


def plugin_names(group: str) -> list[str]:
    """The names of a group that installed packages offer, sorted."""
    return list(plugins(group))


def load_plugin(group: str, name: str, what: str, method: str) -> object | None:
    """The object of an entry point; None if no package offers the name.

    what, method: such as 'planner' and 'plan', for errors and to tell an object from its class.

    Raises:
        UsageError: two packages offer the name, the package cannot be imported, or its object has another name.
    """
    from importlib.metadata import entry_points

    points = list(entry_points(group=group, name=name))
    if not points:
        return None
    if len({point.value for point in points}) > 1:
        packages = " and ".join(sorted(map(_package, points)))
        raise UsageError(f"{what} '{name}' is offered by {packages}; uninstall one of them")
    try:
        made = _made(points[0].load(), method)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise UsageError(f"{what} '{name}' of {_package(points[0])} cannot be loaded ({reason}); repair it") from error
    called = getattr(made, "name", None)
    if called != name:
        raise UsageError(
            f"the entry point '{name}' of {_package(points[0])} makes a {what} that is called {called!r}; "
            "give both one name"
        )
    return made


def find_named(
    wanted: object, own: Mapping[str, Named], group: str, protocol: type[Named], what: str, method: str,
    also: Sequence[str] = (),
) -> Named:  # fmt: skip
    """The wanted object: by name, first of RecSmith's `own` and then of other packages; or `wanted` itself, checked.

    group, what, method: as in load_plugin. protocol: what the object must implement; its name must not be one of `own`.
    also: further known names, for the error.

    Raises:
        UsageError: nothing has this name, its package cannot be loaded, or the object breaks a rule.
    """
    from recsmith.files import did_you_mean

    if isinstance(wanted, str) and wanted in own:
        return own[wanted]
    found = load_plugin(group, wanted, what, method) if isinstance(wanted, str) else wanted
    if found is None and isinstance(wanted, str):
        known = list(dict.fromkeys((*own, *also, *plugin_names(group))))
        raise UsageError(f"no {what} is called '{wanted}'{did_you_mean(wanted, known)}")
    name = getattr(found, "name", None)
    if isinstance(found, type) or not isinstance(name, str) or not isinstance(found, protocol):
        kind = f"the class {found.__name__}" if isinstance(found, type) else f"a {type(found).__name__}"
        raise UsageError(f"{kind} is no {what}; give a name, or an object with a `name` and a method `{method}`")
    if name in own and not isinstance(found, type(own[name])):
        raise UsageError(f"a {what} of your own is called '{name}' as RecSmith's is; give it another name")
    return found


def _package(point: "EntryPoint") -> str:
    return f"package '{point.dist.name}'" if point.dist else f"'{point.value}'"
