"""Short forms of a cluster file, written out: sizes and speeds with units, and devices of the catalogue with changes.

    device: h100                                # the catalogue's figures, links and host
    device: {base: h100, hbm_bytes: 60GiB}      # the same, but for what is given
    links: {inter_host_bandwidth: 400Gbit/s}    # the other link is the catalogue's

They are for files that people write: a plan holds its cluster written out.
"""

from collections.abc import Callable
from typing import Any, cast

from recsmith.clusters.catalogued import catalogue, catalogue_raw, unknown_device
from recsmith.errors import CorruptFile, UsageError
from recsmith.files import Raw
from recsmith.units import parse_size, parse_speed

SIZES = ("hbm_bytes", "reserve_bytes", "ddr_bytes_per_host", "ssd_bytes_per_host")
DEVICE_SIZES = ("hbm_bytes", "l2_bytes")
DEVICE_SPEEDS = ("hbm_bandwidth", "host_link_bandwidth", "l2_bandwidth")
LINK_SPEEDS = ("intra_host_bandwidth", "inter_host_bandwidth")
PARTS = ("device", "links")  # of a cluster; a file may change single figures of each


def write_out(raw: Raw, source: str) -> Raw:
    """A file's plain data with numbers for quantities, and with all figures of a device of the catalogue.

    Raises:
        CorruptFile: a quantity has no unit that is known, or the catalogue has no such device.
    """
    plain = _numbers(raw, SIZES, parse_size, source, "")
    for part, sizes, speeds in (("device", DEVICE_SIZES, DEVICE_SPEEDS), ("links", (), LINK_SPEEDS)):
        if isinstance(plain.get(part), dict):
            inner = _numbers(cast(Raw, plain[part]), sizes, parse_size, source, f"{part}.")
            plain[part] = _numbers(inner, speeds, parse_speed, source, f"{part}.")
    return _with_base(plain, source)


def _numbers(raw: Raw, fields: tuple[str, ...], parse: Callable[[str], Any], source: str, place: str) -> Raw:
    return raw | {name: _number(raw[name], parse, source, place + name) for name in fields if name in raw}


def _number(value: Any, parse: Callable[[str], Any], source: str, place: str) -> Any:
    if isinstance(value, list):
        return [_number(each, parse, source, place) for each in cast(list[Any], value)]
    try:
        return parse(value) if isinstance(value, str) else value
    except UsageError as error:
        raise CorruptFile(f"'{source}': {place}: {error}, or a plain number") from None


def _with_base(raw: Raw, source: str) -> Raw:
    """The data over that of the catalogue's device which it names, if it names one."""
    device = raw.get("device")
    changes: Raw = dict(cast(Raw, device)) if isinstance(device, dict) else {}
    base = device if isinstance(device, str) else changes.pop("base", None)
    if base is None:
        return raw
    if not isinstance(base, str) or base.lower() not in catalogue():
        raise CorruptFile(f"'{source}': no device of the catalogue is called '{base}'{unknown_device(str(base))}")
    given, host = raw | {"device": changes}, catalogue_raw(base.lower())
    merged = host | given
    for part in PARTS:
        if isinstance(given.get(part), dict):
            merged[part] = host[part] | given[part]
    return merged | {"sources": raw.get("sources", [*host["sources"], *_own_figures(given)])}


def _own_figures(given: Raw) -> list[str]:
    """A source that says which figures the file gives, for these are not the catalogue's."""
    parts = {part: cast(Raw, given[part]) for part in PARTS if isinstance(given.get(part), dict)}
    names = [f"{part}.{name}" for part, figures in parts.items() for name in figures if name != "name"]
    names += [name for name in SIZES if name in given]
    return [f"given in the cluster file: {', '.join(names)}"] if names else []
