"""Settings that override values of a file: 'key=value' with dots in the key, such as `--set data.batch_size=512`."""

import re
from collections.abc import Sequence
from typing import Any, cast

from recsmith.errors import CorruptFile, UsageError
from recsmith.files.parsing import Raw, parse_yaml

SHOWN = 60  # most characters of a setting in an error


def put_setting(raw: Raw, setting: str) -> None:
    """Replace a value of plain data by the value of a setting, which is YAML.

    Raises:
        UsageError: the setting is not key=value.
        CorruptFile: its value is no YAML.
    """
    key, equals, text = setting.partition("=")
    if not equals or not key:
        raise UsageError(f"'{setting}' is not key=value; write for example --set data.batch_size=512")
    *path, last = _steps(setting)
    here: Any = raw
    for step in path:
        inner = here.get(step)
        here[step] = {**cast(Raw, inner)} if isinstance(inner, dict) else {}
        here = here[step]
    try:
        value = parse_yaml(f"value: {text}", "value")
    except CorruptFile as error:
        said = re.sub(r" \(line [0-9]+(, column [0-9]+)?\)", "", str(error).removeprefix("'value' "))
        raise CorruptFile(f"{_shown(setting)} {said}") from None
    here[last] = value["value"] if isinstance(value, dict) else value


def setting_of(settings: Sequence[str], place: str, said: str) -> str | None:
    """The last setting that changed the value at a place, or whose key an error names, as text; None if there is none.

    place: keys with dots, and positions in brackets, as in errors. said: the error.
    """
    for setting in reversed(settings):
        steps = _steps(setting)
        named = rf"(?<![\w.]){re.escape('.'.join(steps))}(?![\w.])"
        if _meet(steps, re.split(r"[.\[]", place)) or (len(steps) > 1 and re.search(named, said)):
            return _shown(setting)
    return None


def without_setting(settings: Sequence[str], said: str) -> str:
    """An error without the setting that it begins with, for callers whose users did not type the setting."""
    shown = next((f"{_shown(each)}: " for each in settings if said.startswith(f"{_shown(each)}: ")), "")
    return said.removeprefix(shown)


def _shown(setting: str) -> str:
    return f"--set {setting}" if len(setting) <= SHOWN else f"--set {setting[:SHOWN]}…"


def _steps(setting: str) -> list[str]:
    return setting.partition("=")[0].strip().split(".")


def _meet(one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether one of two places is within the other."""
    both = min(len(one), len(other))
    return one[:both] == other[:both]
