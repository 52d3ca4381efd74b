"""Builds the execution graph of a described model: operators from templates, seconds from a machine."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from recsmith.errors import UsageError
from recsmith.plans import Plan
from recsmith.plans.plan import shards_of
from recsmith.prediction.graph import CollectiveRun, Event, Graph, KernelShape, Kind, Tape, check_graph, with_seconds
from recsmith.prediction.host_steps import AFTER, BEFORE, between
from recsmith.prediction.kernels import within_step
from recsmith.prediction.machine import Machine
from recsmith.prediction.models import SPARSE, Model
from recsmith.prediction.models.step import CollectiveMark, Op, Step
from recsmith.prediction.models.templates import RankTables, mlp_step, sparse_step, transformer_step
from recsmith.prediction.operators import kind_of
from recsmith.prediction.overheads import Term, overhead_s

TYPES = ("table_wise", "column_wise")  # sharding types whose operators the templates know
STREAM = "compute"  # stream of kernels on a GPU
LANES = 2  # collectives that gloo runs at a time on a rank


def model_graph(model: Model, machine: Machine, *, plan: Plan | None, ranks: int, batch: int | None) -> Graph:
    """The graph of a step on every rank. batch: samples per rank, instead of the plan's or the model's.

    Raises:
        UsageError: a model with tables has no plan, one without tables has one, or no template covers the plan.
    """
    if (plan is None) == (model.kind in SPARSE):
        advice = (
            "has embedding tables; name their --plan" if plan is None else "has no embedding tables; leave out --plan"
        )
        raise UsageError(f"model '{model.name or model.kind}' {advice}")
    if plan is not None:
        samples = batch or plan.workload.batch_size
        steps = [sparse_step(model, tables, samples) for tables in tables_of(plan)]
    else:
        samples = batch or model.batch_size
        steps = [mlp_step(model, samples) if model.kind == "mlp" else transformer_step(model, samples)] * ranks
    return _graph(steps, machine, samples)


def tables_of(plan: Plan) -> list[RankTables]:
    """The tables that each rank of a plan holds; UsageError if no template covers them."""
    workload = plan.workload
    tables = {table.name: table for table in workload.tables}
    odd = next((each for each in plan.placements if each.sharding_type not in TYPES), None)
    if odd is not None:
        raise UsageError(
            f"the plan has table '{odd.table}' {odd.sharding_type}, and templates know {' and '.join(TYPES)} alone; "
            f"plan with --types {','.join(TYPES)}, or capture a step of the job"
        )
    flat = next((table for table in workload.tables if not table.pooled or table.data_type != "fp32"), None)
    widths = {table.embedding_dim for table in workload.tables}
    if flat is not None or len(widths) > 1:
        which = f"table '{flat.name}' is a sequence or not fp32" if flat else f"tables have {sorted(widths)} columns"
        raise UsageError(f"{which}; templates know pooled fp32 tables of one width, as DLRM has them")
    ids = {name: sum(each.pooling_factor * each.num_poolings for each in table.features)
           for name, table in tables.items()}  # fmt: skip
    features, width = sum(len(table.features) for table in workload.tables), widths.pop()
    found: list[RankTables] = []
    for rank in range(plan.cluster.world_size):
        mine = [each for each in shards_of(plan.placements, workload, plan.cluster) if each.rank == rank]
        columns = [(shard.columns[1] - shard.columns[0]) * len(tables[shard.table].features) for shard in mine]
        elements = sum((shard.columns[1] - shard.columns[0]) * tables[shard.table].num_embeddings for shard in mine)
        found.append(
            RankTables(
                ranks=plan.cluster.world_size, tables=sum(len(tables[shard.table].features) for shard in mine),
                elements=float(elements), ids=sum(ids[shard.table] for shard in mine), columns=sum(columns),
                all_ids=sum(ids.values()), all_columns=features * width, features=features, width=width,
            )
        )  # fmt: skip
    return found


def _graph(steps: Sequence[Step], machine: Machine, batch: int) -> Graph:
    """The graph of the steps with seconds of all operators; a collective has the size of its busiest rank."""
    ranks = len(steps)
    sizes = np.array([[size for _, size in step.collectives] for step in steps]).max(axis=0)
    names = [name for name, _ in steps[0].collectives]
    collectives = tuple(
        CollectiveRun(name=name, bytes=float(size), seconds=machine.collective_s(name, float(size), ranks),
                   ranks=tuple(range(ranks)))
        for name, size in zip(names, sizes, strict=True)
    )  # fmt: skip
    priced: dict[int, Tape] = {id(step): tape_of(step.ops, machine) for step in steps}
    graph = Graph(ranks=tuple(priced[id(step)] for step in steps), collectives=collectives, lanes=LANES,
                  batch_size=batch)  # fmt: skip
    check_graph(graph)
    return graph


def tape_of(ops: Sequence[Op], machine: Machine) -> Tape:
    """The events of operators: T1 before each, T2 and T3 around its kernels, T5 between them or in their place."""
    known = machine.overheads.by_key()
    kernels = within_step([part for op in ops for part in op.parts if isinstance(part, KernelShape)])
    priced = zip(kernels, machine.kernels.seconds(kernels).tolist(), strict=True)
    events: list[Event] = []

    def host(term: Term, label: str) -> None:
        events.append(Event(Kind.HOST, overhead_s(known, term, label), term, label))

    last = BEFORE
    for op in ops:
        waits = _waits_before(op)
        events += [_wait(part, op, machine) for part in waits]
        host("T1", between(last, op.name))
        last = op.name
        parts = op.parts[len(waits) :]
        bare = kind_of(op.name) is not None or op.name.startswith("c10d::")
        for place, part in enumerate(parts):
            if not bare:
                host("T5" if place else "T2", op.name)
            if isinstance(part, KernelShape):
                kernel, seconds = next(priced)
                events.append(_run(part.kind, op, seconds, kernel, known if machine.on_gpu else None))
            elif part.kind == Kind.AWAIT:
                events.append(_wait(part, op, machine))
            else:
                issue = f"c10d::{'alltoall_base_' if op.name.startswith(('c10d', 'All2All')) else 'allreduce_'}"
                events.append(
                    Event(
                        Kind.ISSUE,
                        overhead_s(known, "T4", issue),
                        "T4",
                        issue,
                        stream=_stream(machine),
                        collective=part.collective,
                    )
                )
        if not bare or not parts:
            host("T3" if parts else "T5", op.name)
    host("T1", between(last, AFTER))
    return tuple(events)


def _waits_before(op: Op) -> list[CollectiveMark]:
    """Waits before an operator that is the first to use a result; () if TorchRec's own wait is inside the operator."""
    if op.name.startswith("All2All"):
        return []
    return [part for part in op.parts if isinstance(part, CollectiveMark) and part.kind == Kind.AWAIT]


def _stream(machine: Machine) -> str:
    return STREAM if machine.on_gpu else ""


def _run(
    kind: str, op: Op, seconds: float, kernel: KernelShape, launches: dict[tuple[str, str], float] | None
) -> Event:  # fmt: skip
    """A kernel that the host runs, or that the host of a GPU launches."""
    if launches is None:
        return Event(Kind.RUN, seconds, kind, op.name, kernel=kernel)
    return Event(Kind.LAUNCH, overhead_s(launches, "T4", op.name), kind, op.name, seconds, STREAM, kernel=kernel)


def _wait(part: CollectiveMark, op: Op, machine: Machine) -> Event:
    kind = Kind.STREAM_AWAIT if machine.on_gpu else Kind.AWAIT
    return Event(kind, 0.0, "wait", op.name, stream=_stream(machine), collective=part.collective)


def with_embeddings(graph: Graph, forward_s: Sequence[float], backward_s: Sequence[float]) -> Graph:
    """The graph with the given seconds of the embedding kernels of each rank: those of a cost model."""
    seconds = {"embedding_forward": forward_s, "embedding_backward": backward_s}
    tapes = [
        tuple(with_seconds(event, seconds[event.term][rank]) if event.term in seconds else event for event in tape)
        for rank, tape in enumerate(graph.ranks)
    ]
    return replace(graph, ranks=tuple(tapes))
