"""Options to reduce the memory of dense layers on a rank: divide their state over ranks, or keep fewer activations.

Each option is priced on the memory schedule of the plan, and none is switched on: they are for the owner of the layers.
States, gradients and weights that are divided over ranks are ZeRO's three stages (Rajbhandari et al., SC 2020, sections
5 and 7: stages 1 and 2 exchange as much as before, stage 3 half as much again). Activations that are copied to the host
or computed again are scheduled as in mu-TWO (recsmith.prediction.activations).

Legend: L layers, in the order of the forward pass.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from recsmith._types import noun
from recsmith.analyses.step_memory import StepMemory, with_dense
from recsmith.clusters import whole_job
from recsmith.errors import NoPlanFound
from recsmith.prediction.activations.graph import GraphOperation, TrainingGraph
from recsmith.prediction.activations.scheduler import ArraySchedule, scheduled
from recsmith.problems.dense_bytes import DenseBytes
from recsmith.units import counted, format_size, format_time

BACKWARD = 2  # times as many products in a layer's backward pass as in its forward pass
NO_MORE = "no more bytes between ranks"
SHARES = (0.75, 0.5, 0.25)  # shares of all activations that may be in memory at once


@noun
class DenseLayers:
    """Bytes of dense layers of a rank that `DenseBytes` does not hold, and the seconds of the layers.

    weights, gradients, state: bytes; state is that of the optimizer, 0 if ranks divide it already. outputs: bytes (L,)
    of the batch that a layer keeps. forward_s: seconds (L,) of each layer's forward pass.
    """

    weights: int
    gradients: int
    state: int
    outputs: tuple[int, ...] = ()
    forward_s: tuple[float, ...] = ()


@noun
class DenseChoice:
    """An option for dense layers. dense: the bytes that they hold then. costs: its disadvantages, in words."""

    name: str
    dense: DenseBytes
    costs: str


def dense_choices(memory: StepMemory, layers: DenseLayers) -> tuple[tuple[DenseChoice, StepMemory], ...]:
    """Each option, with the memory of the step under it."""
    ranks = memory.plan.cluster.job_world_size
    found = [*(_divided(memory, layers) if ranks > 1 else ()), *_fewer_activations(memory, layers)]
    return tuple((each, with_dense(memory, each.dense)) for each in found)


def _divided(memory: StepMemory, layers: DenseLayers) -> Iterator[DenseChoice]:
    """ZeRO's stages: each divides what the stage before divides, and more."""
    dense, cluster = memory.dense, whole_job(memory.plan.cluster)
    ranks = cluster.world_size

    def spared(size: int) -> int:
        return size - -(-size // ranks)

    if layers.state:
        dense = replace(dense, fixed=dense.fixed - spared(layers.state))
        yield DenseChoice(
            name="optimizer state divided over ranks (ZeRO 1)", dense=dense, costs="no more bytes between ranks"
        )
    dense = replace(dense, gradients=dense.gradients - spared(layers.gradients))
    name = "and gradients (ZeRO 2)" if layers.state else "gradients divided over ranks (ZeRO 2)"
    yield DenseChoice(name=name, dense=dense, costs=NO_MORE)
    more = layers.weights * (ranks - 1) / ranks
    dense = replace(dense, fixed=dense.fixed - spared(layers.weights))
    words = f"{format_size(round(more))} more between ranks in each step, {format_time(more / cluster.ring_bandwidth)}"
    yield DenseChoice(name="and weights (ZeRO 3)", dense=dense, costs=words)


def _fewer_activations(memory: StepMemory, layers: DenseLayers) -> Iterator[DenseChoice]:
    """Schedules with at most a share of all activations in memory, until none is found."""
    if len(layers.outputs) < 2:
        return
    graph = layers_graph(layers)
    whole = _schedule(graph, float("inf"), None)
    link = memory.plan.cluster.device.host_link_bandwidth if memory.plan.cluster.device.kind == "cuda" else None
    for share in SHARES:
        try:
            made = _schedule(graph, share * whole.peak_bytes, link)
        except NoPlanFound:
            break
        freed = min(memory.dense.activations, whole.peak_bytes - made.peak_bytes)
        dense = replace(memory.dense, activations=memory.dense.activations - freed)
        yield DenseChoice(name=f"at most {share:.0%} of activations in memory", dense=dense, costs=_words(made, graph))


def _schedule(graph: TrainingGraph, limit: float, link: float | None) -> ArraySchedule:
    return scheduled(lambda _group, _count: graph, [((0, 1),)], limit, link=link)


def _words(made: ArraySchedule, graph: TrainingGraph) -> str:
    ways = [way for each in made.ways.values() for way in each.values()]
    copied, again = ways.count("swap"), ways.count("recompute")
    parts = [f"{copied} copied to the host"] * bool(copied) + [f"{again} computed again"] * bool(again)
    more = made.seconds / graph.seconds - 1
    return f"{counted(len(ways), 'output')} of layers: {' and '.join(parts)}; layers take {more:.0%} more"


def layers_graph(layers: DenseLayers) -> TrainingGraph:
    """Layers one after the other, forward and backward; each backward reads its layer's input and output."""
    count = len(layers.outputs)
    made = [
        GraphOperation((i - 1,) if i else (), i, size, seconds, forward=True)
        for i, (size, seconds) in enumerate(zip(layers.outputs, layers.forward_s, strict=True))
    ]
    for i in reversed(range(count)):
        gradient = (len(made) - 1,) if made[-1:] and not made[-1].forward else ()
        inputs: Sequence[int] = (*gradient, i, *((i - 1,) if i else ()))
        made.append(GraphOperation(tuple(inputs), len(made), layers.outputs[max(i - 1, 0)],
                                   BACKWARD * layers.forward_s[i], forward=False))  # fmt: skip
    return TrainingGraph(tuple(made), frozenset({len(made) - 1}))
