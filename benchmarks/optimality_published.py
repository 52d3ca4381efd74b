"""A published plan beside the best one, both under the publisher's own costs: `optimality.py published`.

TorchRec's report says for each table what it costs (ms), how it is split and on which ranks it stands. Here the same
tables, split in the same way, are placed anew: RecSmith's bound and planner `auto`, with the report's milliseconds in
the place of a cost model. A table's milliseconds are divided evenly over its shards, as equal shards cost the same.
"""

from dataclasses import dataclass, replace

import numpy as np

from recsmith._types import Floats
from recsmith.bounds import lower_bound
from recsmith.bounds.relaxation import Relaxation
from recsmith.clusters import load_cluster
from recsmith.costs import AdditiveEvaluator
from recsmith.files import read_text
from recsmith.planning import find_planner
from recsmith.problems import Constraints, Problem, Space, TableRule, build_problem, memory_used
from recsmith.workloads import Table, load_workload
from recsmith.workloads.torchrec_report import table_rows

Cells = dict[str, str]
KINDS = ("table_wise", "column_wise", "row_wise")
HBM_GIB = 138.0  # the report's planning memory a rank
RESERVE_GIB = 62.667 + 18.2  # its dense storage and its KJT storage a rank


@dataclass(frozen=True)
class GivenSeconds:
    """The seconds of whole tables (T,), summed over all ranks, in the place of a formula.

    All seconds stand in the first of the four parts; only their sum counts.
    """

    problem: Problem
    seconds: Floats

    def __call__(self, modes: np.ndarray, widths: np.ndarray) -> Floats:
        """Seconds (N, 4) of pieces on each rank that they cover: in proportion to columns and ranks."""
        table, made = self.problem.modes.table[modes], np.zeros((len(modes), 4))
        share = widths / self.problem.demand.dim[table] / self.problem.modes.coverage[modes]
        made[:, 0] = self.seconds[table] * share
        return made


def published(report: str) -> None:
    """The published plan, the bound, and the plan of `auto`."""
    rows = table_rows(read_text(report), report)
    evaluator = _posed(report, rows)
    theirs = _loads(rows, evaluator.problem.cluster.world_size)
    bound = lower_bound(evaluator).bound
    found = find_planner("auto").plan(evaluator.problem, evaluator)
    assert bound.value_s is not None, "additive costs have a bound"
    device, _ = memory_used(evaluator.problem, found.footprint)
    wide = [milliseconds / theirs.size for milliseconds, _, kind in map(_published, rows) if kind == "row_wise"]
    print(f"{len(rows)} tables, {theirs.size} ranks; {len(wide)} row_wise tables load every rank: {sum(wide):.1f} ms\n")
    print("| | slowest rank (ms) | over the last row | above the mean |\n|---|---|---|---|")
    for name, value in (
        ("published", theirs.max()), ("auto", found.total_s * 1e3), ("RecSmith's bound", bound.value_s * 1e3),
        ("row_wise tables and the most expensive shard: no plan is below", _forced(evaluator) * 1e3),
    ):  # fmt: skip
        print(
            f"| {name} | {value:.3f} | {value / _forced(evaluator) / 1e3 - 1:+.3%} | {value / theirs.mean() - 1:.1%} |"
        )
    print(
        f"\nFullest device of auto: {device.max() / 2**30:.1f} of {HBM_GIB - RESERVE_GIB:.1f} GiB. Bound: {bound.space}"
    )


def _posed(report: str, rows: list[Cells]) -> AdditiveEvaluator:
    """The tables under names that tell how the report lays them, which rules then keep."""
    workload = load_workload(report)
    tables = [_named(table, row) for table, row in zip(workload.tables, rows, strict=True)]
    seconds = {table.name: _published(row)[0] / 1e3 for table, row in zip(tables, rows, strict=True)}
    rules = tuple(TableRule(tables=f"{kind}/*", sharding_types=(kind,)) for kind in KINDS)
    cluster = load_cluster("torchrec-default:8x12").with_memory(int(HBM_GIB * 2**30), int(RESERVE_GIB * 2**30))
    problem = build_problem(
        replace(workload, tables=tuple(tables)), cluster, Space(types=KINDS, widths="torchrec"),
        Constraints(memory="torchrec", rules=rules),
    )  # fmt: skip
    _check_widths(problem, {table.name: row for table, row in zip(tables, rows, strict=True)})
    given = np.array([seconds[table.name] for table in problem.tables])
    return AdditiveEvaluator(problem, GivenSeconds(problem, given))


def _named(table: Table, row: Cells) -> Table:
    return replace(table, name=f"{_published(row)[2]}/{table.name}")


def _published(row: Cells) -> tuple[float, list[int], str]:
    """(ms over all shards, the rank of each shard, sharding type) of a table of the report."""
    ranks: list[int] = []
    for part in row["Ranks"].split(","):
        first, _, last = part.partition("-")
        ranks += range(int(first), int(last or first) + 1)
    kind = "row_wise" if row["Sharding"] == "RW" else "column_wise" if len(ranks) > 1 else "table_wise"
    return float(row["Perf (ms)"].split()[0]), ranks, kind


def _check_widths(problem: Problem, rows: dict[str, Cells]) -> None:
    """The space must hold the published widths, and no others."""
    options = problem.options
    assert (np.diff(options.start) == 1).all(), "one way to lay each table is left"
    for table, piece, parts in zip(problem.tables, options.piece[:, 0], options.count[:, 0], strict=True):
        _, ranks, kind = _published(rows[table.name])
        assert parts == (len(ranks) if kind == "column_wise" else 1), f"'{table.name}' is split in another way"
        assert problem.pieces.width[piece] * parts == table.embedding_dim


def _forced(evaluator: AdditiveEvaluator) -> float:
    """Seconds that no plan undercuts where each table has one layout: all that every rank carries, and a shard."""
    relaxation = Relaxation(evaluator)
    everywhere = relaxation.option_worldwide
    return float(relaxation.option_everywhere.sum() + relaxation.option_largest[~everywhere].max())


def _loads(rows: list[Cells], world: int) -> Floats:
    """Milliseconds of each rank under the published plan (W,)."""
    loads = np.zeros(world)
    for milliseconds, ranks, _ in map(_published, rows):
        np.add.at(loads, ranks, milliseconds / len(ranks))
    return loads
