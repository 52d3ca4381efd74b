"""The five overheads of a host thread: their means without outliers, extracted from graphs and added to other graphs.

Each overhead is a mean by operator, and a mean of all operators for those that were not seen. T1 is also a mean by the
pair of operators around it, for what Python does there depends on both ("aten::relu > aten::linear"). A value is an
outlier if it is more than 1.5 interquartile ranges outside the quartiles [Lin et al., HiPC 2022].
"""

from collections.abc import Iterable
from typing import Literal, cast

import numpy as np

from recsmith._types import Floats, noun
from recsmith.errors import UsageError, check_rules
from recsmith.prediction.graph import Event, Graph, Kind
from recsmith.prediction.host_steps import THEN

OUTLIER_RANGES = 1.5  # interquartile ranges beyond the quartiles [Lin et al.]
ALL = ""  # in place of an operator: the mean of all operators
Term = Literal["T1", "T2", "T3", "T4", "T5"]
TERMS: tuple[Term, ...] = ("T1", "T2", "T3", "T4", "T5")
WHAT = {"T1": "between operators", "T2": "before the first kernel", "T3": "after the last kernel", "T4": "launches",
        "T5": "between kernels, and operators without any"}  # fmt: skip


@noun
class Overhead:
    """A mean overhead. operator: its operator; '' for all. spread_s: standard deviation. count: values used."""

    term: Term
    operator: str = ALL
    mean_s: float
    spread_s: float
    count: int

    def __post_init__(self) -> None:
        check_rules(
            *(f"{name} of overhead {self.term} is {value}; it must be finite and 0 or more"
              for name, value in (("mean_s", self.mean_s), ("spread_s", self.spread_s))
              if not 0 <= value < np.inf)
        )  # fmt: skip


@noun
class Overheads:
    """The overheads of a machine. source: where they were measured, in words."""

    source: str
    overheads: tuple[Overhead, ...]

    def __post_init__(self) -> None:
        """Check that each overhead is there once, and that each term has a mean over all operators."""
        keys = [(each.term, each.operator) for each in self.overheads]
        if len(set(keys)) < len(keys) or any((term, ALL) not in keys for term in TERMS):
            raise UsageError("overheads must hold T1 to T5 of all operators, and no overhead of an operator twice")

    def by_key(self) -> dict[tuple[str, str], float]:
        """Mean seconds by (term, operator)."""
        return {(each.term, each.operator): each.mean_s for each in self.overheads}


def without_outliers(values: Floats) -> Floats:
    """The values within 1.5 interquartile ranges of the quartiles."""
    if len(values) < 4:
        return values
    low, high = np.quantile(values, [0.25, 0.75])
    reach = OUTLIER_RANGES * (high - low)
    return values[(values >= low - reach) & (values <= high + reach)]


def extract_overheads(graphs: Iterable[Graph], source: str) -> Overheads:
    """The overheads of all ranks of the graphs."""
    seen: dict[tuple[Term, str], list[float]] = {(term, ALL): [] for term in TERMS}
    for graph in graphs:
        for tape in graph.ranks:
            for event in tape:
                if is_overhead(event):
                    for operator in operators_of(event.label):
                        seen.setdefault((_term(event), operator), []).append(event.seconds)
    return Overheads(source=source, overheads=tuple(_mean(*key, np.array(seen[key])) for key in sorted(seen)))


def _mean(term: Term, operator: str, values: Floats) -> Overhead:
    kept = without_outliers(values)
    if not len(kept):
        return Overhead(term=term, operator=operator, mean_s=0.0, spread_s=0.0, count=0)
    return Overhead(
        term=term, operator=operator, mean_s=float(kept.mean()), spread_s=float(kept.std()), count=len(kept)
    )


def is_overhead(event: Event) -> bool:
    """Whether an event's host seconds are an overhead: neither a kernel that the host runs, nor a wait."""
    return event.kind in (Kind.HOST, Kind.ISSUE, Kind.LAUNCH)


def _term(event: Event) -> Term:
    term = event.term if event.term in TERMS else "T4"  # a launch has the term of its kernel
    return cast(Term, term)


def operators_of(label: str) -> tuple[str, ...]:
    """Names under which an overhead may be known, the most exact one first: 'a > b', 'b', and ALL."""
    return tuple(dict.fromkeys((label, label.rpartition(THEN)[2], ALL)))


def overhead_s(known: dict[tuple[str, str], float], term: Term, label: str) -> float:
    """Mean seconds of an overhead, by the most exact name that is known."""
    return next(known[term, name] for name in operators_of(label) if (term, name) in known)
