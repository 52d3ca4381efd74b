"""Settings of a run that trains several models together."""

import re
from collections import Counter
from typing import Literal

from recsmith._types import noun
from recsmith.errors import UsageError, check_rules
from recsmith.units import parse_size

NAMED = re.compile(r"[A-Za-z0-9_-]+")
WHOLE_ROWS = ("table_wise", "row_wise", "table_row_wise", "data_parallel")  # types that place all members alike
TAKEN = ("model", "checkpoints", "tensorboard", "feed")  # names in a run's output that no member may have


@noun
class RunArray:
    """Models that are trained in one job, on the same batches.

    members: by name, the settings of each member that differ from the run's: {slow:
    [optimizers.dense.learning_rate=0.0005]}. Each has a folder of its name in the run's output. together: auto trains
    them together if that is predicted to pay, and in turn otherwise; always; never: in turn. layer_memory: most memory
    that a step of the dense layers may take on a rank, such as 64MiB; to keep it, fewer members are trained at once,
    and activations are computed again or copied to the host; none: all members at once.
    """

    members: dict[str, tuple[str, ...]]
    together: Literal["auto", "always", "never"] = "auto"
    layer_memory: str | None = None

    @property
    def memory_bytes(self) -> int | None:
        """layer_memory in bytes."""
        return None if self.layer_memory is None else parse_size(self.layer_memory)

    def __post_init__(self) -> None:
        odd = next((name for name in self.members if not NAMED.fullmatch(name) or name.lower() in TAKEN), None)
        folders = Counter(name.lower() for name in self.members)
        twins = [name for name in self.members if folders[name.lower()] > 1]
        check_rules(
            None
            if len(self.members) > 1
            else f"array.members has {len(self.members)}; an array has two or more: name another, or leave array out",
            None
            if odd is None
            else f"array.members: '{odd}' cannot name a folder and tables of a member; use letters, digits, _ and -, "
            f"and none of {', '.join(TAKEN)}",
            f"array.members: {' and '.join(twins)} are one folder on disks that do not tell A from a; give names that "
            "differ otherwise"
            if twins
            else None,
            _broken_size(self.layer_memory),
        )


def _broken_size(text: str | None) -> str | None:
    try:
        size = None if text is None else parse_size(text)
    except UsageError as error:
        return f"array.layer_memory: {error}"
    return None if size != 0 else f"array.layer_memory is '{text}'; the layers need some: give more, or leave it out"
