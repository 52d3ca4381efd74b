"""What narrow layers save, before anything is trained, and whether that pays; without torch.

W ranks, B samples of a rank and step
"""

from collections.abc import Sequence
from math import prod

from recsmith._types import record
from recsmith.plans import Plan
from recsmith.training.narrowing.settings import NarrowSettings, Units
from recsmith.training.optimizers.shampoo_cost import CPU_FLOPS, NUMBER_BYTES, layers_s
from recsmith.units import format_size, format_time

LEAST = 0.05  # of a mean step: what narrow layers must save for `auto` to take them
# Of a step on one core, for each number (benchmarks/narrow.py rates): an optimizer's step; the zeros that a gradient of
# full size begins with; a weight that is taken, and its gradient put back.
OPTIMIZER_S, ZERO_S, TAKEN_S = 2.7e-9, 0.4e-9, 3.5e-9


@record
class NarrowCost:
    """A step in each kind of phase.

    dense_s, narrow_s: predicted. embeddings_s: of that, of tables and what they send. narrow_steps: share of all steps.
    operations: of a mean step's linear layers, of those of a dense one. sent_bytes: of dense gradients that a rank
    sends.
    """

    dense_s: float
    narrow_s: float
    embeddings_s: float
    narrow_steps: float
    operations: float
    sent_bytes: int

    @property
    def saved(self) -> float:
        """The share of a mean step that is saved."""
        return self.narrow_steps * (1 - self.narrow_s / self.dense_s)


def narrow_cost(
    settings: NarrowSettings, units: Sequence[Units], shapes: dict[str, tuple[int, int]],
    dense: Sequence[Sequence[int]], plan: Plan, embeddings_s: float, steps: int | None, sent_bytes: float | None = None,
) -> NarrowCost:  # fmt: skip
    """What a job's steps cost under a plan.

    Args:
        settings: when layers are narrow.
        units: those that are left out together.
        shapes: (outputs, inputs) of the layers that make or read them, by name.
        dense: shapes of all dense parameters.
        plan: of the tables.
        embeddings_s: of tables in a step.
        steps: of the job.
        sent_bytes: of dense gradients that a rank sends; None: all, by a ring.

    Raises what NarrowSettings.phases raises.
    """
    phases = settings.phases(steps)
    share = sum(each.steps for each in phases if each.narrow) / phases[-1].end
    kept = dict(shapes)
    for each in units:
        left = settings.kept(each.width)
        kept[each.made_by] = (left, kept[each.made_by][1])
        for name in each.read_by:
            kept[name] = (kept[name][0], left)
    whole, taken = sum(map(prod, shapes.values())), sum(map(prod, kept.values()))
    numbers, batch, ranks = sum(map(prod, dense)), plan.workload.batch_size, plan.cluster.world_size
    sent = round(2 * (ranks - 1) / ranks * numbers * NUMBER_BYTES if sent_bytes is None else sent_bytes)
    sending_s = sent / plan.cluster.ring_bandwidth if ranks > 1 else 0.0
    common = embeddings_s + numbers * OPTIMIZER_S + sending_s
    dense_s = common + layers_s(dense, batch)
    narrow_s = dense_s - 6 * batch * (whole - taken) / CPU_FLOPS + whole * ZERO_S + taken * TAKEN_S
    products = sum(prod(each) for each in dense if len(each) > 1)
    operations = 1 - share * (whole - taken) / products
    return NarrowCost(
        dense_s=dense_s, narrow_s=narrow_s, embeddings_s=embeddings_s, narrow_steps=share, operations=operations,
        sent_bytes=sent,
    )  # fmt: skip


def cost_line(settings: NarrowSettings, cost: NarrowCost, *, seconds: bool, thresholded: bool) -> str:
    """What is said of a cost. seconds: whether figures say how fast this device multiplies."""
    time = (
        f"a dense step is predicted {format_time(cost.dense_s)}, a narrow one {format_time(cost.narrow_s)}, so that a "
        f"mean step saves {cost.saved:.0%}"
        if seconds
        else "seconds are not predicted, for nothing was measured on GPUs"
    )
    sent = "as comms.dense says" if thresholded else "in full size in both, for whole layers cross ranks"
    return (
        f"narrow: {settings.keep:.0%} of units train in {cost.narrow_steps:.0%} of the steps, and linear layers do "
        f"{cost.operations:.0%} of their operations; {time}; a rank sends {format_size(cost.sent_bytes)} of gradients "
        f"a step, {sent}"
    )


def why_not(cost: NarrowCost, *, seconds: bool) -> str | None:
    """Why `auto` leaves narrow layers out; None where they pay."""
    if not seconds:
        return "nothing was measured on GPUs"
    if cost.saved >= LEAST:
        return None
    tables = cost.embeddings_s / cost.dense_s
    waits = f": tables and what they send take {tables:.0%} of a step" if tables > 0.5 else ""
    return f"it would save {cost.saved:.1%} of a mean step, less than {LEAST:.0%}{waits}"
