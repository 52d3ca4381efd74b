"""Pydantic's validators of nouns: the plain one, one for large files, and one that finds every broken rule."""

from collections.abc import Callable
from functools import cache
from typing import Any, cast

from recsmith.errors import UsageError
from recsmith.files.parsing import Raw

BROKEN_RULE = "broken_rule"  # type of the errors that stand for a UsageError


@cache
def adapter(noun: Any) -> Any:
    """Pydantic's own: it collects every wrong field, and the first UsageError of a noun ends it."""
    from pydantic import TypeAdapter

    return TypeAdapter(noun)


@cache
def brief_validator(noun: Any) -> Any:
    """A validator that stops at the first wrong item of every list: each error takes a kilobyte until all are known."""
    from pydantic_core import SchemaValidator

    return SchemaValidator(_changed(adapter(noun).core_schema, _stopping_early))


@cache
def rules_validator(noun: Any, *, brief: bool) -> Any:
    """A validator that collects the rules which nouns refuse by UsageError, beside wrong fields.

    It is slower than the others, since it asks Python around every noun. brief: it stops as `brief_validator` does.
    """
    from pydantic_core import SchemaValidator

    schema = _changed(adapter(noun).core_schema, _collecting_rules)
    return SchemaValidator(_changed(schema, _stopping_early) if brief else schema)


def _changed(schema: Any, change: Callable[[Raw], Raw]) -> Any:
    """A core schema of pydantic with every part of it changed, inner ones first; default values are no parts."""
    if isinstance(schema, list | tuple):
        return [_changed(each, change) for each in cast(list[Any], schema)]
    if not isinstance(schema, dict):
        return schema
    parts = cast(Raw, schema).items()
    return change({key: value if key == "default" else _changed(value, change) for key, value in parts})


def _stopping_early(part: Raw) -> Raw:
    return part | {"fail_fast": True} if part.get("type") in ("list", "tuple") else part


def _collecting_rules(part: Raw) -> Raw:
    """A noun's schema that checks its rules after it; others refer to the whole by the noun's name."""
    if not part.get("post_init"):
        return part
    inner = {key: value for key, value in part.items() if key not in ("ref", "post_init")}
    named = {"ref": part["ref"]} if "ref" in part else {}
    function = {"type": "no-info", "function": _check_rules}
    return {"type": "function-after", "function": function, "schema": inner, **named}


def _check_rules(made: Any) -> Any:
    """The noun, if it keeps its rules; broken ones become errors of pydantic, which collects them like wrong fields.

    A rule's first word is the field that it speaks of, if it is one: the line of an error is looked for there.
    """
    from pydantic_core import InitErrorDetails, PydanticCustomError, ValidationError

    try:
        made.__post_init__()
    except UsageError as error:
        details = [
            InitErrorDetails(
                type=PydanticCustomError(BROKEN_RULE, "{rule}", {"rule": rule}),
                loc=tuple(rule.partition(" ")[0].rstrip(":").split(".")),  # most begin with their field
                input=None,
            )
            for rule in error.rules
        ]
        raise ValidationError.from_exception_data("rules", details) from None
    return made
