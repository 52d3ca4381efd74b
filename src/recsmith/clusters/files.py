"""Clusters by name (`h100:8x12`: 12 hosts of 8 devices) or from a YAML or JSON file, and the catalogue of devices.

Files that people write may use short forms; a plan stores its cluster in full:

    device: h100                                # figures, links and host from the catalogue
    device: {base: h100, hbm_bytes: 60GiB}      # the same, except for the given figures
    links: {inter_host_bandwidth: 400Gbit/s}    # the other link is from the catalogue
"""

import re
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any, cast

from recsmith import files
from recsmith.clusters.cluster import LARGEST_WORLD, Cluster
from recsmith.errors import CorruptFile, UsageError
from recsmith.files import Given, Raw, Source, built, decode, did_you_mean
from recsmith.units import parse_size, parse_speed

_NAME = re.compile(r"(?P<device>[a-z0-9-]+)(?::(?P<local>[0-9]{1,6})(?:x(?P<hosts>[0-9]{1,6}))?)?")
SIZES = ("hbm_bytes", "reserve_bytes", "ddr_bytes_per_host", "ssd_bytes_per_host")
DEVICE_SIZES = ("hbm_bytes", "l2_bytes")
DEVICE_SPEEDS = ("hbm_bandwidth", "host_link_bandwidth", "l2_bandwidth")
LINK_SPEEDS = ("intra_host_bandwidth", "inter_host_bandwidth")
DISK_SPEEDS = ("bandwidth",)
LARGEST_HOST = 16  # devices; most that a host sold without a rack of links has
PARTS = ("device", "links", "disk")  # parts of a cluster of which a file may change single figures
OWN_DEVICE = (
    "A device of your own goes into a YAML file of two lines or more: `schema: recsmith/cluster/1` and, for example, "
    "`device: {base: h100, name: mine, hbm_bytes: 60GiB}`"
)
SCHEMA = "recsmith/cluster/1"
_SIZE: Raw = {"type": "string", "pattern": "^ *[0-9.]+ *[A-Za-z]+ *$", "description": "a size such as 60GiB"}
_SPEED: Raw = {"type": "string", "pattern": "^ *[0-9.]+ *[A-Za-z]+/s *$", "description": "450GB/s, or 400Gbit/s"}


@cache
def _catalogue_cluster(device: str) -> Cluster:
    return built(Cluster, files.check_schema(catalogue_raw(device), SCHEMA, f"{device}.yaml"))


def load_cluster(source: Cluster | Source) -> Cluster:
    """The cluster of a catalogue name `<device>:<per host>[x<hosts>]`, or of a YAML or JSON file ('-' is stdin).

    A Cluster is returned as it is. Files may use short forms. The case of names does not matter: `H100:8` is `h100:8`.
    If neither memory nor reserve is given, planning estimates the reserve.

    Raises:
        UsageError: the name is unknown, or the file cannot be read.
        CorruptFile: the file is not a cluster.
    """
    if isinstance(source, Cluster):
        return source
    source = files.source_text(source, "a Cluster")
    named = None if isinstance(source, Given) else named_cluster(source)
    if named is not None:
        return named
    try:
        text = files.read_text(source)
    except CorruptFile:
        raise
    except UsageError as error:
        device = source.partition(":")[0].lower().strip()
        if device in catalogue():
            raise UsageError(
                f"'{source}' is neither a file nor a number of devices; write {device}:8 for a host of 8, or "
                f"{device}:8x2 for two of them, {LARGEST_WORLD:,} devices at most"
            ) from None
        raise UsageError(f"{error}, or a device{unknown_device(source.lower())}") from None
    raw = write_out(files.parse(text, source), source)
    return cluster_from_raw({"reserve_bytes": None} | raw, source)


def named_cluster(name: str) -> Cluster | None:
    """The cluster of a catalogue name such as h100:8x12; None for a text of another form, such as a path.

    Raises:
        UsageError: the catalogue has no device of this name.
    """
    match = _NAME.fullmatch(name.lower())
    if not match or not (match["local"] or match["device"] in catalogue()):
        return None
    if match["device"] not in catalogue():
        raise UsageError(f"no device is called '{match['device']}'{unknown_device(match['device'])}")
    cluster = _catalogue_cluster(match["device"])
    local = int(match["local"]) if match["local"] else cluster.local_world_size
    mesh = cluster.links.mesh_devices
    if mesh is not None and local > mesh:
        raise UsageError(f"'{name}' has hosts of {local} devices, and their links join {mesh}; ask for {mesh} or fewer")
    return replace(cluster, local_world_size=local, hosts=int(match["hosts"] or 1), reserve_bytes=None)


def large_host(name: str) -> str | None:
    """A note on a name whose hosts are unusually large, such as h100:64 meant as eight hosts; None for other names."""
    cluster = named_cluster(name)
    if cluster is None:
        return None
    device = name.lower().partition(":")[0]
    local, usual = cluster.local_world_size, _catalogue_cluster(device).local_world_size
    if local <= max(usual, LARGEST_HOST) or usual == 1:
        return None
    hosts = -(-cluster.world_size // usual)
    return (
        f"{name} has hosts of {local} devices, which are all priced by links within a host; hosts of {device} have "
        f"{usual} in the catalogue: for {hosts} of them write {device}:{usual}x{hosts}"
    )


def cluster_from_raw(raw: Raw, source: str) -> Cluster:
    """A cluster from plain data of schema recsmith/cluster/1."""
    return decode(Cluster, files.check_schema(raw, SCHEMA, source), source)


def cluster_to_raw(cluster: Cluster) -> Raw:
    """Plain data of a cluster, as stored in a file."""
    return {"schema": SCHEMA, **files.encode(cluster)}


# --- short forms -----------------------------------------------------------------------------------------------------


def write_out(raw: Raw, source: str) -> Raw:
    """A file's plain data with quantities as numbers, and with all figures of a device from the catalogue.

    Raises:
        CorruptFile: a quantity has no known unit, or the catalogue has no such device.
    """
    plain = _numbers(raw, SIZES, parse_size, source, "")
    for part, sizes, speeds in (
        ("device", DEVICE_SIZES, DEVICE_SPEEDS), ("links", (), LINK_SPEEDS), ("disk", ("access_bytes",), DISK_SPEEDS)
    ):  # fmt: skip
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
    """The data merged over that of the catalogue device that it names, or the data itself if it names none."""
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
            merged[part] = host.get(part, {}) | given[part]
    return merged | {"sources": raw.get("sources", [*host["sources"], *_own_figures(given)])}


def _own_figures(given: Raw) -> list[str]:
    """A source entry that lists the figures given by the file, which are not the catalogue's."""
    parts = {part: cast(Raw, given[part]) for part in PARTS if isinstance(given.get(part), dict)}
    names = [f"{part}.{name}" for part, figures in parts.items() for name in figures if name != "name"]
    names += [name for name in SIZES if name in given]
    return [f"given in the cluster file: {', '.join(names)}"] if names else []


# --- the catalogue ---------------------------------------------------------------------------------------------------


def _folder() -> Traversable:
    return resources.files("recsmith.clusters") / "catalogue"


@cache
def _names() -> tuple[str, ...]:
    files = (entry.name for entry in _folder().iterdir())
    return tuple(sorted(name.removesuffix(".yaml") for name in files if name.endswith(".yaml")))


def catalogue() -> list[str]:
    """Names of the devices whose figures are shipped with RecSmith."""
    return list(_names())


def catalogue_raw(device: str) -> Raw:
    """Plain data of a catalogue file: one host of a device."""
    file = _folder() / f"{device}.yaml"
    return files.parse(file.read_text("utf-8"), file.name)


def unknown_device(name: str) -> str:
    """The end of an error about a name missing from the catalogue: the nearest names, or how to describe a device."""
    sizes = [known for known in catalogue() if known.startswith(f"{name}-")]
    if sizes:
        return f"; did you mean {' or '.join(sizes)}?"
    hint = did_you_mean(name, catalogue())
    return f"{hint}{' ' if hint.endswith('?') else '. '}{OWN_DEVICE}"


# --- the schema ------------------------------------------------------------------------------------------------------


def plain_cluster_schema() -> Raw:
    """JSON Schema of a cluster with all figures, as stored in plans."""
    schema = files.json_schema(Cluster)
    schema["properties"] = {"schema": {"const": SCHEMA}, **schema["properties"]}
    schema["required"] = ["schema", *schema["required"]]
    return schema


def cluster_schema() -> Raw:
    """JSON Schema of a cluster file: numbers or quantities with units, and catalogue devices with changes."""
    schema = plain_cluster_schema()
    parts, properties = schema["$defs"], schema["properties"]
    _allow(properties, SIZES, _SIZE)
    _allow(parts["Device"]["properties"], DEVICE_SIZES, _SIZE)
    _allow(parts["Device"]["properties"], DEVICE_SPEEDS, _SPEED)
    _allow(parts["Links"]["properties"], LINK_SPEEDS, _SPEED)
    _allow(parts["Disk"]["properties"], ("access_bytes",), _SIZE)
    _allow(parts["Disk"]["properties"], DISK_SPEEDS, _SPEED)
    base = {"type": "string", "description": "a device of the catalogue (recsmith devices)"}
    parts["DeviceChanges"] = _changes(parts["Device"], {"base": base}, ["base"])
    parts["LinksChanges"] = _changes(parts["Links"], {}, [])
    written_out = {name: properties[name] for name in ("device", "links")}
    properties |= {"device": {}, "links": {}}
    by_name = {"anyOf": [base, {"$ref": "#/$defs/DeviceChanges"}]}
    schema["oneOf"] = [
        {"properties": written_out, "required": schema["required"]},
        {"properties": {"device": by_name, "links": {"$ref": "#/$defs/LinksChanges"}}},
    ]
    return schema | {"required": ["schema", "device"]}


def _allow(properties: Raw, names: tuple[str, ...], text: Raw) -> None:
    """Let these fields also be texts of the given form, alone or in a list."""
    for name in names:
        field = properties[name]
        choices: list[Any] = field.pop("anyOf", None) or [{"type": field.pop("type")}]
        for choice in choices:
            if choice.get("type") == "array":
                choice["items"] = {"anyOf": [choice["items"], text]}
        properties[name] = {"anyOf": [*choices, text], **field}


def _changes(part: Raw, more: Raw, required: list[str]) -> Raw:
    """The same object with additional fields, and with only the given ones required."""
    changed = deepcopy(part)
    changed["properties"] |= more
    return changed | {"required": required}
