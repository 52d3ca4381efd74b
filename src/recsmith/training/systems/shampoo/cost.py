"""What Shampoo is predicted to cost per step, and whether that pays; without torch.

W ranks
"""

from collections.abc import Sequence
from dataclasses import replace

from recsmith._types import record
from recsmith.clusters import Cluster
from recsmith.plans import Plan
from recsmith.prediction.job_step import JobStep
from recsmith.prediction.speeds import flops_per_s
from recsmith.training.optimizers.settings import DenseOptimizer
from recsmith.training.systems.shampoo.blocks import ShampooSettings, blocks_of, owners, state_of_ranks
from recsmith.units import format_size, format_time

AUTO, SHAMPOO = "auto", "shampoo"
MOST = 0.1  # largest share of the predicted step that auto lets Shampoo cost
CPU_BLOCK_S = 6e-5  # seconds per block besides its products: a dozen PyTorch operators (benchmarks/optimizers.py rates)
NUMBER_BYTES = 4
Shapes = Sequence[Sequence[int]]


@record
class OptimizerCost:
    """What an optimizer of dense layers adds to a step.

    flops: of the rank that computes most. sent_bytes: bytes of directions that each rank receives from the others.
    state_bytes: of the rank that keeps most. seconds: added to a step; None if the speed of products was not measured.
    share: seconds / the predicted step without them.
    """

    flops: float
    sent_bytes: int
    state_bytes: int
    seconds: float | None
    share: float | None


def shampoo_cost(settings: ShampooSettings, shapes: Shapes, cluster: Cluster, step_s: float) -> OptimizerCost:
    """The cost of Shampoo in a job. shapes: of all dense parameters. step_s: seconds of a step without Shampoo."""
    ranks = cluster.world_size
    blocks = blocks_of(shapes, settings.max_preconditioner_dim)
    owned = owners(blocks, ranks, settings)
    mine = [[block for block, owner in zip(blocks, owned, strict=True) if owner == rank] for rank in range(ranks)]
    most = max(sum(block.factored for block in each) for each in mine)
    flops = max(sum(block.step_flops(settings) for block in each) for each in mine)
    state = max(state_of_ranks(settings, shapes, ranks))
    sent = (ranks - 1) * NUMBER_BYTES * max(sum(block.numbers for block in each) for each in mine)
    if cluster.device.kind != "cpu":
        return OptimizerCost(flops=flops, sent_bytes=sent, state_bytes=state, seconds=None, share=None)
    latency = (cluster.links.inter_host_latency_s if cluster.hosts > 1 else cluster.links.intra_host_latency_s) or 0.0
    sending_s = sent / cluster.ring_bandwidth + latency if ranks > 1 else 0.0
    seconds = flops / flops_per_s("cpu") + most * CPU_BLOCK_S + sending_s
    return OptimizerCost(
        flops=flops, sent_bytes=sent, state_bytes=state, seconds=seconds, share=seconds / max(step_s, 1e-12)
    )


def optimizer_decided(
    optimizer: DenseOptimizer, shapes: Shapes, plan: Plan, step: JobStep | None, *, refused: str | None = None
) -> tuple[DenseOptimizer, list[str], float]:
    """The dense optimizer of a run, lines on the cost of Shampoo and the choice of auto, and seconds added to a step.

    step: of the job without Shampoo; None if it is not predicted. refused: why the run cannot have Shampoo, or None.
    """
    if optimizer.name not in (AUTO, SHAMPOO):
        return optimizer, [], 0.0
    settings = ShampooSettings.of(optimizer.arguments or {})
    cost = shampoo_cost(settings, shapes, plan.cluster, 0.0 if step is None else step.step_s)
    text, plain = cost_line(cost), replace(optimizer, name=settings.grafting, arguments=None)
    if optimizer.name == SHAMPOO:
        return optimizer, [text], cost.seconds or 0.0
    if refused is not None:
        return plain, [f"optimizers.dense, which is auto, takes {plain.name}: {refused}"], 0.0
    if cost.flops and cost.share is not None and cost.share <= MOST:
        taken = f"{text}; so optimizers.dense, which is auto, takes it"
        return replace(optimizer, name=SHAMPOO), [taken], cost.seconds or 0.0
    why = "nothing was measured on GPUs" if cost.share is None else f"auto lets it cost {MOST:.0%}"
    why = why if cost.flops else "no layer has a matrix"
    return plain, [f"{text}; {why}, so optimizers.dense, which is auto, takes {plain.name}"], 0.0


def cost_line(cost: OptimizerCost) -> str:
    """The line on a cost."""
    time = (
        f"{cost.flops / 1e9:.3g} GFLOP"
        if cost.seconds is None or cost.share is None
        else f"{format_time(cost.seconds)}, {cost.share:.1%} of the predicted step without it"
    )
    reach = f"directions of {format_size(cost.sent_bytes)} reach each rank; " if cost.sent_bytes else ""
    return f"shampoo adds to a step {time}; {reach}it keeps {format_size(cost.state_bytes)} on the rank that keeps most"


def brought_line(settings: ShampooSettings, shapes: Shapes, cluster: Cluster, step_s: float) -> str:
    """Seconds of an update, compared with the prediction. step_s: this rank's mean seconds of an update."""
    cost = shampoo_cost(settings, shapes, cluster, step_s)
    predicted = (
        "" if cost.seconds is None else f"; {format_time(cost.seconds)} more than {settings.grafting} were predicted"
    )
    return f"shampoo: its update took {format_time(step_s)} of a step{predicted}"


def predicted_line(shapes: Shapes, cluster: Cluster, step_s: float) -> str:
    """The line on Shampoo's cost with default settings, for a predicted step without it."""
    return cost_line(shampoo_cost(ShampooSettings(), shapes, cluster, step_s))
