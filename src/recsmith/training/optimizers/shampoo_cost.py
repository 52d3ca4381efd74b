"""What Shampoo costs a step, before anything is trained, and whether that pays; without torch.

W ranks
"""

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from recsmith._types import record
from recsmith.clusters import Cluster
from recsmith.plans import Plan
from recsmith.training.optimizers.blocks import ShampooSettings, blocks_of, owners
from recsmith.training.optimizers.settings import DenseOptimizer
from recsmith.units import format_size, format_time

AUTO, SHAMPOO = "auto", "shampoo"
MOST = 0.1  # of the predicted step: what auto lets Shampoo cost
CPU_FLOPS = 95e9  # a second, fp32 on one core: layers, statistics and roots alike (benchmarks/optimizers.py rates)
CPU_BLOCK_S = 6e-5  # of a block beside its products: a dozen operators of PyTorch on one core (the same command)
NUMBER_BYTES = 4
Shapes = Sequence[Sequence[int]]


@record
class OptimizerCost:
    """What an optimizer of dense layers adds to a step.

    flops: of the rank that does most. sent_bytes: of the others' directions, that each rank receives. state_bytes: of
    the rank that keeps most. seconds: of a step; None where no figure says how fast products are. share: of the
    predicted step without it.
    """

    flops: float
    sent_bytes: int
    state_bytes: int
    seconds: float | None
    share: float | None


def shampoo_cost(settings: ShampooSettings, shapes: Shapes, cluster: Cluster, step_s: float) -> OptimizerCost:
    """What Shampoo costs in a job on a cluster. shapes: of all dense parameters. step_s: of a step without it."""
    ranks = cluster.world_size
    blocks = blocks_of(shapes, settings.max_preconditioner_dim)
    owned = owners(blocks, ranks, settings)
    mine = [[block for block, owner in zip(blocks, owned, strict=True) if owner == rank] for rank in range(ranks)]
    most = max(sum(block.factored for block in each) for each in mine)
    flops = max(sum(block.step_flops(settings) for block in each) for each in mine)
    state = max(sum(block.state_bytes(settings.grafting) for block in each) for each in mine)
    sent = (ranks - 1) * NUMBER_BYTES * max(sum(block.numbers for block in each) for each in mine)
    if cluster.device.kind != "cpu":
        return OptimizerCost(flops=flops, sent_bytes=sent, state_bytes=state, seconds=None, share=None)
    latency = (cluster.links.inter_host_latency_s if cluster.hosts > 1 else cluster.links.intra_host_latency_s) or 0.0
    sending_s = sent / cluster.ring_bandwidth + latency if ranks > 1 else 0.0
    seconds = flops / CPU_FLOPS + most * CPU_BLOCK_S + sending_s
    return OptimizerCost(
        flops=flops, sent_bytes=sent, state_bytes=state, seconds=seconds, share=seconds / max(step_s, 1e-12)
    )


def layers_s(shapes: Shapes, batch_size: int) -> float:
    """Seconds of the forward and backward pass of dense layers on a core: six operations a weight and sample."""
    return 6 * batch_size * sum(prod(shape) for shape in shapes if len(shape) > 1) / CPU_FLOPS


def optimizer_decided(
    optimizer: DenseOptimizer, shapes: Shapes, plan: Plan, embeddings_s: float
) -> tuple[DenseOptimizer, list[str]]:
    """The optimizer of dense layers of a run under a plan, and lines on what Shampoo costs, and if auto takes it."""
    if optimizer.name not in (AUTO, SHAMPOO):
        return optimizer, []
    settings = ShampooSettings.of(optimizer.arguments or {})
    step_s = embeddings_s + layers_s(shapes, plan.workload.batch_size)
    cost = shampoo_cost(settings, shapes, plan.cluster, step_s)
    told = cost_line(cost)
    if optimizer.name == SHAMPOO:
        return optimizer, [told]
    if cost.flops and cost.share is not None and cost.share <= MOST:
        return replace(optimizer, name=SHAMPOO), [f"{told}; so optimizers.dense, which is auto, takes it"]
    plain = replace(optimizer, name=settings.grafting, arguments=None)
    why = "nothing was measured on GPUs" if cost.share is None else f"auto lets it cost {MOST:.0%}"
    why = why if cost.flops else "no layer has a matrix"
    return plain, [f"{told}; {why}, so optimizers.dense, which is auto, takes {plain.name}"]


def cost_line(cost: OptimizerCost) -> str:
    """What is said of a cost."""
    time = (
        f"{cost.flops / 1e9:.3g} GFLOP"
        if cost.seconds is None or cost.share is None
        else f"{format_time(cost.seconds)}, {cost.share:.1%} of the predicted step without it"
    )
    return (
        f"shampoo adds to a step {time}; directions of {format_size(cost.sent_bytes)} reach each rank; it keeps "
        f"{format_size(cost.state_bytes)} on the rank that keeps most"
    )
