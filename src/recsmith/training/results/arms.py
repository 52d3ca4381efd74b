"""A stream learned in several ways, each from the same seeds: what each of these arms lost, and which one pays."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from recsmith._types import noun
from recsmith.errors import UsageError, check_rules
from recsmith.scoring.scores import mean_within


@noun
class PeriodLoss:
    """A period, scored by a model that has trained on all before it but the newest `ahead` - 1 of these.

    ne: null where all labels of the period are equal.
    """

    period: int
    ahead: int
    logloss: float
    ne: float | None


@noun
class Replayed:
    """A stream that was learned once by an arm. cpu_s: what learning it took on rank 0, scores left out."""

    arm: str
    seed: int
    losses: tuple[PeriodLoss, ...]
    cpu_s: float


Losses = dict[int, list[float]]  # of periods, by seed


@noun
class ArmRow:
    """An arm over all seeds.

    ne: mean over periods and seeds, of the next period. worse: mean of its log loss above that of the best arm, by
    period and seed, and half of the 95 % interval over seeds (over periods, where there is one seed). cost: CPU seconds
    beside those of incremental. late: NE by how many periods after the newest trained one are scored, all of the same
    periods.
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
    """What a replay found: its arms, the one that pays and why, and all losses."""

    rows: tuple[ArmRow, ...]
    chosen: str
    because: str
    replays: tuple[Replayed, ...]

    def __post_init__(self) -> None:
        """Check that it is about the same arms throughout."""
        names, replayed = {row.name for row in self.rows}, {each.arm for each in self.replays}
        check_rules(
            None if names == replayed and len(names) == len(self.rows)
            else f"rows are of {sorted(names)}, replays of {sorted(replayed)}; each arm has one row, and replays",
            None if self.chosen in names else f"chosen is '{self.chosen}', which is none of {sorted(names)}",
        )  # fmt: skip


def judged(replays: Sequence[Replayed], first: int) -> OnlineResult:
    """The arms of some replays by their losses from a period on, and the one that pays."""
    last = max(loss.period for each in replays for loss in each.losses)
    rows = rows_of(replays, range(first, last + 1))
    name, because = chosen(rows)
    return OnlineResult(rows=tuple(rows), chosen=name, because=because, replays=tuple(replays))


def rows_of(replays: Sequence[Replayed], periods: range) -> list[ArmRow]:
    """The arms side by side, by their losses on some periods, in the order in which they come.

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
    same = range(periods.start + max(aheads) - 1, periods.stop)  # which a model as old has seen enough before
    nes = {ahead: _by_seed(replays, name, same, ahead, "ne") for ahead in aheads}
    worse, worse_within = above(losses, best)
    late = {str(ahead): fmean(_flat(found)) for ahead, found in nes.items() if _flat(found)}
    return ArmRow(
        name=name, ne=ne, ne_within=ne_within, logloss=fmean(_flat(losses)), worse=worse, worse_within=worse_within,
        cost=cost, late=late,
    )  # fmt: skip


def above(losses: Mapping[int, Sequence[float]], others: Mapping[int, Sequence[float]]) -> tuple[float, float | None]:
    """(mean difference of losses, half of its 95 % interval), paired by seed and period; by periods, of one seed."""
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
