"""A stream that is learned in several ways ("arms") with the same seeds: the loss of each arm, and which one pays."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from recsmith._types import noun
from recsmith.errors import UsageError, check_rules
from recsmith.scoring.scores import mean_within


@noun
class PeriodLoss:
    """A period, scored by a model that has trained on all periods before it except the newest `ahead` - 1.

    ne: None if all labels of the period are equal.
    """

    period: int
    ahead: int
    logloss: float
    ne: float | None


@noun
class Replayed:
    """One pass of an arm over a stream. cpu_s: CPU seconds of training on rank 0, without scoring."""

    arm: str
    seed: int
    losses: tuple[PeriodLoss, ...]
    cpu_s: float


Losses = dict[int, list[float]]  # losses of periods, by seed


@noun
class ArmRow:
    """An arm over all seeds.

    ne: mean NE of the next period, over periods and seeds. worse: mean difference of its log loss from the best arm's,
    by period and seed, with half of the 95 % interval over seeds (over periods, if there is one seed). cost: CPU
    seconds relative to incremental. late: NE by how many periods after the newest trained one are scored, all on the
    same periods.
    """

    name: str
    ne: float
    ne_within: float | None
    logloss: float
    worse: float
    worse_within: float | None
    cost: float
    late: dict[str, float]


@noun
class OnlineResult:
    """The result of a replay: its arms, the one that pays and why, and all losses."""

    rows: tuple[ArmRow, ...]
    chosen: str
    because: str
    replays: tuple[Replayed, ...]

    def __post_init__(self) -> None:
        """Check that rows, replays and the choice are about the same arms."""
        names, replayed = {row.name for row in self.rows}, {each.arm for each in self.replays}
        check_rules(
            None if names == replayed and len(names) == len(self.rows)
            else f"rows are of {sorted(names)}, replays of {sorted(replayed)}; each arm has one row, and replays",
            None if self.chosen in names else f"chosen is '{self.chosen}', which is none of {sorted(names)}",
        )  # fmt: skip


def judged(replays: Sequence[Replayed], first: int) -> OnlineResult:
    """The arms of replays by their losses from period `first` on, and the one that pays."""
    last = max(loss.period for each in replays for loss in each.losses)
    rows = rows_of(replays, range(first, last + 1))
    name, because = chosen(rows)
    return OnlineResult(rows=tuple(rows), chosen=name, because=because, replays=tuple(replays))


def rows_of(replays: Sequence[Replayed], periods: range) -> list[ArmRow]:
    """The arms by their losses on these periods, in the order of the replays.

    Raises:
        UsageError: none of these periods was scored, or not the same ones by all arms and seeds.
    """
    names = list(dict.fromkeys(each.arm for each in replays))
    next_losses = {name: _by_seed(replays, name, periods, 1, "logloss") for name in names}
    scored = [(seed, len(losses)) for found in next_losses.values() for seed, losses in found.items()]
    if not all(count for _, count in scored) or len(scored) != len(names) * len(set(scored)):
        raise UsageError(
            f"periods {periods.start} to {periods.stop - 1} were not all scored by all arms and seeds; name others"
        )
    best = min(names, key=lambda name: fmean(_flat(next_losses[name])))
    plain = "incremental" if "incremental" in names else names[0]
    spent = {name: fmean(each.cpu_s for each in replays if each.arm == name) for name in names}
    return [
        _row(name, replays, periods, next_losses[name], next_losses[best], spent[name] / max(spent[plain], 1e-9))
        for name in names
    ]


def _row(name: str, replays: Sequence[Replayed], periods: range, losses: Losses, best: Losses, cost: float) -> ArmRow:
    aheads = sorted({loss.ahead for each in replays if each.arm == name for loss in each.losses})
    known = [fmean(each) for each in _by_seed(replays, name, periods, 1, "ne").values() if each]
    if not known:
        raise UsageError(f"all labels of each period from {periods.start} on are equal; give longer periods")
    ne, ne_within = mean_within(known)
    same = range(periods.start + max(aheads) - 1, periods.stop)  # periods that models of every age can score
    nes = {ahead: _by_seed(replays, name, same, ahead, "ne") for ahead in aheads}
    worse, worse_within = above(losses, best)
    late = {str(ahead): fmean(_flat(found)) for ahead, found in nes.items() if _flat(found)}
    return ArmRow(
        name=name, ne=ne, ne_within=ne_within, logloss=fmean(_flat(losses)), worse=worse, worse_within=worse_within,
        cost=cost, late=late,
    )  # fmt: skip


def above(losses: Mapping[int, Sequence[float]], others: Mapping[int, Sequence[float]]) -> tuple[float, float | None]:
    """(mean difference of losses, half of its 95 % interval), paired by seed and period; by period for one seed."""
    paired = [[a - b for a, b in zip(losses[seed], others[seed], strict=True)] for seed in losses]
    return mean_within([fmean(each) for each in paired] if len(paired) > 1 else paired[0])


def chosen(rows: Sequence[ArmRow]) -> tuple[str, str]:
    """(the cheapest arm that is not worse than the best one by its interval, why)."""
    best = min(rows, key=lambda row: row.logloss)
    fit = [row for row in rows if row.worse - (row.worse_within or 0.0) <= 0]
    taken = min(fit, key=lambda row: row.cost)
    if taken is best:
        return taken.name, f"{taken.name} has the least loss of the next period, {taken.logloss:.5f}"
    return taken.name, (
        f"{taken.name} costs {taken.cost:.2f} of incremental, and its loss of the next period, {taken.logloss:.5f}, is "
        f"not worse than that of {best.name}, {best.logloss:.5f}, by its interval ({taken.worse:+.5f} within "
        f"{taken.worse_within or 0:.5f}), which costs {best.cost:.2f}"
    )


def _by_seed(replays: Sequence[Replayed], name: str, periods: range, ahead: int, what: str) -> dict[int, list[float]]:
    return {
        each.seed: [
            value
            for loss in each.losses
            if loss.ahead == ahead and loss.period in periods and (value := getattr(loss, what)) is not None
        ]
        for each in replays
        if each.arm == name
    }


def _flat(losses: Mapping[int, Sequence[float]]) -> list[float]:
    return [loss for each in losses.values() for loss in each]
