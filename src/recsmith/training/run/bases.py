"""Run files that extend another run file: keys that a file does not give are taken from its base."""

from pathlib import Path
from typing import Any, cast

from recsmith.errors import CorruptFile, UsageError
from recsmith.files import Raw, check_schema, parse, read_text
from recsmith.files.parsing import EXTENDS
from recsmith.files.texts import HERE

PARTS = ("data", "model", "optimizers", "checkpoint", "metrics")  # sections whose keys are merged one by one
DEEPEST = 16  # longest chain of files that extend each other; a longer one is a mistake


def with_base(raw: Raw, source: str, schema: str, before: tuple[Path, ...] = ()) -> Raw:
    """The content of a run file merged over its base file. before: the files that extend this one, in order.

    Keys of a run and of its data, model, optimizers, checkpoint and metrics are merged one by one; a value in the file
    replaces the value of the base at that key.

    Raises:
        UsageError: the base cannot be read.
        CorruptFile: the base is not a run file, or files extend each other in a circle.
    """
    if not isinstance(cast(object, raw), dict) or EXTENDS not in raw:
        return raw
    own, base = {key: value for key, value in raw.items() if key != EXTENDS}, raw[EXTENDS]
    if not isinstance(base, str):
        raise CorruptFile(f"'{source}': extends is {base!r}; name one run file, from the folder of this one")
    here = Path(source.removeprefix(HERE)) if source != "-" else Path("stdin")
    chain, path = (*before, here.resolve()), here.parent / base.removeprefix(HERE)
    if path.resolve() in chain or len(chain) > DEEPEST:
        named = " extends ".join(f"'{each.name}'" for each in (*chain, path.resolve())[:DEEPEST])
        raise CorruptFile(f"'{source}': {named}, and so on without an end; let the last one extend nothing")
    try:
        read = parse(read_text(str(path)), str(path))
    except UsageError as error:
        raise UsageError(f"'{source}': extends: {error}") from None
    return _over(with_base({**check_schema(read, schema, str(path))}, str(path), schema, chain), own)


def _over(base: Raw, own: Raw) -> Raw:
    made: dict[str, Any] = {**base}
    for key, value in own.items():
        there = made.get(key)
        if key in PARTS and isinstance(value, dict) and isinstance(there, dict):
            value = {**cast(Raw, there), **cast(Raw, value)}
        made[key] = value
    return made
