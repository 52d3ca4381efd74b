"""Whether towers pay at a rate of the link between hosts, before anything is trained (docs/towers.md).

A step of plain tables is the one that is predicted elsewhere. Towers leave `1 / ratio` of the bytes of pooled vectors
that leave a host, by the link's rate, and their modules add work. Overlap of both is not counted.

Source of the bytes: a host sends the pooled vectors of its tables for the samples of all others, forward, and the
gradients of the others' vectors for its own samples, backward (Luo et al., MLSys 2024, section 3); a ring of R ranks
carries 2 (R - 1) / R of what it sums.
"""

from recsmith._types import noun
from recsmith.errors import UsageError
from recsmith.plans import Plan
from recsmith.plans.towers import check_ratio, placed_towers
from recsmith.prediction.speeds import flops_per_s
from recsmith.units import format_size, format_time

VALUE, ID = 4, 12  # bytes of a number in fp32; of an id and its share of lengths
LEAST = 0.05  # share of the step that towers must save for `auto` to take them


@noun
class TowerSteps:
    """A step of plain tables and one of towers, in seconds, and the bytes that leave a host in each.

    link: bytes a second out of a host. plain_s: of a step of plain tables.
    """

    ratio: int
    link: float
    plain_s: float
    module_s: float
    pooled_bytes: int
    other_bytes: int

    @property
    def towers_s(self) -> float:
        """Of a step of towers: what does not cross is saved, down to what still does."""
        crosses = (self.pooled_bytes / self.ratio + self.other_bytes) / self.link
        saved = self.pooled_bytes * (1 - 1 / self.ratio) / self.link
        return max(self.plain_s - saved, crosses) + self.module_s

    @property
    def gain(self) -> float:
        """How many times the samples a second of plain tables."""
        return self.plain_s / self.towers_s

    @property
    def pays(self) -> bool:
        """Whether towers save enough of the step to be worth another model."""
        return self.towers_s < (1 - LEAST) * self.plain_s

    def __str__(self) -> str:
        """In a line, the bytes and seconds of both, and what follows."""
        verdict = "towers pay" if self.pays else f"towers do not pay: they save less than {LEAST:.0%} of a step"
        return (
            f"towers of ratio {self.ratio}: {format_size(round(self.pooled_bytes / self.ratio))} instead of "
            f"{format_size(self.pooled_bytes)} of pooled vectors leave a host in a step, at {self.link * 8 / 1e6:,.0f} "
            f"Mbit/s; {format_time(self.towers_s)} instead of {format_time(self.plain_s)}, {self.gain:.2f} times the "
            f"samples/s, predicted; {verdict}"
        )


def tower_steps(
    plan: Plan, ratio: int, *, step_s: float | None = None, link: float | None = None, dense: float = 0.0
) -> TowerSteps:
    """Steps of plain tables and of towers under a plan that has each table on one host.

    ratio: columns for each one that leaves a tower. step_s: of a step of plain tables on the plan's links; None: of its
    embeddings alone, as the plan counts it. link: bytes a second out of a host, by which the step takes more or less
    than on the plan's; None: that of the plan's cluster, of all its ranks together. dense: numbers that all ranks sum.

    Raises:
        PlanMismatch: a table is on several hosts, or a host has none.
        UsageError: the plan is of one host, the ratio does not divide the columns of a table, or the link carries
            nothing.
    """
    cluster = plan.cluster
    if link is not None and not link > 0:
        raise UsageError(f"the link between hosts is {link * 8 / 1e6:g} Mbit/s; give one that carries something")
    if cluster.hosts == 1:
        raise UsageError("the plan is of one host, and towers save what crosses hosts; plan for several")
    tables = {table.name: table for table in plan.workload.tables}
    check_ratio(ratio, {name: table.embedding_dim for name, table in tables.items()}, "towers")
    towers = placed_towers(plan.placements, cluster)
    columns = [sum(tables[name].embedding_dim * len(tables[name].features) for name in tower) for tower in towers]
    batch, local = plan.workload.batch_size, cluster.local_world_size
    here, away = batch * local, batch * (cluster.world_size - local)
    pooled = max(VALUE * (away * mine + here * (sum(columns) - mine)) for mine in columns)
    ids = sum(each.pooling_factor * each.num_poolings for table in tables.values() for each in table.features)
    ring = 2 * (cluster.world_size - 1) / cluster.world_size * dense * VALUE
    others = here * ids * ID * (cluster.hosts - 1) / cluster.hosts + ring
    work = 6 * batch * cluster.hosts * max(mine * mine / ratio for mine in columns) if ratio > 1 else 0.0
    own = cluster.links.inter_host_bandwidth * local
    rate, step = own if link is None else link, plan.cost.step_s if step_s is None else step_s
    crossing = pooled + others
    plain = max(step + crossing / rate - crossing / own, crossing / rate) if rate != own else step
    return TowerSteps(
        ratio=ratio, link=rate, plain_s=plain, module_s=work / flops_per_s(cluster.device.kind),
        pooled_bytes=round(pooled), other_bytes=round(others),
    )  # fmt: skip
