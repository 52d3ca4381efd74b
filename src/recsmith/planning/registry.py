"""The planners that can be asked for by name: RecSmith's own, and the entry points of other packages.

Names may carry options, which are the arguments of the planner's class; NAME is dreamshard or autoshard:

    NAME                          the policy that ships for the cluster's device
    NAME:mine.safetensors         a policy of your own, or the name of one that ships
    NAME?samples=16               also draws 16 placements from the policy
    dreamshard?splits=8           splits tables one by one, as a policy of that draws it, 8 times
    dreamshard:mine.safetensors?splits=8    a policy of what is split of your own
    NAME?refine                   goes on with the local search that planner auto uses
    NAME?whole                    splits no table that fits a device
    NAME?longest_first            places by the policy's cost network alone, without the policy
    NAME:mine.safetensors?samples=16&refine
    rnn?episodes=800              fewer than the usual 3,200
    surco?steps=50                fewer than the usual 200
"""

import re
from collections.abc import Callable
from typing import Any

from recsmith import _plugins
from recsmith.errors import UsageError
from recsmith.planners import Planner
from recsmith.planners.auto import Auto
from recsmith.planners.autoshard import AutoShard
from recsmith.planners.dreamshard import DreamShard
from recsmith.planners.exact import Exact
from recsmith.planners.greedy import GREEDIES
from recsmith.planners.ldm import Ldm
from recsmith.planners.longest_first import LongestFirst
from recsmith.planners.neuroshard import NeuroShard
from recsmith.planners.placing.policy_planner import PolicyPlanner
from recsmith.planners.rnn import MOST_EPISODES, Rnn
from recsmith.planners.surco import MOST_STEPS, SurCo

NUMBERS = {"samples": 10_000, "splits": 10_000}  # options of planners of a policy that have a number, and the largest
FLAGS = ("refine", "whole", "longest_first")  # options of planners of a policy that have no number
MOST_DIGITS = 8  # of a number in a name
SHOWN = 60  # characters of a name in a message

PLANNERS: dict[str, Planner] = {
    planner.name: planner
    for planner in (
        Auto(), NeuroShard(), DreamShard(), AutoShard(), SurCo(), Rnn(), Ldm(), LongestFirst(), *GREEDIES, Exact(),
    )
}  # fmt: skip


def find_planner(planner: str | Planner) -> Planner:
    """The planner of a name, with options or without, RecSmith's own first; an object of your own as it is.

    Raises:
        UsageError: there is none of that name, its package cannot be loaded, or the object is no planner.
    """
    if isinstance(planner, str) and planner not in PLANNERS:
        make = WITH_OPTIONS.get(re.split("[:?]", planner, maxsplit=1)[0])
        if make is not None:
            return make(planner)
    return _plugins.find_named(planner, PLANNERS, _plugins.PLANNERS, Planner, "planner", "plan")


def _by_policy(planner: type[PolicyPlanner], text: str) -> Planner:
    """A planner of a policy, such as dreamshard:mine.safetensors?samples=16&refine; UsageError for another text."""
    name = planner.kind.planner
    words = ", ".join(f"{name}?{flag}" for flag in FLAGS)
    words += f", {name}?splits=8" if planner is DreamShard else ""
    usage = f"write {name}, {name}:<name or file>, {name}?samples=16, {words}, or {name}?samples=16&refine"
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
        if key == "samples" or (key == "splits" and planner is DreamShard):
            if not _is_number(value, NUMBERS[key]):
                raise UsageError(f"'{value[:20]}' is no number of {key} from 1 to {NUMBERS[key]:,}; {usage}")
            found[key] = int(value)
        elif option in FLAGS:
            found[option] = True
        else:
            raise UsageError(f"'{option}' is not an option of planner {name}; {usage}")
    other = next((key for key in ("samples", "longest_first") if "splits" in found and key in found), None)
    if other is not None:
        raise UsageError(f"'{text}': splits has placements of its own, {other} has others; write one of the two")
    return planner(name=text, policy=policy or None, **found)


def _with_number(planner: Rnn | SurCo, key: str, most: int, text: str) -> Planner:
    """A planner with a number for an option, such as rnn?episodes=800; UsageError for another text."""
    value = text.removeprefix(f"{planner.name}?{key}=")
    if value == text or not _is_number(value, most):
        usual = f"{planner.name}?{key}={getattr(planner, key)}"
        raise UsageError(
            f"'{text[:SHOWN]}' is no planner; write {planner.name}, or {usual} with a number from 1 to {most:,}"
        )
    option: dict[str, Any] = {key: int(value)}
    return type(planner)(name=text, **option)


def _is_number(text: str, most: int) -> bool:
    """Whether a text is a plain number from 1 to `most`."""
    return text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS and 1 <= int(text) <= most


WITH_OPTIONS: dict[str, Callable[[str], Planner]] = {
    "dreamshard": lambda text: _by_policy(DreamShard, text),
    "autoshard": lambda text: _by_policy(AutoShard, text),
    "rnn": lambda text: _with_number(Rnn(), "episodes", MOST_EPISODES, text),
    "surco": lambda text: _with_number(SurCo(), "steps", MOST_STEPS, text),
}
"""What makes a planner of a name with options: a name, and what follows ':' or '?'."""
