"""Whether towers pay at a given rate of the link between hosts, before anything is trained (docs/towers.md).

The step of plain tables is predicted elsewhere. Towers reduce the bytes of pooled vectors that leave a host to `1 /
ratio`, at the link's rate, and their modules add work. Overlap of both is not counted. Towers bind tables to hosts, so
they are compared with plain tables under the plan that is made without them.

Source of the bytes: in the forward pass, a host sends the pooled vectors of its tables for the samples of all other
hosts; in the backward pass, the gradients of the other hosts' vectors for its own samples (Luo et al., MLSys 2024,
section 3). A ring of R ranks sends 2 (R - 1) / R of the summed bytes.
"""

from dataclasses import replace

from recsmith._types import noun
from recsmith.analyses.aims import NAMED
from recsmith.analyses.paying import gain_of, pays, said_of
from recsmith.analyses.towers import plan_without_towers
from recsmith.errors import UsageError
from recsmith.planning.simulate import simulate
from recsmith.plans import Plan
from recsmith.plans.towers import check_ratio, placed_towers
from recsmith.prediction.speeds import flops_per_s
from recsmith.units import format_size, format_time

VALUE, ID = 4, 12  # bytes of a number in fp32; of an id and its share of lengths


@noun
class AucDelta:
    """Difference in points of AUC from plain tables, and half of the 95 % interval over five seeds."""

    points: float
    half: float

    def __str__(self) -> str:
        """The difference with its sign, and half of the interval."""
        return f"{self.points:+.2f} ± {self.half:.2f}"

    @property
    def shows_loss(self) -> bool:
        """Whether the whole interval is below zero."""
        return self.points + self.half < 0


# Measured by `python benchmarks/towers.py auc`, by ratio: on MovieLens and on generated clicks.
AUC = {
    2: (AucDelta(points=-0.12, half=0.29), AucDelta(points=0.42, half=0.30)),
    4: (AucDelta(points=-0.11, half=0.28), AucDelta(points=0.33, half=0.46)),
    8: (AucDelta(points=-0.63, half=0.44), AucDelta(points=0.19, half=0.29)),
}


@noun
class TowerSteps:
    """A step of plain tables and one of towers, in seconds, and the bytes that leave a host in each.

    link: bytes per second out of a host. under_s: seconds of a step of plain tables under the plan of towers. plain_s:
    seconds of one under the plan that is made for plain tables, which towers must beat.
    """

    ratio: int
    link: float
    under_s: float
    plain_s: float
    module_s: float
    pooled_bytes: int
    other_bytes: int

    @property
    def towers_s(self) -> float:
        """Seconds of a step of towers: the saved bytes shorten it, down to the time of the bytes that still cross."""
        crosses = (self.pooled_bytes / self.ratio + self.other_bytes) / self.link
        saved = self.pooled_bytes * (1 - 1 / self.ratio) / self.link
        return max(self.under_s - saved, crosses) + self.module_s

    @property
    def gain(self) -> float:
        """Samples per second of towers, as a multiple of those of plain tables under their own plan."""
        return self.plain_s / self.towers_s

    @property
    def pays(self) -> bool:
        """Whether towers save enough of the step to be worth another model."""
        return pays(gain_of(self.plain_s, self.towers_s))

    def __str__(self) -> str:
        """In a line, the seconds and bytes of both, whether towers pay, and the change of AUC."""
        under = "" if self.plain_s >= self.under_s else f" ({format_time(self.under_s)} under this one)"
        said = said_of(gain_of(self.plain_s, self.towers_s), NAMED["step"])
        verdict = "towers pay" if self.pays else f"towers do not pay: that {said}"
        return (
            f"towers of ratio {self.ratio}: a step of {format_time(self.towers_s)}; plain tables take "
            f"{format_time(self.plain_s)} under the plan made without towers{under}; {self.gain:.2f} times the "
            f"samples/s, predicted; {format_size(round(self.pooled_bytes / self.ratio))} instead of "
            f"{format_size(self.pooled_bytes)} of pooled vectors leave a host in a step, at {self.link * 8 / 1e6:,.0f} "
            f"Mbit/s; {verdict}{_quality(self.ratio, self.pays)}"
        )


def _quality(ratio: int, pays: bool) -> str:
    """The AUC of the nearest measured ratio, as the end of a sentence that says whether towers pay."""
    if ratio == 1:
        return ""
    loses = any(each.shows_loss for each in AUC[_near(ratio)])
    but = f" in time, {'and cost AUC' if loses else 'if AUC holds'}" if pays else ", and are another model"
    return f"{but}: {auc_of(ratio, '; docs/towers.md')}" + ("; train both on your data first" if pays else "")


def auc_of(ratio: int, page: str = "") -> str:
    """Measured difference of towers from plain tables in AUC, at the nearest ratio. page: text added to the seeds."""
    near = _near(ratio)
    movies, clicks = AUC[near]
    return (
        f"those of ratio {near} were {movies} points of AUC from plain tables on MovieLens and {clicks} on generated "
        f"clicks (five seeds{page})"
    )


def _near(ratio: int) -> int:
    return next((each for each in AUC if each >= ratio), max(AUC))


def saved_by_plain_plan(plan: Plan, step_s: float, link: float | None = None) -> float:
    """Seconds that plain tables save under their own plan, compared with a plan of towers, by the plan's cost model.

    step_s: step of plain tables under the plan of towers, of which the embeddings are a part. link: bytes per second
    out of a host, as for `tower_steps`.
    """
    local = plan.cluster.local_world_size
    links = plan.cluster.links if link is None else replace(plan.cluster.links, inter_host_bandwidth=link / local)
    there = simulate(replace(plan, cluster=replace(plan.cluster, links=links), digest=""), bound=False)
    before, after = there.cost.step_s, plan_without_towers(there).cost.step_s
    return min(before - after, step_s * (1 - after / before)) if before > 0 else 0.0


def tower_steps(
    plan: Plan, ratio: int, *, step_s: float | None = None, link: float | None = None, dense: float = 0.0,
    plain_s: float | None = None,
) -> TowerSteps:  # fmt: skip
    """Steps of plain tables and of towers under a plan that has each table on one host.

    Args:
        plan: the plan of towers.
        ratio: columns for each column that leaves a tower.
        step_s: seconds of a step of plain tables on the plan's links; None: those of its embeddings alone, by the plan.
        link: bytes per second out of a host, which make the step longer or shorter; None: the plan's, of all its ranks.
        dense: numbers that all ranks sum.
        plain_s: seconds of a step of plain tables under their own plan; None: by the plan's cost model.

    Raises:
        PlanMismatch: a table is on several hosts, or a host has none.
        UsageError: the plan is of one host, the ratio does not divide the columns of a table, or the link's rate is not
            above 0.
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
    under = max(step + crossing / rate - crossing / own, crossing / rate) if rate != own else step
    plain = under - saved_by_plain_plan(plan, under, link) if plain_s is None else min(plain_s, under)
    return TowerSteps(
        ratio=ratio, link=rate, under_s=under, plain_s=plain, module_s=work / flops_per_s(cluster.device.kind),
        pooled_bytes=round(pooled), other_bytes=round(others),
    )  # fmt: skip
