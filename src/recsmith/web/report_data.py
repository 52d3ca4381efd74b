"""What the report of a plan shows, as plain data; web/src/data.ts names the same fields for the page.

Times are in seconds and sizes in bytes; the page chooses units. Costs are the plan's own. The slowest rank, the
sensitivity to pooling factors, the parts of the memory and the differences between plans come from analyses/,
problems/ and plans/.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from recsmith._types import noun
from recsmith._version import __version__
from recsmith.analyses.cache_curve import CacheCurve, cache_curve
from recsmith.analyses.explain import Phase, phases_of
from recsmith.analyses.placed_costs import PlacedCosts
from recsmith.analyses.sensitivity import Spread, spread_of
from recsmith.costs import cost_model as find_cost_model
from recsmith.costs.published import error_of
from recsmith.errors import UsageError
from recsmith.plans import Bound, DeviceCost, Placement, Plan, diff
from recsmith.plans.diff import is_same_table
from recsmith.plans.files import workload_digest
from recsmith.problems import Problem, footprint_of, problem_holding, problem_of
from recsmith.problems.footprint import memory_parts
from recsmith.reports.advice import ToldAdvice
from recsmith.reports.dynamic_tables import dynamic_words
from recsmith.reports.plan_differences import placement_words
from recsmith.reports.plan_summary import typical_words
from recsmith.reports.plan_words import (
    beneath_words,
    drawn_words,
    hot_rows_words,
    inexact_words,
    overfull_words,
    sequences_words,
    sync_words,
    towers_words,
    wide_text,
)
from recsmith.reports.plans import model_words
from recsmith.workloads import Table

SCHEMA = "recsmith/report/1"
MOST_TABLES = 8  # costliest tables of a phase that are shown
DIGITS = 6  # significant digits of seconds and ids of single tables


@noun
class ShownPiece:
    """Columns [a, b) of a table and the ranks that hold them, as runs (first rank, number of ranks).

    block: number of rows of each rank's block, in the order of the ranks; None if every rank holds all rows.
    """

    columns: tuple[int, int]
    ranks: tuple[tuple[int, int], ...]
    block: int | None


@noun
class ShownTable:
    """A table and where it is placed.

    ids: lookups of one device's batch per step. seconds: by how much the rank that spends most on the table would be
    faster without it. tower: number of its tower, if the plan has towers.
    """

    name: str
    rows: int
    columns: int
    element_bytes: int
    sharding_type: str
    compute_kernel: str
    pieces: tuple[ShownPiece, ...]
    ids: float
    seconds: float
    tower: int | None


@noun
class ShownMemory:
    """Bytes that a device holds, by part in the order of `ReportData.memory_parts`, and its capacity in bytes."""

    rank: int
    bytes: tuple[int, ...]
    capacity: int


@noun
class ShownChange:
    """A table that two plans place differently, with both placements in words."""

    table: str
    before: str
    after: str
    moved_bytes: int


@noun
class ShownPlan:
    """What a plan costs, and how it was made.

    name: the file of the plan, or another name for it. sequences_s: the part of total_s that every device spends under
    any plan on rows of sequence tables. bound: of total_s. notes: further remarks, in sentences. typically: the range
    of the step time by measured errors, in words.
    """

    name: str
    digest: str
    planner: str
    cost_model: str
    cluster: str
    total_s: float
    bound: Bound
    gap: float | None
    devices: tuple[DeviceCost, ...]
    notes: tuple[str, ...]
    sequences_s: float = 0.0
    typically: str = ""


@noun
class ShownWorkload:
    """The size of the problem: tables, bytes and batch."""

    name: str
    digest: str
    tables: int
    weight_bytes: int
    batch_size: int
    optimizer: str


@noun
class ShownDifference:
    """The difference from another plan to the one shown; tables that move most bytes are first.

    other_problem: how the plans solve different problems, in sentences; their costs then cannot be compared.
    """

    other: ShownPlan
    changes: tuple[ShownChange, ...]
    unchanged: int
    moved_bytes: int
    other_problem: tuple[str, ...]


@noun
class ReportData:
    """All that the report of a plan shows; `encode` makes it JSON of schema recsmith/report/1.

    phases: phases of the step, in their order, each with its slowest rank. memory: per device. constraints: what the
    plan had to keep, as the plan file has it. made_by: the version of RecSmith that wrote the report. caches: hit rates
    of tables outside device memory, if there are any. advice: which changes pay, if that was asked.
    """

    schema: str
    made_by: str
    plan: ShownPlan
    workload: ShownWorkload
    phases: tuple[Phase, ...]
    memory_parts: tuple[str, ...]
    memory: tuple[ShownMemory, ...]
    tables: tuple[ShownTable, ...]
    sensitivity: Spread
    against: ShownDifference | None
    caches: CacheCurve | None = None
    advice: ToldAdvice | None = None


def report_data(
    plan: Plan, name: str = "", against: Plan | None = None, other_name: str = "", advice: ToldAdvice | None = None
) -> ReportData:
    """The data of a plan's report, alone or with the difference from another plan for the same tables.

    name, other_name: names of the plans, such as their files.

    Raises:
        UsageError: the other plan is of other tables.
    """
    difference = None if against is None else _difference(plan, against, other_name)
    model = find_cost_model(plan.cost_model)
    problem = problem_holding(problem_of(plan), plan.placements)
    placed = PlacedCosts(model.compile(problem), footprint_of(problem, plan.placements))
    parts = memory_parts(problem, placed.footprint)
    held = zip(*(size.tolist() for size in parts.values()), strict=True)
    return ReportData(
        schema=SCHEMA, made_by=f"recsmith {__version__}", plan=_summary(plan, name), workload=_workload(plan),
        phases=tuple(_shortened(phase) for phase in phases_of(placed)),
        memory_parts=tuple(parts),
        memory=tuple(
            ShownMemory(rank=device.rank, bytes=sizes, capacity=device.hbm_capacity_bytes)
            for device, sizes in zip(plan.cost.per_device, held, strict=True)
        ),
        tables=tuple(_tables(plan, problem, placed)),
        sensitivity=spread_of(model, problem, placed.footprint), against=difference, caches=cache_curve(plan),
        advice=advice,
    )  # fmt: skip


def _summary(plan: Plan, name: str) -> ShownPlan:
    return ShownPlan(
        name=name or plan.workload.name or "plan", digest=plan.digest, planner=plan.planner,
        cost_model=model_words(plan.cost_model, plan), cluster=plan.cluster.describe(), total_s=plan.cost.step_s,
        bound=replace(plan.bound, value_s=plan.bound.of_step(plan.cost)), gap=plan.gap,
        devices=plan.cost.per_device, sequences_s=plan.cost.sequences_s, notes=tuple(notes_of(plan)),
        typically=typically(plan),
    )  # fmt: skip


def typically(plan: Plan) -> str:
    """The range of the step time by measured errors, as the terminal prints it; '' if the errors are unknown."""
    error = error_of(plan)
    return typical_words(plan, error) if error.share else ""


def notes_of(plan: Plan) -> Iterator[str]:
    """Remarks in addition to the figures: the same sentences on the terminal, the page and in the report."""
    towers, drawn = towers_words(plan), drawn_words(plan)
    words = (overfull_words(plan.cost), towers and f"towers: {towers}", sync_words(plan), sequences_words(plan),
             drawn, dynamic_words(plan), beneath_words(plan), inexact_words(plan), wide_text(plan),
             *hot_rows_words(plan))  # fmt: skip
    for text in (*words, str(error_of(plan))):
        if text:
            yield f"{text[0].upper()}{text[1:]}."
    if plan.extrapolated:
        inputs = ", ".join(f"{name} by {factor:.3g} times" for name, factor in plan.extrapolated.items())
        yield f"The cost model was not trained on such inputs: {inputs} beyond what it has seen."


def _workload(plan: Plan) -> ShownWorkload:
    given = plan.workload
    return ShownWorkload(
        name=given.name, digest=workload_digest(given), tables=len(given.tables), weight_bytes=given.weight_bytes,
        batch_size=given.batch_size, optimizer=given.optimizer,
    )  # fmt: skip


def _shortened(phase: Phase) -> Phase:
    """The phase with only its MOST_TABLES costliest tables."""
    dearest = tuple(share for share in phase.tables if share.seconds > 0)[:MOST_TABLES]
    return Phase(rank=phase.rank, seconds=phase.seconds, mean_s=phase.mean_s, parts=phase.parts, tables=dearest)


def _tables(plan: Plan, problem: Problem, placed: PlacedCosts) -> Iterator[ShownTable]:
    """Every table, in the order of the problem."""
    placements = {placement.table: placement for placement in plan.placements}
    towers = {name: number for number, tower in enumerate(plan.towers) for name in tower}
    saved = placed.most_saved.tolist()
    for index, table in enumerate(problem.tables):
        placement = placements[table.name]
        yield ShownTable(
            name=table.name, rows=table.num_embeddings, columns=table.embedding_dim,
            element_bytes=table.element_bytes, sharding_type=placement.sharding_type,
            compute_kernel=placement.compute_kernel, pieces=tuple(_pieces(plan, table, placement)),
            ids=_rounded(float(problem.demand.ids[index])), seconds=_rounded(saved[index]),
            tower=towers.get(table.name),
        )  # fmt: skip


def _pieces(plan: Plan, table: Table, placement: Placement) -> Iterator[ShownPiece]:
    """The column pieces of a table, left to right."""
    kind, ranks = placement.kind, placement.ranks
    widths = placement.widths_of(table.embedding_dim)
    size = kind.coverage(plan.cluster)
    rows = kind.shards(table, ranks[:1], widths[:1], plan.cluster)[0].rows[1]
    left = 0
    for number, width in enumerate(widths):
        yield ShownPiece(
            columns=(left, left + width), ranks=_runs(ranks[number * size : (number + 1) * size]),
            block=rows if rows < table.num_embeddings else None,
        )  # fmt: skip
        left += width


@lru_cache(maxsize=4096)
def _runs(ranks: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """Ranks, in their order, as runs of consecutive ones: (first rank, number of ranks)."""
    runs: list[tuple[int, int]] = []
    for rank in ranks:
        if runs and rank == sum(runs[-1]):
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((rank, 1))
    return tuple(runs)


def _rounded(value: float) -> float:
    """A number rounded to DIGITS significant digits, which keeps the file small; 0.0 if it is not finite."""
    return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else 0.0


def _difference(plan: Plan, against: Plan, other_name: str) -> ShownDifference:
    """The difference from the other plan to this one."""
    _check_same_tables(plan, against)
    found = diff(against, plan)
    ordered = found.largest_first
    return ShownDifference(
        other=_summary(against, other_name), unchanged=found.unchanged, moved_bytes=found.moved_bytes,
        changes=tuple(
            ShownChange(
                table=each.table, before=placement_words(each.before), after=placement_words(each.after),
                moved_bytes=each.moved_bytes,
            )
            for each in ordered
        ),
        other_problem=found.other_problem,
    )  # fmt: skip


def _check_same_tables(plan: Plan, against: Plan) -> None:
    """Raise UsageError for plans of different workloads, which cannot be compared."""
    mine, theirs = ({table.name: table for table in each.workload.tables} for each in (plan, against))
    shapes = sum(not is_same_table(mine[name], theirs[name]) for name in mine.keys() & theirs.keys())
    if shapes or mine.keys() != theirs.keys():
        raise UsageError(
            f"the other plan is of another workload: {len(mine.keys() - theirs.keys())} tables are only in this plan, "
            f"{len(theirs.keys() - mine.keys())} only in the other, {shapes} have another shape; give --against a plan "
            "of the same tables"
        )
