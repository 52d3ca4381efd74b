"""The words of planners that have learned: name, name:policy, name?samples=16&refine (docs/learned.md)."""

from typing import NamedTuple

from recsmith.clusters import Device
from recsmith.costs.neural.model import is_device
from recsmith.errors import UsageError

MOST_SAMPLES = 10_000


class PolicyWord(NamedTuple):
    """What a word asks for. policy: a name that ships or a file, None for the one of the cluster's device.

    samples: placements drawn from the policy besides. refine: whether local search goes on from the best.
    """

    policy: str | None = None
    samples: int = 0
    refine: bool = False


def read_word(word: str, planner: str) -> PolicyWord:
    """What the word of a planner of this name asks for; UsageError for one that asks for something else."""
    usage = f"write {planner}, {planner}:<name or file>, {planner}?samples=16, {planner}?refine, or "
    usage += f"{planner}?samples=16&refine"
    named, _, options = word.partition("?")
    _, colon, policy = named.partition(":")
    if (colon and not policy) or word.endswith(("?", "&")):
        missing = "option" if policy or not colon else "policy"
        raise UsageError(f"'{word}' has no {missing} where one belongs; {usage}")
    found = PolicyWord(policy=policy or None)
    for option in options.split("&") if options else ():
        key, _, value = option.partition("=")
        if (key == "samples" and found.samples) or (option == "refine" and found.refine):
            raise UsageError(f"'{word}' says {key} twice; {usage}")
        if key == "samples":
            found = found._replace(samples=_samples(value, usage))
        elif option == "refine":
            found = found._replace(refine=True)
        else:
            raise UsageError(f"'{option}' is not an option of planner {planner}; {usage}")
    return found


def _samples(value: str, usage: str) -> int:
    """The number of samples in a word; UsageError for none, or for too many."""
    if not (value.isascii() and value.isdigit() and len(value) < 9 and 1 <= int(value) <= MOST_SAMPLES):
        raise UsageError(f"'{value[:20]}' is no number of samples from 1 to {MOST_SAMPLES:,}; {usage}")
    return int(value)


def is_trained_for(hardware: str, measured: str, device: Device) -> bool:
    """Whether a policy that learned on a hardware, measured as `measured`, is one for a cluster's device."""
    return is_device("cuda" if hardware.partition(":")[0] == "cuda" else hardware, measured, device)


def number_option(word: str, planner: str, key: str, usual: int, most: int) -> int:
    """The number of a word such as rnn?episodes=800: `usual` for the bare name; UsageError for none up to `most`."""
    if word == planner:
        return usual
    value = word.removeprefix(f"{planner}?{key}=")
    if value == word or not (value.isascii() and value.isdigit() and len(value) < 9 and 1 <= int(value) <= most):
        raise UsageError(
            f"'{word[:60]}' is no planner; write {planner}, or {planner}?{key}={usual} with a number from 1 to {most:,}"
        )
    return int(value)
