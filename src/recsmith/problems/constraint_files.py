"""Constraints in the form of files and plans, and pins to the placements of a plan."""

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from recsmith._types import noun
from recsmith.errors import CorruptFile, UsageError
from recsmith.files import Given, Raw, Source, decode, encode, is_address, path_of, read_raw, source_text
from recsmith.files.parsing import exact_line
from recsmith.files.texts import HERE
from recsmith.plans import Plan, load_plan
from recsmith.problems.constraints import Apart, Constraints, Part, PerRank, Together
from recsmith.problems.space import Pin, Space, TableRule
from recsmith.workloads.patterns import fits

CONSTRAINTS_SCHEMA = "recsmith/constraints/1"
SPACE_FIELDS = ("types", "widths", "kernels", "cache_factors", "cache_policy")


@noun
class PinTo:
    """Tables that must keep their placement in a plan. plan: its file, relative to the constraints file's folder.

    tables: names or patterns; but: those of them that are planned anew. Tables that only one side has are ignored.
    """

    plan: str
    tables: tuple[str, ...] = ("*",)
    but: tuple[str, ...] = ()


@noun
class ConstraintsFile:
    """The contents of a constraints file."""

    rules: tuple[TableRule, ...] = ()
    pin_to: tuple[PinTo, ...] = ()
    together: tuple[Together, ...] = ()
    apart: tuple[Apart, ...] = ()
    per_rank: tuple[PerRank, ...] = ()


def constraints_to_raw(space: Space, constraints: Constraints) -> Raw:
    """Plain data of a space and constraints, as stored in a plan: without short forms."""
    raw: Raw = {"types": list(space.types), "widths": space.widths, "kernels": list(space.kernels)}
    if space.has_caches:
        raw["cache_factors"] = list(space.cache_factors)
    if space.cache_policy != "lru":
        raw["cache_policy"] = space.cache_policy
    raw["memory"] = constraints.memory
    if constraints.keep_exact:
        raw["keep_exact"] = True
    if present := [name for name in ("rules", "together", "apart", "per_rank", "stash") if getattr(constraints, name)]:
        encoded = encode(replace(constraints, source=""))
        raw.update({name: encoded[name] for name in present if name in encoded})
    if isinstance(time := raw.get("stash", {}).get("dense_s"), float) and time.is_integer():
        raw["stash"]["dense_s"] = int(time)  # as read from JSON files, from which the digest is made
    return raw


def constraints_from_raw(raw: Raw, source: str) -> tuple[Space, Constraints]:
    """The space and constraints under which a plan was made."""
    space = {key: raw[key] for key in SPACE_FIELDS if key in raw}
    rest = {key: value for key, value in raw.items() if key not in space}
    return decode(Space, space, source), replace(decode(Constraints, rest, source), source="")


def load_constraints(source: Constraints | Source) -> Constraints:
    """The constraints of a YAML or JSON file of schema recsmith/constraints/1 ('-' is stdin); docs/constraints.md.

    Constraints are returned as they are. Plans to which the file pins tables are read, and become rules.

    Raises:
        UsageError: the file cannot be read; CorruptFile if it, or a plan that it names, has another content.
    """
    if isinstance(source, Constraints):
        return source
    source = source_text(source, "Constraints")
    raw = read_raw(source, CONSTRAINTS_SCHEMA)
    if not raw:
        raise CorruptFile(f"'{source}' holds no constraint; add rules, pin_to, together, apart or per_rank")
    read = decode(ConstraintsFile, _written_out(raw), source)
    pins = _pins_to(read.pin_to, source)
    return Constraints(
        rules=(*read.rules, *pins), together=read.together, apart=read.apart, per_rank=read.per_rank, source=source
    )


def _written_out(raw: Raw) -> Raw:
    """A constraints file with its short forms expanded: `pin_to: old.json`, `together: [[a, b]]`."""
    made = dict(raw)
    if isinstance(raw.get("pin_to"), str):
        made["pin_to"] = [{"plan": raw["pin_to"]}]
    for name in ("together", "apart"):
        if isinstance(raw.get(name), list):
            listed = cast(list[Any], raw[name])
            made[name] = [{"tables": each} if isinstance(each, list) else each for each in listed]
    return made


def _pins_to(wanted: tuple[PinTo, ...], source: str) -> list[TableRule]:
    """The rules for all pins to plans; each plan is read once, and duplicates count once."""
    plans: dict[str, Plan] = {}
    found: list[TableRule] = []
    for each in dict.fromkeys(wanted):
        if each.plan not in plans:
            plans[each.plan] = load_plan(_pinned_path(each.plan, source))
        found += pins_of(plans[each.plan], tables=each.tables, but=each.but)
    return found


def _pinned_path(plan: str, source: str) -> str:
    if isinstance(source, Given):
        raise CorruptFile(f"'{source}' pins to the file '{plan}', which did not come with it; write the pins out")
    as_it_is = source == "-" or is_address(plan) or plan.startswith(HERE)
    return plan if as_it_is or Path(plan).is_absolute() else str(path_of(source).parent / plan)


def pins_of(
    plan: Plan | Source, *, tables: tuple[str, ...] = ("*",), but: tuple[str, ...] = ()
) -> tuple[TableRule, ...]:
    """Rules that keep tables as a plan places them; tables that match no pattern, or one of `but`, are left free.

    A rule for a table that a workload no longer has is ignored there.

    Raises:
        UsageError: the plan cannot be read, or a pattern matches none of its tables.
    """
    old = load_plan(plan)
    names = [placement.table for placement in old.placements]
    for pattern in (*tables, *but):
        if not any(fits(pattern, name) for name in names):
            raise UsageError(f"pattern '{pattern}' matches no table of the plan that tables are pinned to")
    return tuple(
        TableRule(tables=placement.table, pin=Pin.of(placement), optional=True)
        for placement in old.placements
        if _matches(placement.table, tables) and not _matches(placement.table, but)
    )


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fits(pattern, name) for pattern in patterns)


def line_of(constraints: Constraints, part: Part) -> int | None:
    """The line of a constraint in its file; None if it has none, as for pins to a plan."""
    return exact_line(constraints.source, part) if constraints.source not in ("", "-") else None
