"""Checks that a run with raw ids can continue a checkpoint, or begin with another run's weights; without torch."""

from collections.abc import Sequence
from typing import Any

from recsmith.errors import UsageError
from recsmith.training.systems.dynamic.settings import KEY, DynamicRule, rule_of


def check_same_rules(before: Any, now: Any) -> None:
    """Raise UsageError if rules of raw ids, or rows of their tables, differ between the checkpoint and the run."""
    there, here = {rule.tables: rule for rule in before.dynamic}, {rule.tables: rule for rule in now.dynamic}
    for name in sorted({*there, *here}):
        old, new = there.get(name), here.get(name)
        if old is None or new is None:
            raise UsageError(
                f"{KEY}: '{name}' has {_raw(old)} in the checkpoint, and {_raw(new)} in the run; {_ADVICE}"
            )
        if old.dynamic != new.dynamic:
            raise UsageError(
                f"{KEY}: the checkpoint gave rows of '{name}' by {old.said()}, and the run says {new.said()}; {_ADVICE}"
            )
        if old.rows != new.rows:
            raise UsageError(_other_rows(name, old, new))


def check_begins(before: Any, model: Any, tables: Sequence[str], path: str) -> list[str]:
    """Lines on raw ids that are taken over; UsageError if a table has raw ids in only one of the two runs."""
    lines: list[str] = []
    for table in tables:
        old, new = rule_of(before, table), rule_of(model, table)
        if (old is None) != (new is None):
            raise UsageError(
                f"{KEY}: table '{table}' has {_raw(old)} in '{path}', and {_raw(new)} in the run, so its rows cannot "
                "come along; have the same in both, or give the table another name, under which it is drawn anew"
            )
        if old is not None and new is not None:
            other = "" if old.dynamic == new.dynamic else f", by {new.said()} from now on ({old.said()} before)"
            lines.append(f"raw ids of table {table} come along with what they learned{other}")
    return lines


def _raw(rule: DynamicRule | None) -> str:
    return "no raw ids" if rule is None else "raw ids"


def _other_rows(name: str, old: DynamicRule, new: DynamicRule) -> str:
    than = "fewer" if (new.rows or 0) < (old.rows or 0) else "more"
    return (
        f"{KEY}: '{name}' has {new.rows or 'no'} rows in the run, {than} than the {old.rows or 'unsaid'} of the "
        f"checkpoint, whose ids would lose theirs; {_ADVICE}"
    )


_ADVICE = "go on as the checkpoint was trained, or give another output and begin with its weights (start_from)"
