"""Constraints that no plan keeps: a smallest set of them that already contradicts itself, with lines of the file.

One constraint after the other is left out; where no plan exists without it either, it plays no part (a deletion filter,
Chinneck and Dravnieks, 1991). What is left contradicts itself, and does not once any one is left out.
"""

from dataclasses import dataclass

from recsmith.clusters import Cluster
from recsmith.errors import Infeasible, RecSmithError, UsageError
from recsmith.files import encode
from recsmith.planning.any_plan import Verdict, any_plan
from recsmith.problems import Apart, Constraints, Space, TableRule, Together, build_problem
from recsmith.problems.constraint_files import line_of
from recsmith.problems.constraints import NoChoiceLeft, Part, PerRank
from recsmith.workloads import Workload

SHOWN = 8  # constraints in a message
NOT_EVEN = "no plan exists, even without the constraints: the tables do not fit the cluster in this space. Proved"
SHOWN_NAMES = 4  # tables of a constraint in a message


@dataclass(frozen=True)
class Conflict:
    """Constraints that no plan keeps together. open: those without which it was not decided whether a plan exists."""

    parts: tuple[Part, ...]
    open: tuple[Part, ...]


@dataclass(frozen=True)
class Question:
    """A workload on a cluster within a space: what constraints are asked about."""

    workload: Workload
    cluster: Cluster
    space: Space | None

    def verdict(self, constraints: Constraints) -> Verdict:
        """Whether a plan keeps these constraints."""
        try:
            return any_plan(build_problem(self.workload, self.cluster, self.space, constraints))
        except NoChoiceLeft:
            return Verdict("none")
        except UsageError:  # sequences of a collection that share no width
            return Verdict("none")


def find_conflict(question: Question, constraints: Constraints) -> Conflict | None:
    """A minimal set of constraints that no plan keeps, which all of them together are known to be; None for none.

    None means that there is no plan without constraints either.
    """
    if question.verdict(constraints.only(())).answer == "none":
        return None
    kept = list(constraints.parts)
    step = max(1, len(kept) // 2)
    while True:  # whole stretches first, so that one conflict among hundreds of pins is soon found
        first = 0
        while first < len(kept):
            rest = kept[:first] + kept[first + step :]
            if rest and question.verdict(constraints.only(tuple(rest))).answer == "none":
                kept = rest
            else:
                first += step
        if step == 1:
            break
        step = max(1, min(step, len(kept)) // 2)
    without = {part: question.verdict(constraints.only(tuple(p for p in kept if p != part))) for part in kept}
    return Conflict(tuple(kept), tuple(part for part in kept if without[part].answer == "open"))


def contradiction(question: Question, constraints: Constraints, error: RecSmithError) -> RecSmithError:
    """The error that names a minimal set of constraints which no plan keeps; where there are none, the error itself.

    Where no plan exists without constraints either, that is said, unless the error is already the proof.
    """
    constraints = constraints.matching([table.name for table in question.workload.tables])
    if not constraints.parts:
        return error
    conflict = find_conflict(question, constraints)
    if conflict is None:
        return error if isinstance(error, Infeasible) else Infeasible(NOT_EVEN)
    shown = [_told(constraints, part) for part in conflict.parts[:SHOWN]]
    more = f"; and {len(conflict.parts) - SHOWN} more" if len(conflict.parts) > SHOWN else ""
    listed = "; ".join(shown) + more
    if len(conflict.parts) == 1:
        alone = f"no plan keeps this constraint: {listed}. Proved"
        return Infeasible(f"{alone}; relax it, or check it against the workload, the cluster and the space")
    if conflict.open:
        checked = f"whether the others can be kept without one was not decided for {len(conflict.open)} of them"
    else:
        checked = "checked: without any one of them, the others can be kept"
    return Infeasible(
        f"no plan keeps these {len(conflict.parts)} constraints together: {listed}. Proved; {checked}. Relax one"
    )


def _told(constraints: Constraints, part: Part) -> str:
    """A constraint in words, with its line."""
    name, place = part
    each = constraints.part(part)
    line = line_of(constraints, part)
    where = f"line {line}" if line else f"{name}[{place}]"
    return f"{_words(each)} ({where})"


def _words(each: TableRule | Together | Apart | PerRank) -> str:
    names = ", ".join(f"'{name}'" for name in each.patterns[:SHOWN_NAMES])
    names += f" and {len(each.patterns) - SHOWN_NAMES} more" if len(each.patterns) > SHOWN_NAMES else ""
    if isinstance(each, Together | Apart):
        what = "together" if isinstance(each, Together) else "apart"
        return f"{names} {what}{' per host' if each.per == 'host' else ''}"
    if isinstance(each, PerRank):
        counted = ((each.max_tables, "tables"), (each.max_shards, "shards"))
        limits = " and ".join(f"{most} {what}" for most, what in counted if most is not None)
        return f"at most {limits} a rank of {names}"
    fields = {key: value for key, value in encode(each).items() if key not in ("tables", "optional")}
    said = ", ".join(f"{key} {_value(value)}" for key, value in fields.items())
    return f"{names} {said}"


def _value(value: object) -> str:
    if isinstance(value, dict):
        return "to " + ", ".join(f"{key} {_value(each)}" for key, each in value.items())  # pyright: ignore
    return "[" + ", ".join(map(str, value)) + "]" if isinstance(value, list) else str(value)  # pyright: ignore
