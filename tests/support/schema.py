"""As much of JSON Schema as RecSmith's schemas use: enough to hold real files against them."""

import re
from functools import reduce
from operator import getitem
from typing import Any

TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "boolean": bool,
    "null": type(None),
}  # fmt: skip
KNOWN = {
    "$defs", "$ref", "additionalProperties", "anyOf", "const", "default", "description", "enum", "items", "maxItems",
    "minItems", "oneOf", "pattern", "prefixItems", "properties", "required", "title", "type",
}  # fmt: skip


def problems(value: Any, schema: dict[str, Any], root: dict[str, Any] | None = None, place: str = "") -> list[str]:
    """What is wrong with a value under a schema; [] where it is valid."""
    root = root or schema
    assert set(schema) <= KNOWN, f"{place}: this validator does not know {set(schema) - KNOWN}"
    if "$ref" in schema:
        names = schema["$ref"].removeprefix("#/").split("/")
        return problems(value, reduce(getitem, names, root), root, place)
    found = [*_type(value, schema, place), *_object(value, schema, root, place), *_array(value, schema, root, place)]
    if "const" in schema and value != schema["const"]:
        found.append(f"{place} is not {schema['const']!r}")
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{place} is none of {schema['enum']!r}")
    if "pattern" in schema and isinstance(value, str) and not re.search(schema["pattern"], value):
        found.append(f"{place} does not match {schema['pattern']}")
    for word in ("anyOf", "oneOf"):
        fitting = sum(not problems(value, each, root, place) for each in schema.get(word, ()))
        if word in schema and (fitting == 0 or (word == "oneOf" and fitting > 1)):
            found.append(f"{place} fits {fitting} of {word}")
    return found


def _type(value: Any, schema: dict[str, Any], place: str) -> list[str]:
    names = schema.get("type", [])
    names = [names] if isinstance(names, str) else names
    fits = any(isinstance(value, TYPES[name]) and isinstance(value, bool) <= (name == "boolean") for name in names)
    return [] if not names or fits else [f"{place} is no {' or '.join(names)}"]


def _object(value: Any, schema: dict[str, Any], root: dict[str, Any], place: str) -> list[str]:
    if not isinstance(value, dict):
        return []
    fields = schema.get("properties", {})
    found = [f"{place}.{name} is missing" for name in schema.get("required", ()) if name not in value]
    for name, inner in value.items():
        if name in fields:
            found += problems(inner, fields[name], root, f"{place}.{name}")
        elif schema.get("additionalProperties") is False:
            found.append(f"{place}.{name} is unknown")
    return found


def _array(value: Any, schema: dict[str, Any], root: dict[str, Any], place: str) -> list[str]:
    if not isinstance(value, list):
        return []
    fixed = schema.get("prefixItems", [])
    found = (
        [] if schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)) else [f"{place}: length"]
    )
    for i, inner in enumerate(value):
        rule = fixed[i] if i < len(fixed) else schema.get("items", {})
        found += problems(inner, rule, root, f"{place}[{i}]")
    return found
