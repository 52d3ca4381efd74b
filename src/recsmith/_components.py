"""Components: parts of a run or dataset, given by a registered name or as `module:Class`, with their own settings.

    register("format", "criteo", "recsmith.data.criteo:CriteoSpec")    # the one line that a component of RecSmith needs
    make("format", "my_package.logs:Logs")                             # a component of your own needs no registration
    make("format", {"name": "criteo", "paths": ["day_0.gz"], "max_corrupt": 0})

A kind is a seam, such as format or watcher. A class is imported when it is first requested, so names can be
registered and listed without torch.
"""

import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from importlib import import_module
from typing import Any, cast, get_type_hints

from recsmith._fields import WrongError, check_of
from recsmith.errors import UsageError
from recsmith.files import decode_part, did_you_mean

NAME = "name"  # key that names the component in a mapping; all other keys are settings
_REGISTERED: dict[str, dict[str, str | Callable[..., Any]]] = {}


def register(kind: str, name: str, target: str | Callable[..., Any]) -> None:
    """Register a component of a kind under a name. target: the class or function, or its place as 'module:Class'.

    Raises:
        UsageError: the kind already has another component of this name.
    """
    named = _REGISTERED.setdefault(kind, {})
    if named.setdefault(name, target) is not target and named[name] != target:
        raise UsageError(f"two components of kind {kind} are called '{name}'; give one of them another name")


def known(kind: str) -> tuple[str, ...]:
    """The names registered for a kind, in the order of their registration."""
    return tuple(_REGISTERED.get(kind, {}))


def find(kind: str, name: str) -> Callable[..., Any]:
    """The class or function with a registered name, or at 'module:Class'.

    Raises:
        UsageError: no component has this name, or its module cannot be loaded.
    """
    if name in _REGISTERED.get(kind, {}):
        target = _REGISTERED[kind][name]
        return load(target, kind) if isinstance(target, str) else target
    if ":" not in name:
        raise UsageError(f"no {kind} is called '{name}'{did_you_mean(name, list(known(kind)))}; or give module:Class")
    return load(name, kind)


def load(target: str, what: str = "function") -> Callable[..., Any]:
    """The class or function at 'package.module:name'; UsageError if there is none. what: its kind, for the error."""
    module, _, attribute = target.partition(":")
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(f"'{target}' cannot be loaded: {error}; write package.module:{what}") from None
    if not callable(found):
        raise UsageError(f"'{target}' is a {type(found).__name__}; name a class or function that makes a {what}")
    return found


def name_of(kind: str, target: type) -> str:
    """The name by which `find` finds a class: its registered name, or 'module:Class'."""
    place = f"{target.__module__}:{target.__qualname__}"
    named = _REGISTERED.get(kind, {})
    return next((name for name, each in named.items() if each is target or find(kind, name) is target), place)


def parsed(spec: object, where: str) -> tuple[str, dict[str, Any]]:
    """(name, settings) of a name or of a mapping with a name. where: its place, such as data.train, for errors."""
    if isinstance(spec, str):
        return spec, {}
    if not isinstance(spec, dict):
        raise UsageError(f"{where} is {spec!r}; give a name, module:Class, or a mapping with `{NAME}` and settings")
    settings = cast(dict[str, Any], dict(cast(dict[str, Any], spec)))
    name = settings.pop(NAME, None)
    if not isinstance(name, str):
        raise UsageError(f"{where} has no `{NAME}`; give the name of a component, or module:Class")
    return name, settings


def unknown(kind: str, spec: object, where: str) -> str | None:
    """Message for a name that no component of a kind has; None if one has it, and for module:Class (not imported)."""
    name, _ = parsed(spec, where)
    if name in known(kind) or ":" in name:
        return None
    return f"{where}: no {kind} is called '{name}'{did_you_mean(name, list(known(kind)))}; or give module:Class"


def setting_without_name(kind: str, plain: Any, given: object, where: str) -> str | None:
    """Message for a setting of a named component that is given without the name; None if there is no such setting.

    plain: the noun that is used if no name is given.
    """
    own = {each.name for each in fields(plain)}
    for key in (key for key in cast(dict[str, Any], given if isinstance(given, dict) else {}) if key not in own):
        for name in known(kind):
            target: Any = find(kind, name)
            if is_dataclass(target) and key in (each.name for each in fields(target)):
                return f"{where}.{key} is a setting of {name}; write {where}: {{name: {name}, {key}: ...}}"
    return None


def make(kind: str, spec: object, *given: object, where: str = "") -> Any:
    """Build the component that a name or mapping describes. given: positional arguments passed before its settings.

    Raises:
        UsageError: no component has the name, a setting is unknown, missing or of a wrong type, or refused.
    """
    where = where or kind
    name, settings = parsed(spec, where)
    target = find(kind, name)
    if hasattr(target, "__pydantic_config__"):  # a noun
        return decode_part(cast(type[Any], target), settings, where)
    return target(*given, **checked(target, settings, where, len(given)))


def checked(target: Callable[..., Any], settings: dict[str, Any], where: str, given: int = 0) -> dict[str, Any]:
    """Settings converted to the types of the target's signature; UsageError for the first invalid one.

    where: the field that holds the settings, such as data.train; an error names the setting by its full path.
    """
    own = list(inspect.signature(target).parameters.values())[given:]
    by_name = {each.name: each for each in own if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)}
    if all(each.kind is not each.VAR_KEYWORD for each in own):
        unknown = next((name for name in settings if name not in by_name), None)
        if unknown is not None:
            hint = did_you_mean(unknown, list(by_name)) or "; it has no settings"
            raise UsageError(f"{where}.{unknown} is no setting{hint}")
    missing = [name for name, each in by_name.items() if each.default is each.empty and name not in settings]
    if missing:
        names = ", ".join(f"{where}.{name}" for name in missing)
        raise UsageError(f"{names} {'is missing; give it' if len(missing) == 1 else 'are missing; give them'}")
    hints = get_type_hints(target.__init__ if isinstance(target, type) else target)
    return {name: _kept(name, value, hints.get(name), where) for name, value in settings.items()}


def _kept(name: str, value: Any, hint: Any, where: str) -> Any:
    """A setting converted by the rules of noun fields; a value whose type is not checked is returned as it is."""
    check = None if hint is None else check_of(hint)
    try:
        return value if check is None else check(value)
    except WrongError as wrong:
        raise UsageError(f"{where}.{name}{wrong.place} is {wrong.value!r}; it must be {wrong.wanted}") from None
