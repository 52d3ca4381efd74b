"""Every key of every file as tables in Markdown, made from the JSON Schemas that `recsmith schema` prints."""

import json
import re
from typing import Any

from recsmith.reports.schemas import schema_of

Raw = dict[str, Any]


def keys_of(noun: str) -> str:
    """The tables of a file: its own keys, and those of the objects in it."""
    schema = schema_of(noun)
    formats = [each for each in schema.get("oneOf", []) if "format" in each.get("properties", {})]
    lines = [] if formats else _table(noun, schema)
    for each in formats:
        lines += _table(f"{noun} of format {each['properties']['format']['const']}", each)
    for name, each in sorted(schema.get("$defs", {}).items()):
        lines += _table(name, each) if "properties" in each else []
    return "\n".join(lines)


def _table(title: str, schema: Raw) -> list[str]:
    properties, needed = schema["properties"], schema.get("required", ())
    said = _meanings(schema.get("description", ""), list(properties))
    first = schema.get("description", "").split("\n\n")[0].replace("\n", " ")
    lines = [f"**{title}**{f': {_cell(first)}' if first else ''}", "", "| key | type | default | meaning |",
             "|---|---|---|---|"]  # fmt: skip
    for key, each in properties.items():
        default = "needed" if key in needed else f"`{json.dumps(each['default'])}`" if "default" in each else ""
        meaning = each.get("description") or said.get(key, "")
        lines.append(f"| `{key}` | {_cell(_type(each))} | {default} | {_cell(meaning)} |")
    return [*lines, ""]


def _type(schema: Raw) -> str:
    """What a value is, in a few words."""
    if "$ref" in schema:
        return schema["$ref"].rpartition("/")[2]
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return ", ".join(f"`{each}`" for each in schema["enum"])
    several = schema.get("anyOf") or schema.get("oneOf")
    if several:
        return " or ".join(dict.fromkeys(map(_type, several)))
    kind = schema.get("type", "any value")
    if kind == "array":
        inner = schema.get("items") or next(iter(schema.get("prefixItems", [])), None)
        return f"list of {_type(inner)}" if isinstance(inner, dict) and inner else "list"
    if isinstance(kind, list):
        return " or ".join(_type({**schema, "type": each}) for each in kind)
    return {"object": "mapping", "null": "null", "string": "text", "boolean": "true or false"}.get(kind, str(kind))


def _meanings(text: str, keys: list[str]) -> dict[str, str]:
    """What a docstring says of each key: `key: meaning`, or `key, key: meaning` of several."""
    names = "|".join(map(re.escape, keys))
    found: dict[str, str] = {}
    for paragraph in re.split(r"\n\s*\n", text):
        parts = re.split(rf"(?:^|(?<=[.);] ))((?:(?:{names})(?:, )?)+): ", " ".join(paragraph.split()))
        for several, meaning in zip(parts[1::2], parts[2::2], strict=True):
            found |= {key: meaning.strip() for key in several.split(", ") if key not in found}
    return found


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")
