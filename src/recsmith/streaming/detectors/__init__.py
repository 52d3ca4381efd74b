"""Anomaly detectors, which score the values of a series one by one (protocol.py); each is a file."""

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
    """A detector spec from a name and command-line settings such as period=288; UsageError for another form."""
    found: dict[str, object] = {"name": name}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"'{setting}' is not key=value; write for example --set period=288")
        value = parse_yaml(f"value: {text}", f"--set {key}")
        found[key.strip()] = value["value"] if isinstance(value, dict) else value
    return found if len(found) > 1 else name


def detector_of(spec: object) -> Any:
    """Create a detector from a spec: a name or 'module:Class', with settings.

    Raises:
        UsageError: there is no such detector, a setting is invalid, or the class is no detector.
        MissingExtra: a package that the detector needs is not installed.
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
    """Names of the settings of a detector or of a class of detectors."""
    return tuple(inspect.signature(detector if isinstance(detector, type) else type(detector)).parameters)


def season_of(detector: object) -> tuple[float, ...]:
    """The seasonal component by position in a period that a detector has learned so far; () if it knows no season."""
    season: Callable[[], tuple[float, ...]] = getattr(detector, "season", tuple)
    return season()


def _check_owner(spec: object) -> None:
    """Refuse a setting that belongs to another detector, and name that detector."""
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
