"""What each choice costs on the user's cluster: seconds of a step under the cost model, or bytes.

Seconds of a table's choice: the workload in which all tables take the choice of one rank is planned, and its step is
divided among tables by what each costs all devices. So prices add up to the planned step if all tables take the same
rank; for other samples they are an estimate, and `replanned` has the planner's price.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from recsmith._types import noun
from recsmith.analyses.aims import NAMED
from recsmith.analyses.paying import gain_of, pays, said_of
from recsmith.analyses.towers import table_seconds
from recsmith.clusters import Cluster
from recsmith.embeddings import physical
from recsmith.embeddings.truncated import rows_left
from recsmith.embeddings.workloads import compress
from recsmith.errors import UsageError
from recsmith.planning import plan
from recsmith.prediction.speeds import flops_per_s
from recsmith.searching.samples import rules_of, sizes_of
from recsmith.searching.space import PartChoices, Picks, SearchSpace, Unit
from recsmith.units import format_time
from recsmith.workloads import Workload

VALUE = 4  # bytes of a dense weight
PASSES = 6  # operations per weight and sample, forward and backward


@dataclass(frozen=True)
class Priced:
    """The inputs of prices. sizes: of layers bottom and top. reads, ends: columns that each part reads, and outputs."""

    workload: Workload
    cluster: Cluster
    sizes: dict[str, tuple[int, ...]]
    reads: dict[str, int]
    ends: dict[str, int]

    def layers(self, sizes: Mapping[str, Sequence[float]], unit: Unit) -> float:
        """Price of dense layers with some sizes."""
        return sum(
            self.weights(read * width, unit)
            for part, own in sizes.items()
            for read, width in pairwise((self.reads[part], *own, self.ends[part]))
        )

    def weights(self, count: float, unit: Unit) -> float:
        """Price of `count` dense weights: bytes, or seconds of their products (prediction/speeds.py)."""
        if unit == "bytes":
            return VALUE * count
        return PASSES * count * self.workload.batch_size / flops_per_s(self.cluster.device.kind)


@noun
class PlannedPrice:
    """Tables and layers priced by the planner: step in seconds, bytes of weights, and the one in the search's unit."""

    step_s: float
    weight_bytes: int
    price: float


def with_prices(space: SearchSpace, priced: Priced, unit: Unit, **search: Any) -> SearchSpace:
    """The space with the price of each choice. search: options of `plan`, whose errors are raised as well."""
    made = _by_bytes(space, priced) if unit == "bytes" else _by_step(space, priced, search)
    layers, rest = _layers(made, priced, unit)
    return replace(made, layers=layers, fixed=made.fixed + rest, unit=unit)


def _by_bytes(space: SearchSpace, priced: Priced) -> SearchSpace:
    by_name = {table.name: table for table in priced.workload.tables}

    def cost(name: str, width: int, rows: float) -> float:
        table = by_name[name]
        number = table.weight_bytes / (table.num_embeddings * table.embedding_dim)
        return rows_left(table.num_embeddings, rows) * width * number

    tables = [_priced(each, [cost(each.name, c.width, c.rows) for c in each.options]) for each in space.tables]
    names = {each.name for each in space.tables}
    fixed = sum(table.weight_bytes for table in priced.workload.tables if table.name not in names)
    return replace(space, tables=tuple(tables), fixed=float(fixed))


def _by_step(space: SearchSpace, priced: Priced, search: dict[str, Any]) -> SearchSpace:
    most = max((len(each.options) for each in space.tables), default=1)
    found: list[dict[str, float]] = []
    for rank in range(most):
        picks = tuple(min(rank, len(each.options) - 1) for each in space.parts)
        made = compress(priced.workload, rules_of(space, picks)).workload
        result = plan(made, priced.cluster, **search)
        found.append(_shares(priced.workload, result.plan.cost.step_s, table_seconds(result.plan)))
    tables = [
        _priced(each, [found[min(k, most - 1)][each.name] for k in range(len(each.options))]) for each in space.tables
    ]
    names = {each.name for each in space.tables}
    fixed = sum(seconds for name, seconds in found[-1].items() if name not in names)
    return replace(space, tables=tuple(tables), fixed=fixed)


def _shares(workload: Workload, total: float, seconds: dict[str, float]) -> dict[str, float]:
    """A step divided among the tables, by what they cost all devices. seconds: by name of the physical table."""
    made = {
        table.name: seconds.get(table.name, 0.0) + seconds.get(physical(table.name, "truncated"), 0.0)
        for table in workload.tables
    }
    whole = sum(made.values())
    return {name: total * (each / whole if whole else 1 / len(made)) for name, each in made.items()}


def _layers(space: SearchSpace, priced: Priced, unit: Unit) -> tuple[tuple[PartChoices, ...], float]:
    """Priced choices of layers, and the price of the rest of the dense layers.

    A layer costs its columns times those of its neighbours, which are assumed at the mean of their choices: so the sum
    is exact if all layers but one are at their mean.
    """
    means = {each.name: sum(c.width for c in each.options) / len(each.options) for each in space.layers}

    def cost(name: str = "", width: float = 0.0) -> float:
        widths = {**means, name: width}
        sizes = {
            part: [w for n, each in enumerate(own) if (w := widths.get(f"{part}.{n}", each))]
            for part, own in priced.sizes.items()
        }
        return priced.layers(sizes, unit)

    middle, rest, made = cost(), cost(), list[PartChoices]()
    for each in space.layers:
        costs = [cost(each.name, choice.width) for choice in each.options]
        made.append(_priced(each, [price - min(costs) for price in costs]))
        rest += min(costs) - middle
    return tuple(made), rest


def _priced(each: PartChoices, prices: Sequence[float]) -> PartChoices:
    options = tuple(replace(option, price=price) for option, price in zip(each.options, prices, strict=True))
    return replace(each, options=options)


def replanned(space: SearchSpace, picks: Picks, priced: Priced, **search: Any) -> PlannedPrice:
    """A sample planned anew on the cluster. search: options of `plan`."""
    made = compress(priced.workload, rules_of(space, picks)).workload
    return planned(made, sizes_of(space, picks, priced.sizes), space.unit, priced, **search)


def planned(
    workload: Workload, sizes: Mapping[str, Sequence[float]], unit: Unit, priced: Priced, **search: Any
) -> PlannedPrice:
    """The price of a workload and layer sizes: tables by the planner, layers by their weights."""
    step = plan(workload, priced.cluster, **search).plan.cost.step_s + priced.layers(sizes, "step")
    weights = workload.weight_bytes + round(priced.layers(sizes, "bytes"))
    return PlannedPrice(step_s=step, weight_bytes=weights, price=step if unit == "step" else float(weights))


def check_pays(space: SearchSpace, whole_s: float, cheapest_s: float) -> None:
    """Raise UsageError if even the cheapest sample saves too little of the step for a search to pay.

    whole_s, cheapest_s: seconds of a step of the run, and of the run with that sample.
    """
    gain = gain_of(whole_s, cheapest_s)
    if space.unit == "step" and not pays(gain):
        raise UsageError(
            f"a search does not pay: the cheapest sample of this space has a step of {format_time(cheapest_s)} and the "
            f"run {format_time(whole_s)}, predicted, so it {said_of(gain, NAMED['step'])}; --price bytes searches for "
            "memory, and --price step for a step all the same"
        )
