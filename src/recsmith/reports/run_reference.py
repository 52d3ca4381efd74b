"""Every key of a run file with its default and meaning, from the nouns and their docstrings.

`recsmith schema run` prints them as JSON Schema, and docs/reference/run.md as tables.
"""

import json
import re
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, get_args, get_type_hints

from recsmith.files import Raw, encode, json_schema
from recsmith.files.parsing import EXTENDS
from recsmith.reports.component_settings import KINDS, shipped_schemas
from recsmith.reports.docstrings import meanings
from recsmith.training.run import SCHEMA, Run


def run_schema() -> Raw:
    """The JSON Schema of a run file; each key has its default and meaning."""
    made = json_schema(Run)
    for noun, path in nouns().items():
        found = made if noun is Run else made["$defs"][noun.__name__]
        for name, meaning in _said(noun, path).items():
            found["properties"][name]["description"] = meaning
    first_key = {"schema": {"const": SCHEMA}}
    made["$defs"]["components"] = found = shipped_schemas()
    for key, named in found.items():
        _name_components(made, key, list(named))
    base = {EXTENDS: {"type": "string", "description": "a run file, from the folder of this one, that says the rest."}}
    whole = [{"required": made.pop("required")}, {"required": [EXTENDS]}]
    return {**made, "properties": {**first_key, **base, **made["properties"]}, "required": ["schema"], "anyOf": whole}


def _name_components(schema: Raw, key: str, names: list[str]) -> None:
    """Let a key of the run accept the settings of its components, if its schema allows any mapping.

    A class of the user's has settings of its own.
    """
    if key not in KINDS or key in ("model.arguments", "optimizers.dense"):
        return  # a key of a missing system, or one whose settings are under another key than the component's name
    place = schema
    for part in key.split("."):
        refs = (each.get("$ref", "") for each in (place, place.get("items", {}), *place.get("anyOf", ())))
        inner = next((schema["$defs"][each.rpartition("/")[2]] for each in refs if each), place)
        place = inner["properties"][part]
    place = place.get("items", place)
    mine = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string", "pattern": ":"}}}
    place["anyOf"] = [
        *(each for each in place["anyOf"] if each.get("type") != "object"),
        *({"$ref": f"#/$defs/components/{key}/{name}"} for name in names), mine,
    ]  # fmt: skip


def run_tables() -> str:
    """The keys of a run file as Markdown tables, one for each group of keys."""
    lines: list[str] = []
    for noun, path in nouns().items():
        lines += [f"**{path or 'Of a run'}**: {_summary(noun)}", "", "| key | default | meaning |", "|---|---|---|"]
        said = _said(noun, path)
        lines += [f"| `{each.name}` | {_default(each)} | {_cell(said[each.name])} |" for each in fields(noun)]
        lines.append("")
    return "\n".join(lines)


def _said(noun: Any, path: str) -> dict[str, str]:
    """The meaning of each key of a noun, with the components that it can name. path: the keys that lead to the noun."""
    said = meanings(noun)
    for key, named in shipped_schemas().items():
        before, _, name = key.rpartition(".")
        if before == path.replace("[]", "") and name in said and key in KINDS:
            said[name] += f" Components: {', '.join(named)}."
    return said


def nouns(noun: Any = Run, path: str = "") -> dict[Any, str]:
    """A noun and all nouns inside it, each with the keys that lead to it."""
    found = {noun: path}
    for name, hint in get_type_hints(noun).items():
        for inner, many in _inner(hint):
            here = f"{path}.{name}" if path else name
            found |= {each: place for each, place in nouns(inner, here + many).items() if each not in found}
    return found


def _inner(hint: Any) -> list[tuple[Any, str]]:
    """The nouns in a type, each with '[]' if the type holds several of them."""
    if is_dataclass(hint):
        return [(hint, "")]
    many = "[]" if getattr(hint, "__origin__", None) is tuple else ""
    return [(noun, many + deeper) for part in get_args(hint) for noun, deeper in _inner(part)]


def _summary(noun: Any) -> str:
    """The text of a docstring before its first `name: meaning`."""
    text = " ".join((noun.__doc__ or "").split("\n\n")[0].split())
    first = next(iter(meanings(noun)), "")
    return re.split(rf" (?:[a-z_]+, )*{first}(?:, [a-z_]+)*: ", text)[0] if first else text


def _default(field: Field[Any]) -> str:
    if field.default is MISSING:
        return "needed" if field.default_factory is MISSING else "none"
    value = encode(field.default) if is_dataclass(field.default) else field.default
    if isinstance(value, dict):
        return "its own"
    return "none" if value is None else f"`{json.dumps(value).strip(chr(34))}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
