"""What a comparison says: rows of planners, judgements of cost models, and which row is best."""

from collections.abc import Sequence
from dataclasses import replace

from recsmith._types import noun
from recsmith.analyses.sensitivity import Spread
from recsmith.plans import Plan
from recsmith.units import format_gap

TIE = 0.005  # plans that cost this much over the best, as a share of it, count as equally good


@noun
class Judgement:
    """What one cost model says of one plan.

    gap: how far any plan of the space can be below; None where the plan lies outside of the space, or has no room.
    over_best: cost over that of this judge's best row with room, as a share of it; None where that costs nothing.
    """

    cost_model: str
    total_s: float
    bound_s: float | None
    gap: float | None
    over_best: float | None


@noun
class PlannerRow:
    """One planner, or 'baseline': what the judges say of its plan, or why it has none.

    digest: of its plan. search_s: of the search alone; the problem and its bounds, which planners share, are not in it.
    overfull: number of devices that need more memory than they have. fits: whether devices and hosts have room.
    sensitivity: under the first judge, which is the cost model of the search.
    """

    name: str
    digest: str | None
    search_s: float | None
    truncated: bool
    error: str | None
    judgements: tuple[Judgement, ...]
    fits: bool
    overfull: int
    sensitivity: Spread | None


@noun
class Comparison:
    """Rows from the cheapest under the first judge to the dearest; those without a plan last.

    plans: by the names of their rows. verdict: which row is best, or how the judges disagree.
    """

    rows: tuple[PlannerRow, ...]
    judges: tuple[str, ...]
    verdict: str
    plans: dict[str, Plan]

    def row(self, name: str) -> PlannerRow:
        """The row of a planner, or of 'baseline'; KeyError where there is none."""
        return {row.name: row for row in self.rows}[name]


def ranked(rows: Sequence[PlannerRow]) -> tuple[PlannerRow, ...]:
    """The rows in order, each judgement with its cost over the best."""
    judged = [row for row in rows if row.judgements]
    best = [min(each.total_s for each in column) for column in zip(*(r.judgements for r in _room(rows)), strict=True)]
    compared = [replace(row, judgements=_over(row.judgements, best)) for row in judged]
    compared.sort(key=lambda row: row.judgements[0].total_s)
    return (*compared, *(row for row in rows if not row.judgements))


def _room(rows: Sequence[PlannerRow]) -> list[PlannerRow]:
    """The rows whose plans have room; all with a plan where none has."""
    judged = [row for row in rows if row.judgements]
    return [row for row in judged if row.fits] or judged


def _over(judgements: Sequence[Judgement], best: Sequence[float]) -> tuple[Judgement, ...]:
    pairs = zip(judgements, best, strict=True)
    return tuple(replace(each, over_best=each.total_s / least - 1 if least else None) for each, least in pairs)


def verdict_on(rows: Sequence[PlannerRow], judges: Sequence[str]) -> str:
    """Which of the ranked rows is best, in one line; where judges disagree, the winner that loses most elsewhere."""
    room = _room(rows)
    if not room[0].fits:
        return "no plan fits the memory of the devices and hosts"
    if len(room) == 1:
        return f"{room[0].name} has the only plan that fits"
    winners = [_winner(room, j) for j in range(len(judges))]
    over, j, k = max(
        (winner.judgements[k].over_best or 0.0, j, k) for j, winner in enumerate(winners) for k in range(len(judges))
    )
    if over > TIE:
        return (
            f"the judges disagree: {winners[j].name} is best under {judges[j]}, but under {judges[k]} it costs "
            f"{format_gap(over)} more than {winners[k].name}"
        )
    close = "" if over == 0 else f", or within {format_gap(over)} of it,"
    return f"{winners[0].name} is best{close} under {' and '.join(judges)}"


def _winner(rows: Sequence[PlannerRow], judge: int) -> PlannerRow:
    return min(rows, key=lambda row: row.judgements[judge].total_s)
