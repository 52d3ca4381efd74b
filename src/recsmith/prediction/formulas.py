"""The step of a described model on a cluster that was not measured: tables by cost model, layers by formulas.

The seconds of layers are operations over the reached speed of matrix units, and bytes over the reached bandwidth of
device memory. The shares of the peaks that are reached come from published profiles of HSTU: one of an H100, and traced
steps of MLPerf's reference on B200 and MI350X. The sum is checked against whole steps that others published and to
which nothing was fitted (docs/sequences.md, benchmarks/hstu_formulas.py).

B samples of a rank, W ranks
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from recsmith.clusters import Device
from recsmith.costs.sequence_rows import sequence_seconds
from recsmith.errors import UsageError
from recsmith.planning.simulate import price_plan
from recsmith.plans import Plan
from recsmith.prediction.dense_shapes import NUMBER_BYTES, numbers_of
from recsmith.prediction.graph import CollectiveRun, Event, Graph, Kind, check_graph
from recsmith.prediction.histories import HistoryWork, history_layers_s
from recsmith.prediction.job_step import gradients_s
from recsmith.prediction.models import HISTORIES, Model, layer_shapes
from recsmith.prediction.speeds import layers_s

# Operations (products and sums) per second of matrix units in bf16 without sparsity: pytorch/torchtitan, get_peak_flops
# (with pull request 4779 for mi350x and mi355x); SemiAnalysis and NVIDIA/Megatron-LM issue 1276 (989 of an H100 SXM);
# PrimeIntellect-ai/prime-rl pull requests 1722 (mi300x, mi325x) and 3168 (b300, gb200, gb300).
MATRIX_FLOPS = {
    "a100-40": 3.12e14, "a100-80": 3.12e14, "h100": 9.89e14, "h200": 9.89e14, "b200": 2.25e15,
    "b300": 2.25e15, "gb200": 2.5e15, "gb300": 2.5e15,
    "mi300x": 1.307e15, "mi325x": 1.307e15, "mi350x": 2.3e15, "mi355x": 2.5e15,
}  # fmt: skip
# Shares of these peaks that kernels of HSTU reached on an H100 (meta-recsys/generative-recommenders issue 530: five
# layers, 99 thousand positions, 9.30 ms forward: 39.8 % products, 39.1 % attention, the rest other kernels). Products
# of a traced step of MLPerf's reference took 138.4 ms on MI350X and 77.1 ms on B200, whose peaks are nearly the same
# (chriscai-amd/training, branch jiawei/dlrmv4_opt at ad52cb1, recommendation/docs/perf_opt.md).
PRODUCTS, ATTENTION, MEMORY = 0.50, 0.24, 0.8
AMD = ("mi300x", "mi325x", "mi350x", "mi355x")
PRODUCTS_ON_AMD = 0.28
BF16_BYTES, FP32_BYTES = 2, 4
CAUSAL = 0.5  # share of the pairs of positions that kernels of attention multiply
PRODUCTS_BACK, MOVED_BACK = 2.0, 2.0  # backward pass relative to the forward pass
ATTENTION_BACK = 4.5  # backward relative to forward: 4.4 in the traced step on MI350X, 4.68 on B200
# Fitted to the step on B200, 558 ms: work on a column of a position outside of layers, counted as reads and writes of
# fp32 in each direction for each sequence: casts, copies, dropout, encoders, codecs, and 14 % of that step in which
# devices waited for their host or copied its batch.
AROUND_PASSES = 42
# Seconds of a block, fitted to 52 ms a step of 32 samples on 8 MI350X with five blocks (mlcommons/training,
# recommendation_v4/docs/training_recipe.md at 671e7e6): kernels of small batches end before their host has launched the
# next.
LAUNCHES_S = 10.4e-3
OPTIMIZER_PASSES = 7  # over fp32 numbers: Adam reads weight, gradient and two moments, and writes three
ERROR = (
    "of formulas: tables as cost model {model} prices them, layers by operations and bytes of {device} at the shares "
    "of its peaks that published profiles reached; {checked}"
)
# From whole steps that others published and to which nothing was fitted (benchmarks/hstu_formulas.py), and their
# devices.
OF_HISTORIES = (
    "for 11 published steps of MLPerf's HSTU they predict 0.56 to 1.32 times the published time, for 9 of them 0.75 to "
    "1.01 times", ("mi350x", "gb300"),
)  # fmt: skip
OF_POOLED = (
    "for 4 published steps of MLPerf's tuned DLRM-v2 they predict 1.26 to 1.51 times the published time",
    ("h100", "h200", "b200"),
)
ON_CPU = (
    "a sum: tables as cost model {model} prices them, since templates know tables that are whole or cut by columns, "
    "and layers as the machine's kernels"
)


class LayerPart(NamedTuple):
    """A kind of kernels of dense layers: its seconds in the forward and backward pass."""

    term: str
    forward_s: float
    backward_s: float


def matrix_flops(model: Model, device: Device) -> float:
    """Operations per second of a device's matrix units; UsageError if neither model nor table has the figure."""
    found = model.matrix_flops or MATRIX_FLOPS.get(device.name)
    if found is None:
        raise UsageError(
            f"no figure says how fast matrix units of device '{device.name}' are (known: {', '.join(MATRIX_FLOPS)}); "
            "give the model's file matrix_flops, products and sums a second in bf16"
        )
    return found


def formula_graph(model: Model, plan: Plan, batch: int | None, cost_model: str | None = None) -> tuple[Graph, str]:
    """The graph of a step on every rank of a plan, of any sharding types, and a sentence on how it was made.

    batch: samples per rank, instead of the plan's. cost_model: cost model of the tables, instead of the plan's.

    Raises:
        UsageError: the speed of the device's matrix units is not known, or the model reads tables otherwise than the
            plan has them.
    """
    _check_tables(model, plan)
    workload = replace(plan.workload, batch_size=batch or plan.workload.batch_size)
    named = cost_model or plan.cost_model
    cost = price_plan(replace(plan, workload=workload, digest=""), named).per_device
    device, ranks, samples = plan.cluster.device, plan.cluster.world_size, workload.batch_size
    shapes = shapes_of_model(model, plan)
    numbers = numbers_of(shapes)
    rows = LayerPart("rows of sequences", sequence_seconds(workload, plan.cluster), 0.0)
    parts = [*([rows] if rows.forward_s else []), *_layers(model, plan, shapes, samples)]
    error = ON_CPU.format(model=named) if device.kind == "cpu" else _error(model, named, device.name)
    everybody = tuple(range(ranks))
    met = [
        ("all_to_all", 0.0, max(each.forward_comm_s for each in cost)),
        ("all_to_all", 0.0, max(each.backward_comm_s for each in cost)),
        ("all_reduce", float(NUMBER_BYTES * numbers), gradients_s(numbers, plan.cluster)),
    ]
    collectives = tuple(
        CollectiveRun(name=name, bytes=size, seconds=seconds, ranks=everybody)
        for name, size, seconds in met
        if ranks > 1
    )
    update = OPTIMIZER_PASSES * FP32_BYTES * numbers / (MEMORY * device.hbm_bandwidth)
    if model.kind in HISTORIES and device.kind != "cpu":
        computed = max(each.forward_compute_s + each.backward_compute_s for each in cost) + update
        computed += sum(each.forward_s + each.backward_s for each in parts)
        waited = LAUNCHES_S * model.blocks - computed - sum(seconds for _, _, seconds in met[:2])
        parts = [LayerPart("launches", max(0.0, waited), 0.0), *parts]
    tapes = [
        tuple(_tape(each.forward_compute_s, each.backward_compute_s, parts, update, several=ranks > 1)) for each in cost
    ]
    graph = Graph(ranks=tuple(tapes), collectives=collectives, lanes=len(collectives) or 1, batch_size=samples)
    check_graph(graph)
    return graph, error


def _check_tables(model: Model, plan: Plan) -> None:
    rows = [table.name for table in plan.workload.tables if not table.pooled]
    if model.kind in HISTORIES and not rows:
        raise UsageError(
            f"a model of kind {model.kind} reads each row of a history, and all tables of the plan are pooled; plan "
            "for tables with pooling: none, or describe a dlrm"
        )
    if model.kind not in HISTORIES and rows:
        raise UsageError(
            f"table '{rows[0]}' gives each row of a history (pooling: none), and a model of kind {model.kind} reads "
            f"pooled tables alone; describe a model of kind {' or '.join(HISTORIES)}"
        )


def _error(model: Model, cost_model: str, device: str) -> str:
    checked, devices = OF_HISTORIES if model.kind in HISTORIES else OF_POOLED
    checked += "" if device in devices else f"; none of these is of {device}"
    return ERROR.format(model=cost_model, device=device, checked=checked)


def _tape(
    forward_s: float, backward_s: float, parts: Sequence[LayerPart], update_s: float, *, several: bool
) -> list[Event]:
    """The events of a rank: lookups and their exchange, layers forward and backward, exchange and update of tables.

    Gradients of layers are exchanged at the same time as those of tables.
    """

    def run(seconds: float, term: str) -> Event:
        return Event(Kind.RUN, seconds, term, term)

    def meet(kind: Kind, number: int) -> list[Event]:
        return [Event(kind, 0.0, "wait", "collective", collective=number)] if several else []

    return [
        run(forward_s, "embedding_forward"), *meet(Kind.ISSUE, 0), *meet(Kind.AWAIT, 0),
        *(run(part.forward_s, part.term) for part in parts),
        *(run(part.backward_s, part.term) for part in reversed(parts)),
        *meet(Kind.ISSUE, 1), *meet(Kind.ISSUE, 2), *meet(Kind.AWAIT, 1),
        run(backward_s, "embedding_backward"), *meet(Kind.AWAIT, 2), run(update_s, "optimizer"),
    ]  # fmt: skip


def shapes_of_model(model: Model, plan: Plan) -> list[tuple[int, ...]]:
    """Shapes of the dense parameters of a model over the tables of a plan."""
    tables = plan.workload.tables
    width = max(table.embedding_dim for table in tables)
    if model.kind in HISTORIES:
        return [(out, inward) for _, out, inward in history_work(model, plan).products]
    return layer_shapes(model, sum(len(table.features) for table in tables), width)


def history_work(model: Model, plan: Plan) -> HistoryWork:
    """The work of the layers of `hstu` on a sample, whose history is the longest feature of the plan's tables.

    All samples are counted as long as the mean. This undercounts attention, because the square of the mean is less than
    the mean of squares.
    """
    tables = plan.workload.tables
    longest = max(each.pooling_factor for table in tables for each in table.features)
    n, width = float(model.history or longest), max(table.embedding_dim for table in tables)
    wide, narrow = model.heads * model.linear_dim, model.heads * model.attention_dim
    block = [(n, 2 * (wide + narrow), width), (n, width, model.output_streams * wide)]
    head = [(1.0, out, inward) for inward, out in pairwise((width, *model.top, 1))]
    return HistoryWork(
        products=(*block * model.blocks, *head), blocks=model.blocks, heads=model.heads, keys=model.attention_dim,
        values=model.linear_dim, positions=n, pairs=n * n, width=width,
    )  # fmt: skip


def _layers(model: Model, plan: Plan, shapes: Sequence[Sequence[int]], batch: int) -> list[LayerPart]:
    device = plan.cluster.device
    features = [each for table in plan.workload.tables for each in table.features]
    width = plan.workload.tables[0].embedding_dim
    work = history_work(model, plan) if model.kind in HISTORIES else None
    if device.kind == "cpu":
        pairs = (len(features), width) if model.kind == "dlrm" else None
        whole = layers_s(shapes, batch, pairs) if work is None else history_layers_s(work, batch)
        return [LayerPart("layers", whole / 3, whole * 2 / 3)]
    flops = matrix_flops(model, device)
    if work is None:
        products = sum(2 * out * inward for out, inward in _matrices(shapes))
        pairs = len(features) * (len(features) + 1) * width if model.kind == "dlrm" else 0
        moved = 2 * BF16_BYTES * sum(out + inward for out, inward in _matrices(shapes))
        return _parts(batch * (products + pairs), 0.0, batch * moved, 0.0, flops, device)
    return history_parts(work, batch, flops, device, sequences=1 + len(model.joined))


def history_parts(
    work: HistoryWork, batch: int, flops: float, device: Device, *, sequences: int = 1
) -> list[LayerPart]:
    """Seconds of the layers of `hstu` on a batch. sequences: number of those whose rows are moved into place."""
    products = sum(2 * rows * out * inward for rows, out, inward in work.products)
    attention = CAUSAL * 2 * (work.keys + work.values) * work.heads * work.pairs * work.blocks
    wide = work.heads * work.values
    gated = BF16_BYTES * work.blocks * work.positions * (5 * work.width + 5 * wide)  # norms, gates, shortcuts
    around = AROUND_PASSES * FP32_BYTES * work.positions * work.width * sequences
    return _parts(batch * products, batch * attention, batch * gated, batch * around, flops, device)


def _matrices(shapes: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    return [(shape[0], shape[1]) for shape in shapes if len(shape) == 2]


def _parts(
    products: float, attention: float, gated: float, around: float, flops: float, device: Device
) -> list[LayerPart]:
    """The kinds of kernels with their seconds: those of operations, and those of bytes."""
    memory, reached = MEMORY * device.hbm_bandwidth, flops * (PRODUCTS_ON_AMD if device.name in AMD else PRODUCTS)
    made = [
        LayerPart("around layers", around / memory, around / memory),
        LayerPart("products", products / reached, PRODUCTS_BACK * products / reached),
        LayerPart("attention", attention / (ATTENTION * flops), ATTENTION_BACK * attention / (ATTENTION * flops)),
        LayerPart("gates and norms", gated / memory, MOVED_BACK * gated / memory),
    ]
    return [each for each in made if each.forward_s > 0]
