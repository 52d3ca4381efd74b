"""What narrow layers are predicted to save, and whether that pays; without torch.

W ranks, B samples of a rank and step
"""

from collections.abc import Mapping, Sequence
from math import prod

from recsmith._types import record
from recsmith.analyses.aims import NAMED
from recsmith.analyses.paying import pays, said_of
from recsmith.plans import Plan
from recsmith.prediction.dense_shapes import NUMBER_BYTES, numbers_of
from recsmith.prediction.job_step import JobStep
from recsmith.prediction.speeds import bf16_layers_s, layers_s
from recsmith.training.systems.narrow.settings import NarrowSettings, Units
from recsmith.units import format_size, format_time

# Seconds of a step on one core, for each number: zeros with which a gradient of full size begins; taking a weight, and
# putting its gradient back (benchmarks/narrow.py rates). On several ranks also copying zeros to buckets, and gloo's
# work on the same core (docs/narrow.md).
ZERO_S, TAKEN_S, BUCKET_S = 0.4e-9, 3.5e-9, 3.6e-9


@record
class NarrowCost:
    """The cost of a dense and of a narrow step.

    dense_s, narrow_s: predicted, or None. embeddings_s: the part of them for tables and their communication.
    narrow_steps: share of all steps that are narrow.
    operations: operations of linear layers in an average step / those in a dense step. sent_bytes: of dense gradients
    that a rank sends.
    """

    dense_s: float | None
    narrow_s: float | None
    embeddings_s: float | None
    narrow_steps: float
    operations: float
    sent_bytes: int

    @property
    def saved(self) -> float:
        """The share of an average step that is saved; 0 if steps are not predicted."""
        if self.narrow_s is None or self.dense_s is None:
            return 0.0
        return self.narrow_steps * (1 - self.narrow_s / self.dense_s)


def narrow_cost(
    settings: NarrowSettings, units: Sequence[Units], shapes: dict[str, tuple[int, int]],
    dense: Sequence[Sequence[int]], plan: Plan, step: JobStep | None, steps: int | None,
    sent_bytes: float | None = None, rows: Mapping[tuple[int, int], float] | None = None, *, bf16: bool = False,
) -> NarrowCost:  # fmt: skip
    """The cost of a job's steps under a plan.

    Args:
        settings: when layers are narrow.
        units: groups of units that are left out together.
        shapes: (outputs, inputs) of the layers that make or read the units, by name.
        dense: shapes of all dense parameters.
        plan: of the tables.
        step: of the job without narrow layers; None if it is not predicted.
        steps: the number of steps of the job.
        sent_bytes: of dense gradients that a rank sends; None: all, by a ring all-reduce.
        rows: rows per sample that layers of a shape (outputs, inputs) multiply, such as positions; 1 for other shapes.
        bf16: whether products are computed in bf16.

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
    many = {name: (rows or {}).get(shape, 1.0) for name, shape in shapes.items()}
    ranks, batch = plan.cluster.world_size, plan.workload.batch_size
    ring = 2 * (ranks - 1) / ranks * numbers_of(dense) * NUMBER_BYTES
    sent = round(ring if sent_bytes is None else sent_bytes)
    dense_s = narrow_s = embeddings_s = None
    if step is not None:
        dense_s, embeddings_s = step.step_s, step.embeddings_s + step.rows_s
        less = _layers_s(shapes, many, batch, bf16) - _layers_s(kept, many, batch, bf16)
        narrow_s = dense_s - less + whole * (ZERO_S + BUCKET_S * (ranks > 1)) + taken * TAKEN_S
    products = sum((rows or {}).get((each[0], each[-1]), 1.0) * prod(each) for each in dense if len(each) > 1)
    saved = sum(many[name] * (prod(shapes[name]) - prod(kept[name])) for name in shapes)
    operations = 1 - share * saved / products
    return NarrowCost(
        dense_s=dense_s, narrow_s=narrow_s, embeddings_s=embeddings_s, narrow_steps=share, operations=operations,
        sent_bytes=sent,
    )  # fmt: skip


def _layers_s(shapes: Mapping[str, tuple[int, int]], many: Mapping[str, float], batch: int, bf16: bool) -> float:
    """Seconds of all layers; layers that multiply equally many rows are priced together."""
    alike = {rows: [shape for name, shape in shapes.items() if many[name] == rows] for rows in many.values()}
    found = sum(layers_s(each, max(1, round(batch * rows))) for rows, each in alike.items())
    return bf16_layers_s(found, list(shapes.values())) if bf16 else found


def cost_line(settings: NarrowSettings, cost: NarrowCost, *, thresholded: bool) -> str:
    """The line on a cost. thresholded: whether only a share of the gradients crosses ranks."""
    time = (
        f"a dense step is predicted {format_time(cost.dense_s)}, a narrow one {format_time(cost.narrow_s)}, so that a "
        f"mean step saves {cost.saved:.0%}"
        if cost.dense_s is not None and cost.narrow_s is not None
        else "seconds are not predicted, for nothing was measured on GPUs"
    )
    sent = "as comms.dense says" if thresholded else "in full size in both, for whole layers cross ranks"
    return (
        f"narrow: {settings.keep:.0%} of units train in {cost.narrow_steps:.0%} of the steps, and linear layers do "
        f"{cost.operations:.0%} of their operations; {time}; a rank sends {format_size(cost.sent_bytes)} of gradients "
        f"a step, {sent}"
    )


def why_not(cost: NarrowCost, gain: float) -> str | None:
    """Why `auto` leaves narrow layers out; None if they pay. gain: the predicted share of a step that they save."""
    if cost.dense_s is None or cost.embeddings_s is None:
        return "nothing was measured on GPUs"
    if pays(gain):
        return None
    tables = cost.embeddings_s / cost.dense_s
    waits = f": tables and what they send take {tables:.0%} of a step" if tables > 0.5 else ""
    return f"it {said_of(gain, NAMED['step'])}{waits}"
