"""When dense layers are narrow, and how many of their units are then kept; without torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from recsmith._types import noun
from recsmith.errors import UsageError, check_rules, outside

MOST_CYCLES = 10_000  # each has two phases, and all phases are kept in a list
LEAST_STEPS = 10  # least steps of a phase; in fewer, the chosen units learn nothing
LEAST_UNITS = 64  # least units of a narrowed layer; products of smaller layers are no large part of any step
TOGETHER = 8  # units are kept in multiples of 8, which vector units of CPUs and GPUs process at once


@noun
class NarrowSettings:
    """Steps in which dense layers multiply only some of their units.

    keep: share of the units of a layer that are kept. cycles: how often units are chosen. dense_at_start: share of each
    cycle in which all units train first, so that the choice has a basis. dense_at_end: share of all steps, at the end,
    in which all units train; 0 makes the last choice permanent.
    """

    keep: float = 0.35
    cycles: int = 2
    dense_at_start: float = 0.2
    dense_at_end: float = 0.15

    def __post_init__(self) -> None:
        check_rules(
            None if 0 < self.keep < 1 else f"model.narrow.keep is {self.keep}; it lies between 0 and 1",
            outside("model.narrow.cycles", self.cycles, 1, MOST_CYCLES),
            None
            if 0 < self.dense_at_start < 1
            else f"model.narrow.dense_at_start is {self.dense_at_start}; it lies between 0 and 1",
            None
            if 0 <= self.dense_at_end < 1
            else f"model.narrow.dense_at_end is {self.dense_at_end}; it lies from 0 to below 1",
        )

    def phases(self, steps: int | None) -> tuple["NarrowPhase", ...]:
        """The phases of a job of this many steps, in order.

        Raises:
            UsageError: the number of steps is unknown, or a phase would be shorter than LEAST_STEPS.
        """
        if steps is None:
            raise UsageError("model.narrow shares a job's steps out, and nobody knows how many it has; give `steps`")
        end = steps - round(steps * self.dense_at_end)
        edges = [0]
        for cycle in range(self.cycles):
            begins, ends = end * cycle // self.cycles, end * (cycle + 1) // self.cycles
            edges += [begins + round((ends - begins) * self.dense_at_start), ends]
        edges += [steps] if self.dense_at_end else []
        made = tuple(NarrowPhase(*pair, narrow=bool(i % 2)) for i, pair in enumerate(pairwise(edges)))
        short = min(made, key=lambda each: each.steps)
        if short.steps < LEAST_STEPS:
            kind = "narrow" if short.narrow else "dense"
            raise UsageError(
                f"model.narrow gives a {kind} phase of {short.steps} of the {steps} steps, and a phase takes at least "
                f"{LEAST_STEPS}; give fewer cycles, other shares, or more steps"
            )
        return made

    def kept(self, width: int) -> int:
        """How many of a layer's `width` units are kept."""
        return min(width, max(TOGETHER, round(width * self.keep / TOGETHER) * TOGETHER))


@dataclass(frozen=True)
class NarrowPhase:
    """A phase: the steps after `first`, up to `end`, all narrow or all dense."""

    first: int
    end: int
    narrow: bool

    @property
    def steps(self) -> int:
        """The number of steps."""
        return self.end - self.first


@noun
class NarrowState:
    """What a checkpoint keeps: the job's number of steps, and the units of each group that train, if not all do."""

    steps: int
    kept: tuple[tuple[int, ...], ...] | None = None

    def fits(self, sizes: Sequence[tuple[int, int]]) -> bool:
        """Whether this state is of groups of these sizes (units, units kept)."""
        kept = self.kept or ()
        return len(kept) == len(sizes) and all(
            list(each) == sorted({number for number in each if 0 <= number < width}) and len(each) == left
            for each, (width, left) in zip(kept, sizes, strict=True)
        )


@dataclass(frozen=True)
class Units:
    """Hidden units that one linear layer makes and other linear layers read; any of them can be left out.

    width: the number of units. made_by, read_by: names of linear layers in the model.
    """

    width: int
    made_by: str
    read_by: tuple[str, ...]
