"""The settings of all components that a run can name, with defaults and meanings from signatures and docstrings.

Docstrings of components describe settings as nouns describe fields: `name: meaning`. A component whose settings
include those of nouns lists them in `described_by`. If a noun has all its settings, that is `settings_noun`, which is
None for a component that a file never names.

    python -m recsmith.reports.component_settings  # writes components.json, which `recsmith schema run` reads

Classes are read only to write that file, since most of them import PyTorch and TorchRec.
"""

import inspect
import json
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, cast, get_type_hints

from recsmith._components import find, known
from recsmith.errors import UsageError
from recsmith.files import Raw, dump_json, json_schema
from recsmith.reports.docstrings import meanings, said_of
from recsmith.training.collectives import KIND as COLLECTIVES
from recsmith.training.losses import KIND as LOSSES
from recsmith.training.models import MODEL
from recsmith.training.optimizers import KIND as OPTIMIZERS
from recsmith.training.seams import ROWS, STEP, TABLES, WATCHER, systems

# Key of a run -> the kind of its components, and the number of arguments that are passed before their settings.
KINDS: Mapping[str, tuple[str, int]] = {
    "pipeline": (STEP, 1), "rows": (ROWS, 2), "comms": (COLLECTIVES, 0), "watchers": (WATCHER, 0),
    "model.table_module": (TABLES, 3), "model.arguments": (MODEL, 0), "optimizers.dense": (OPTIMIZERS, 2),
    "model.tasks.loss": (LOSSES, 2),
    **{key: kind for each in systems() for key, kind in each.components.items()},
}  # fmt: skip

FILE = Path(__file__).with_name("components.json")


@dataclass(frozen=True)
class Setting:
    """A setting of a component. schema: JSON Schema of its values. default: MISSING if the setting is required."""

    name: str
    schema: Raw
    default: Any
    meaning: str


def components() -> Iterator[tuple[str, str, tuple[Setting, ...]]]:
    """(key of the run, name, settings) of each component that a run file can name and that can be imported here.

    Components that need packages which are not installed are omitted; so are those that only code can construct.
    """
    for key, (kind, given) in KINDS.items():
        for name in known(kind):
            try:
                found = settings_of(find(kind, name), given)
            except UsageError:  # a package that it needs is not installed
                continue
            if found is not None:
                yield key, name, found


def settings_of(target: Any, given: int) -> tuple[Setting, ...] | None:
    """The settings of a class, function or noun; None if a required one cannot be written in a file."""
    target = getattr(target, "settings_noun", target)
    if target is None:
        return None
    named = dict(_parameters(target, given))
    said = said_of(target.__doc__ or "", list(named))
    for noun in getattr(target, "described_by", ()):
        said |= meanings(noun)
    made: list[Setting] = []
    for name, (hint, default) in named.items():
        try:
            schema = json_schema(hint)
        except Exception:  # pydantic raises various errors for types that a file cannot hold
            if default is MISSING:
                return None
            continue
        made.append(Setting(name, schema, default, said.get(name, "")))
    return tuple(made)


def _parameters(target: Any, given: int) -> Iterator[tuple[str, tuple[Any, Any]]]:
    """(name, (type, default)) of each setting."""
    if is_dataclass(target):
        hints = get_type_hints(target)
        for each in fields(target):
            made = each.default if each.default_factory is MISSING else each.default_factory()
            yield each.name, (hints[each.name], made)
        return
    hints = get_type_hints(target.__init__ if isinstance(target, type) else target)
    for each in list(inspect.signature(target).parameters.values())[given:]:
        if each.kind is each.VAR_KEYWORD:
            for noun in getattr(target, "described_by", ()):
                yield from _parameters(noun, 0)
        elif each.kind is not each.VAR_POSITIONAL:
            yield each.name, (hints.get(each.name, Any), MISSING if each.default is each.empty else each.default)


def component_schemas() -> Raw:
    """The JSON Schema of each component with its settings, by key of the run and name."""
    made: Raw = {}
    for key, name, settings in components():
        properties = {each.name: {**each.schema, "description": each.meaning} for each in settings}
        needed = [each.name for each in settings if each.default is MISSING]
        made.setdefault(key, {})[name] = {
            "type": "object", "additionalProperties": False,
            "properties": {"name": {"const": name}, **properties}, "required": ["name", *needed],
        }  # fmt: skip
    return made


def shipped_schemas() -> Raw:
    """The schemas of all components from components.json: quickly, and without PyTorch."""
    return cast(Raw, json.loads(FILE.read_text("utf-8")))


def component_tables() -> str:
    """The settings of all components as Markdown tables, one for each key of a run."""
    lines: list[str] = []
    before = ""
    for key, name, settings in components():
        if key != before:
            lines += ["", f"**{key}**", "", "| component | setting | default | meaning |", "|---|---|---|---|"]
        before = key
        if not settings:
            lines.append(f"| `{name}` | | | has no settings |")
        for number, each in enumerate(settings):
            first, said = f"`{name}`" if number == 0 else "", each.meaning.replace("|", "\\|")
            lines.append(f"| {first} | `{each.name}` | {_default(each.default)} | {said} |")
    return "\n".join(lines[1:])


def _default(value: Any) -> str:
    if value is MISSING:
        return "needed"
    if value is None or value in ((), {}, []):
        return "none"
    return f"`{json.dumps(value, default=str).strip(chr(34))}`"


if __name__ == "__main__":
    FILE.write_text(dump_json(component_schemas()), "utf-8")
