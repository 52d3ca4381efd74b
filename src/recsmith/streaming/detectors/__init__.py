"""Detectors: what scores the values of a series as they come (protocol.py), one file each."""

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from recsmith._components import find, known, make, parsed, register
from recsmith.errors import UsageError
from recsmith.files import parse_yaml

KIND = "detector"
METHODS = ("score", "to_raw", "from_raw")

register(KIND, "ensemble", "recsmith.streaming.detectors.ensemble:Ensemble")
register(KIND, "ewma", "recsmith.streaming.detectors.ewma:Ewma")
register(KIND, "median_mad", "recsmith.streaming.detectors.median_mad:MedianMad")
register(KIND, "tail", "recsmith.streaming.detectors.tail:Tail")
register(KIND, "seasonal", "recsmith.streaming.detectors.seasonal:SeasonalEsd")
register(KIND, "adwin", "recsmith.streaming.detectors.adwin:Adwin")


def detector_spec(name: str, settings: Iterable[str]) -> object:
    """A detector's name with settings as a shell has them, such as period=288; UsageError of one that is not so."""
    found: dict[str, object] = {"name": name}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"'{setting}' is not key=value; write for example --set period=288")
        value = parse_yaml(f"value: {text}", f"--set {key}")
        found[key.strip()] = value["value"] if isinstance(value, dict) else value
    return found if len(found) > 1 else name


def detector_of(spec: object) -> Any:
    """The detector of a name or 'module:Class', with settings; it has seen nothing yet.

    Raises:
        UsageError: nothing is called so, a setting is wrong, what is made is no detector, or a package is missing.
    """
    _check_owner(spec)
    made = make(KIND, spec, where="detector")
    missing = [method for method in METHODS if not callable(getattr(made, method, None))]
    if missing:
        raise UsageError(
            f"{type(made).__name__} has no {' and no '.join(missing)}; derive it from "
            "recsmith.streaming.detectors.protocol.Detector"
        )
    return made


def settings_of(detector: object) -> tuple[str, ...]:
    """The names of the settings that a detector, or a class of detectors, takes."""
    return tuple(inspect.signature(detector if isinstance(detector, type) else type(detector)).parameters)


def season_of(detector: object) -> tuple[float, ...]:
    """What each place of a period adds to values, as a detector knows it now; () where it knows no season."""
    season: Callable[[], tuple[float, ...]] = getattr(detector, "season", tuple)
    return season()


def _check_owner(spec: object) -> None:
    """Refuse a setting of another detector, and say which one has it."""
    name, settings = parsed(spec, "detector")
    if name not in known(KIND):
        return
    own, others = settings_of(find(KIND, name)), [each for each in known(KIND) if each != name]
    for setting in settings:
        owners = [each for each in others if setting in settings_of(find(KIND, each))]
        if setting not in own and owners:
            raise UsageError(
                f"detector.{setting} is no setting of {name}, but of {', '.join(owners)}; name that detector "
                f"(--detector {owners[0]}), or leave {setting} out"
            )
