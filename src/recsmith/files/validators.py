"""Pydantic validators of nouns: the standard one, one for large files, and one that finds all broken rules."""

from collections.abc import Callable
from functools import cache
from typing import Any, cast

from recsmith.errors import UsageError
from recsmith.files.parsing import Raw

BROKEN_RULE = "broken_rule"  # type of pydantic errors that represent a UsageError


@cache
def adapter(noun: Any) -> Any:
    """Pydantic's standard validator: it collects all wrong fields, but stops at the first UsageError of a noun."""
    from pydantic import TypeAdapter

    return TypeAdapter(noun)


@cache
def brief_validator(noun: Any) -> Any:
    """A validator that stops at the first wrong item of every list, because every error takes a kilobyte of memory."""
    from pydantic_core import SchemaValidator

    return SchemaValidator(_changed(adapter(noun).core_schema, _stopping_early))


@cache
def rules_validator(noun: Any, *, brief: bool) -> Any:
    """A validator that collects broken rules (UsageError of nouns) in addition to wrong fields.

    It is slower than the others, because it calls Python for every noun. brief: stop as `brief_validator` does.
    """
    from pydantic_core import SchemaValidator

    schema = _changed(adapter(noun).core_schema, _collecting_rules)
    return SchemaValidator(_changed(schema, _stopping_early) if brief else schema)


def _changed(schema: Any, change: Callable[[Raw], Raw]) -> Any:
    """A core schema of pydantic with `change` applied to every part, inner parts first, except default values."""
    if isinstance(schema, list | tuple):
        return [_changed(each, change) for each in cast(list[Any], schema)]
    if not isinstance(schema, dict):
        return schema
    parts = cast(Raw, schema).items()
    return change({key: value if key == "default" else _changed(value, change) for key, value in parts})


def _stopping_early(part: Raw) -> Raw:
    return part | {"fail_fast": True} if part.get("type") in ("list", "tuple") else part


def _collecting_rules(part: Raw) -> Raw:
    """A noun's schema wrapped so that its rules are checked after its fields; references point to the wrapped one."""
    if not part.get("post_init"):
        return part
    inner = {key: value for key, value in part.items() if key not in ("ref", "post_init")}
    named = {"ref": part["ref"]} if "ref" in part else {}
    function = {"type": "no-info", "function": _check_rules}
    return {"type": "function-after", "function": function, "schema": inner, **named}


def _check_rules(made: Any) -> Any:
    """The noun, if it keeps its rules; broken rules become pydantic errors, which are collected like wrong fields.

    The first word of a rule is used as its field, whose line is then searched.
    """
    from pydantic_core import InitErrorDetails, PydanticCustomError, ValidationError

    try:
        made.__post_init__()
    except UsageError as error:
        details = [
            InitErrorDetails(
                type=PydanticCustomError(BROKEN_RULE, "{rule}", {"rule": rule}),
                loc=tuple(rule.partition(" ")[0].rstrip(":").split(".")),  # most rules begin with their field
                input=None,
            )
            for rule in error.rules
        ]
        raise ValidationError.from_exception_data("rules", details) from None
    return made
