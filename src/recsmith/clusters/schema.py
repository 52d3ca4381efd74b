"""JSON Schema of a cluster: as files that people write hold it, with short forms, and as plans do."""

from copy import deepcopy
from typing import Any

from recsmith.clusters.cluster import Cluster
from recsmith.clusters.short_forms import DEVICE_SIZES, DEVICE_SPEEDS, LINK_SPEEDS, SIZES
from recsmith.files import Raw, json_schema

SCHEMA = "recsmith/cluster/1"
_SIZE: Raw = {"type": "string", "pattern": "^ *[0-9.]+ *[A-Za-z]+ *$", "description": "a size such as 60GiB"}
_SPEED: Raw = {"type": "string", "pattern": "^ *[0-9.]+ *[A-Za-z]+/s *$", "description": "450GB/s, or 400Gbit/s"}


def plain_cluster_schema() -> Raw:
    """JSON Schema of a cluster that is written out, as plans hold it."""
    schema = json_schema(Cluster)
    schema["properties"] = {"schema": {"const": SCHEMA}, **schema["properties"]}
    schema["required"] = ["schema", *schema["required"]]
    return schema


def cluster_schema() -> Raw:
    """JSON Schema of a cluster file: numbers or quantities with units, and devices of the catalogue with changes."""
    schema = plain_cluster_schema()
    parts, properties = schema["$defs"], schema["properties"]
    _allow(properties, SIZES, _SIZE)
    _allow(parts["Device"]["properties"], DEVICE_SIZES, _SIZE)
    _allow(parts["Device"]["properties"], DEVICE_SPEEDS, _SPEED)
    _allow(parts["Links"]["properties"], LINK_SPEEDS, _SPEED)
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
    """Let these fields be texts of that form too, alone or in a list."""
    for name in names:
        field = properties[name]
        choices: list[Any] = field.pop("anyOf", None) or [{"type": field.pop("type")}]
        for choice in choices:
            if choice.get("type") == "array":
                choice["items"] = {"anyOf": [choice["items"], text]}
        properties[name] = {"anyOf": [*choices, text], **field}


def _changes(part: Raw, more: Raw, required: list[str]) -> Raw:
    """The same object with these fields besides, and no others required."""
    changed = deepcopy(part)
    changed["properties"] |= more
    return changed | {"required": required}
