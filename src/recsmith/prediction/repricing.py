"""Prices a captured step under another plan of its embedding tables, or at another batch size.

Lookups and all-to-alls are replaced by those of the other plan; kernels between them grow with the ids or columns that
a rank holds; all other kernels are kept, or grow with the batch. Every time is the captured one, times the machine's
prediction for the new size over that for the old one, so only the machine's proportions matter.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from recsmith.errors import UsageError
from recsmith.plans import Plan
from recsmith.prediction.graph import CollectiveRun, Event, Graph, KernelShape, Kind, Tape, with_seconds
from recsmith.prediction.host_steps import THEN
from recsmith.prediction.kernels import LOOKUPS, within_step
from recsmith.prediction.machine import Machine
from recsmith.prediction.models import Model
from recsmith.prediction.models.build import tables_of
from recsmith.prediction.models.step import GRADIENT
from recsmith.prediction.models.templates import RankTables, sparse_step

EXCHANGE = "all_to_all"
EXCHANGES = 5  # all-to-alls of a step with one lookup: splits, lengths, ids, pooled rows, their gradients
CLOSE = 0.01  # relative difference of elements up to which tables count as the same
DENSE, BY_IDS, BY_COLUMNS = range(3)  # what the work at a place of a tape grows with, besides the batch


def reprice(graph: Graph, machine: Machine, *, plan: Plan | None = None, batch: int | None = None) -> Graph:
    """The captured graph under another plan of the same tables, at another batch size per rank, or both.

    Raises:
        UsageError: the trace has no lookup or several on a rank, or the plan has other tables or ranks than the trace.
    """
    held, captured_batch = held_tables(graph)
    samples = batch or captured_batch
    wanted = held if plan is None else _wanted(plan, held)
    shapes = [_lookup_shape(each, samples * each.ranks) for each in wanted]
    factors = _lookup_factors(graph, machine)
    tapes: list[Tape] = []
    for tape, old, new, shape in zip(graph.ranks, held, wanted, shapes, strict=True):
        growth = samples / captured_batch
        ratios = (growth, growth * new.ids / old.ids, growth * new.columns / old.columns)
        tapes.append(_tape(tape, graph.collectives, machine, ratios, shape, factors))
    sizes = (_exchanged(held, captured_batch), _exchanged(wanted, samples))
    meetings = _collectives(graph.collectives, machine, *sizes) if len(held) > 1 else graph.collectives
    return replace(graph, ranks=tuple(tapes), collectives=meetings, measured_s=None, batch_size=samples)


def held_tables(graph: Graph) -> tuple[list[RankTables], int]:
    """The tables that each rank of a captured graph holds, according to its lookup, and the samples per rank.

    Raises:
        UsageError: a rank has no lookup, or several, or a step has another number of all-to-alls than is known here.
    """
    ranks = len(graph.ranks)
    shapes = [_lookup_of(rank, tape) for rank, tape in enumerate(graph.ranks)]
    exchanges = sum(each.name == EXCHANGE for each in graph.collectives)
    if ranks > 1 and exchanges != EXCHANGES:
        raise UsageError(
            f"the trace has {exchanges} all-to-alls in a step, and a lookup of tables that are placed whole or by "
            f"columns has {EXCHANGES}; other jobs: capture a step under the other plan"
        )
    batch = max(1, round(max(bags / tables for tables, _, bags, _, _ in shapes) / ranks))
    whole = batch * ranks
    ids, columns = sum(shape[1] for shape in shapes) / whole, round(sum(shape[3] for shape in shapes))
    width, features = round(max(shape[3] / shape[0] for shape in shapes)), round(sum(shape[0] for shape in shapes))
    return [
        RankTables(ranks=ranks, tables=round(tables), elements=elements, ids=mine / whole, columns=round(out),
                   all_ids=ids, all_columns=columns, features=features, width=width)
        for tables, mine, _, out, elements in shapes
    ], batch  # fmt: skip


def _lookup_of(rank: int, tape: Tape) -> tuple[float, ...]:
    """The shape of a rank's lookup: tables, ids, bags, columns, elements."""
    found = [event.kernel for event in tape if event.term == LOOKUPS[0] and event.kernel is not None]
    lookups = round(sum(kernel.share for kernel in found))
    if lookups != 1 or len(found[0].shape) < 5 or min(found[0].shape[:5]) <= 0:
        raise UsageError(
            f"rank {rank} of the trace has {lookups} lookups of embedding tables in a step; another plan or batch "
            "can be priced where every rank has exactly one, which tells how many samples there are: capture a step "
            "whose plan gives tables to all ranks, or describe the model"
        )
    return found[0].shape[:5]


def _wanted(plan: Plan, held: Sequence[RankTables]) -> list[RankTables]:
    """The tables that each rank holds under a plan, with the captured ids distributed as the plan's are."""
    wanted = tables_of(plan)
    if len(wanted) != len(held):
        raise UsageError(f"the plan is of {len(wanted)} ranks, and the trace of {len(held)}; plan for as many ranks")
    have, need = (sum(each.elements for each in some) for some in (held, wanted))
    if abs(have - need) > CLOSE * have:
        raise UsageError(
            f"the plan's tables have {need:,.0f} elements and the captured job's {have:,.0f}; plan the tables of the "
            "captured job"
        )
    scale = held[0].all_ids / max(wanted[0].all_ids, 1e-12)
    return [replace(each, ids=each.ids * scale, all_ids=held[0].all_ids) for each in wanted]


def _lookup_shape(tables: RankTables, samples: int) -> tuple[float, ...]:
    """The shape of a rank's lookup of the samples of all ranks."""
    return (float(tables.tables), samples * tables.ids, float(samples * tables.tables), float(tables.columns),
            tables.elements, 0.0)  # fmt: skip


def _lookup_factors(graph: Graph, machine: Machine) -> dict[str, float]:
    """Captured over predicted seconds of the lookups of all ranks, forward and backward."""
    factors: dict[str, float] = {}
    for term in LOOKUPS:
        events = [event for _, event in graph.kernels() if event.term == term and event.kernel is not None]
        said = machine.kernels.seconds([event.kernel for event in events if event.kernel is not None])
        factors[term] = sum(_seconds(event) for event in events) / max(float(said.sum()), 1e-12)
    return factors


def _seconds(event: Event) -> float:
    return event.work_s or event.seconds


def _tape(
    tape: Tape, collectives: Sequence[CollectiveRun], machine: Machine, ratios: tuple[float, float, float],
    lookup: tuple[float, ...], factors: dict[str, float],
) -> Tape:  # fmt: skip
    """A rank's tape with other lookups and grown kernels. ratios: growth with samples alone, ids, and columns."""
    zones, fixed = _zones(tape, collectives), _fixed(tape)
    places = [place for place, event in enumerate(tape) if event.kernel is not None]
    kernels = [kernel for event in tape if (kernel := event.kernel)]
    wanted = within_step([
        kernel._replace(shape=lookup) if kernel.kind in LOOKUPS
        else kernel if fixed[place] else grown(kernel, ratios[zones[place]])
        for place, kernel in zip(places, kernels, strict=True)
    ])  # fmt: skip
    old, new = machine.kernels.seconds(kernels).tolist(), machine.kernels.seconds(wanted).tolist()
    made = list(tape)
    for place, kernel, before, after in zip(places, wanted, old, new, strict=True):
        if kernel.kind in LOOKUPS:
            seconds = factors[kernel.kind] * after if lookup[0] else 0.0
        else:
            seconds = _seconds(tape[place]) * after / before
        made[place] = with_seconds(tape[place], seconds)._replace(kernel=kernel)
    return tuple(made)


def grown(kernel: KernelShape, ratio: float) -> KernelShape:
    """A kernel on `ratio` times as many samples.

    In a product (gemm), the samples are the batch, the rows, or, if a gradient of weights sums over them, the summed
    dimension.
    """
    shape = list(kernel.shape)
    if kernel.kind == "gemm":
        place = 0 if shape[0] > 1 else 2 if shape[4] else 1
        shape[place] = max(1.0, shape[place] * ratio)
    elif kernel.kind == "reduction":
        shape[0], shape[2] = shape[0] * ratio, shape[2] * ratio
    else:
        shape[0], shape[1] = shape[0] * ratio, shape[1] * ratio
    return kernel._replace(shape=tuple(shape))


def _zones(tape: Tape, collectives: Sequence[CollectiveRun]) -> list[int]:
    """What the work at each place grows with: ids between their exchange and the lookup, columns around the others."""
    zones = [DENSE] * len(tape)
    meets = [place for place, event in enumerate(tape)
             if event.kind in (Kind.ISSUE, Kind.AWAIT) and collectives[event.collective].name == EXCHANGE]  # fmt: skip
    terms = [event.term for event in tape]
    forward = terms.index(LOOKUPS[0])
    backward = terms.index(LOOKUPS[1]) if LOOKUPS[1] in terms else len(tape)
    before = [place for place in meets if place < forward and tape[place].kind == Kind.AWAIT]
    after = [place for place in meets if place > forward]
    back = [place for place in meets if forward < place < backward and tape[place].kind == Kind.AWAIT]
    if before:
        zones[before[0] : forward] = [BY_IDS] * (forward - before[0])
    if after:
        zones[forward : after[0]] = [BY_COLUMNS] * (after[0] - forward)
    if len(back) > 1 and backward < len(tape):
        zones[back[-1] : backward] = [BY_COLUMNS] * (backward - back[-1])
    return zones


def _fixed(tape: Tape) -> list[bool]:
    """Whether the work at a place has the size of parameters, not of samples: gradients, buckets, and the optimizer."""
    top, fixed, last = "", [False] * len(tape), -1
    for place, event in enumerate(tape):
        if event.kind == Kind.HOST:
            top = event.label.rpartition(THEN)[2]
        if top.endswith(GRADIENT):
            fixed[place], last = True, place
    return [each or (0 <= last < place) for place, each in enumerate(fixed)]


def _exchanged(tables: Sequence[RankTables], batch: int) -> list[float]:
    """Bytes of each all-to-all of a step, on the rank that sends or receives most."""
    steps = [sparse_step(Model(kind="dlrm"), each, batch).collectives for each in tables]
    return np.max([[size for name, size in step if name == EXCHANGE] for step in steps], axis=0).tolist()


def _collectives(
    collectives: Sequence[CollectiveRun], machine: Machine, old: list[float], new: list[float]
) -> tuple[CollectiveRun, ...]:
    """The collectives with all-to-alls of other sizes; those of gradients are unchanged."""
    sizes = iter(zip(old, new, strict=True))
    made: list[CollectiveRun] = []
    for each in collectives:
        if each.name != EXCHANGE:
            made.append(each)
            continue
        before, after = next(sizes)
        size = each.bytes * after / before
        curve = machine.curve(EXCHANGE, len(each.ranks)) or machine.curve(EXCHANGE, 2)
        both = curve.seconds(np.maximum([each.bytes, size], 1.0)) if curve else np.array([before, after])
        made.append(replace(each, bytes=size, seconds=each.seconds * float(both[1] / both[0])))
    return tuple(made)
