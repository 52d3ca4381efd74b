"""Names of policy planners with options, such as dreamshard:mine.safetensors?samples=16&refine."""

from collections.abc import Mapping
from typing import Any

from recsmith.errors import UsageError

FLAGS = ("refine", "whole", "longest_first")  # options without a number
MOST_DIGITS = 8  # most digits of a number in a name


def policy_options(name: str, numbers: Mapping[str, int], text: str) -> dict[str, Any]:
    """Parse the policy, None for the shipped one, and the options from a planner's name.

    name: of the planner. numbers: the largest number of each option that takes one.

    Raises:
        UsageError: the text contains anything else, or repeats an option.
    """
    usage = _usage(name, numbers)
    named, _, options = text.partition("?")
    _, colon, policy = named.partition(":")
    if (colon and not policy) or text.endswith(("?", "&")):
        missing = "option" if policy or not colon else "policy"
        raise UsageError(f"'{text}' has no {missing} where one belongs; {usage}")
    found: dict[str, Any] = {}
    for option in options.split("&") if options else ():
        key, _, value = option.partition("=")
        if key in found:
            raise UsageError(f"'{text}' says {key} twice; {usage}")
        if key in numbers:
            if not _is_number(value, numbers[key]):
                raise UsageError(f"'{value[:20]}' is no number of {key} from 1 to {numbers[key]:,}; {usage}")
            found[key] = int(value)
        elif option in FLAGS:
            found[option] = True
        else:
            raise UsageError(f"'{option}' is not an option of planner {name}; {usage}")
    other = next((key for key in ("samples", "longest_first") if "splits" in found and key in found), None)
    if other is not None:
        raise UsageError(f"'{text}': splits has placements of its own, {other} has others; write one of the two")
    return {"policy": policy or None, **found}


def _usage(name: str, numbers: Mapping[str, int]) -> str:
    words = ", ".join(f"{name}?{flag}" for flag in FLAGS)
    words += f", {name}?splits=8" if "splits" in numbers else ""
    return f"write {name}, {name}:<name or file>, {name}?samples=16, {words}, or {name}?samples=16&refine"


def _is_number(text: str, most: int) -> bool:
    """Whether a text is a plain decimal number from 1 to `most`."""
    return text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS and 1 <= int(text) <= most
