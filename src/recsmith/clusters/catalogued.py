"""The catalogue: devices whose figures ship with RecSmith, each with its source, and what to say of other names."""

from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable

from recsmith.files import Raw, did_you_mean, parse

OWN_DEVICE = (
    "A device of your own goes into a YAML file of two lines or more: `schema: recsmith/cluster/1` and, for example, "
    "`device: {base: h100, name: mine, hbm_bytes: 60GiB}`"
)


def _folder() -> Traversable:
    return resources.files("recsmith.clusters") / "catalogue"


@cache
def _names() -> tuple[str, ...]:
    files = (entry.name for entry in _folder().iterdir())
    return tuple(sorted(name.removesuffix(".yaml") for name in files if name.endswith(".yaml")))


def catalogue() -> list[str]:
    """Names of the devices whose figures ship with RecSmith."""
    return list(_names())


def catalogue_raw(device: str) -> Raw:
    """Plain data of a catalogue file: one host of a device."""
    file = _folder() / f"{device}.yaml"
    return parse(file.read_text("utf-8"), file.name)


def unknown_device(name: str) -> str:
    """The end of an error about a name that is not in the catalogue: the nearest ones, and how to describe a device."""
    sizes = [known for known in catalogue() if known.startswith(f"{name}-")]
    if sizes:
        return f"; did you mean {' or '.join(sizes)}?"
    hint = did_you_mean(name, catalogue())
    return f"{hint}{' ' if hint.endswith('?') else '. '}{OWN_DEVICE}"
