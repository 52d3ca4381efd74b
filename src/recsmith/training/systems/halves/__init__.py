"""Weights in two halves of 16 bits: lookups and products use bf16, updates are exact in fp32 (docs/precision.md).

Kalamkar et al. (2020, arXiv 2005.04680). rows.py stores tables in halves, dense.py does so for dense layers, and
bfloat16.py rounds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recsmith._compiled import compiled
from recsmith._components import register
from recsmith.analyses.advice import Switch
from recsmith.plans import Plan
from recsmith.prediction.job_step import OPTIMIZER_S, lookups_s
from recsmith.problems import TableRule
from recsmith.training.seams.predicting import NO_COPIES, RunFacts, SystemLine
from recsmith.training.seams.system import ROWS, System
from recsmith.units import format_size, format_time

if TYPE_CHECKING:
    from recsmith.prediction.job_step import JobStep
    from recsmith.training.job.card import ModelCard
    from recsmith.training.job.job import TrainingJob
    from recsmith.training.run.run import Run
    from recsmith.training.seams.capabilities import Part

register("optimizer", "split", "recsmith.training.systems.halves.dense:SplitOptimizer")
register("optimizer", "master", "recsmith.training.systems.halves.dense:MasterOptimizer")
register(ROWS, "split", "recsmith.training.systems.halves.rows:SplitRows")

# Seconds relative to FBGEMM and PyTorch in fp32 (benchmarks/precision.py): lookups and updates of tables in halves, as
# the median of eight shapes of 16 to 128 columns and 1 to 24 tables; and updates of dense layers in halves, or with a
# copy in fp32.
SPLIT_LOOKUPS, HALVES_UPDATES = 2.0, 4.0
SPLIT_UNCOMPILED = 7.0  # the same of lookups, if the package was built without a C compiler
COMPILED = "training.systems.halves._halved_rows"
IN_HALVES = ("split", "master")  # optimizers that make dense layers bf16


class Halves(System):
    """The system that stores tables (`rows: split`) and dense layers in halves."""

    key = "rows"

    def row_parts(self, run: "Run") -> Sequence["Part"]:
        """Tables in halves, if the run has them."""
        from recsmith.training.systems.halves.parts import SplitHalves

        return (SplitHalves(),) if _rows(run) else ()

    def layer_parts(self, run: "Run", *, undecided: bool = False) -> Sequence["Part"]:
        """Dense layers in halves, if the run has them."""
        from recsmith.training.systems.halves.parts import HalfLayers

        return (HalfLayers(run.optimizers.dense.name),) if _layers(run) else ()

    def plan_rules(self, run: "Run", hosts: int) -> Sequence[TableRule]:
        """Forbid copies of tables on every rank, which would be updated by another optimizer."""
        return (NO_COPIES,) if _rows(run) else ()

    def change_step(self, run: "Run", plan: Plan, step: "JobStep", numbers: int) -> "JobStep":
        """Multiply the seconds of lookups and of the dense optimizer, since these kernels are slower than fp32."""
        if _rows(run):
            step = replace(step, embeddings_s=step.embeddings_s + (lookups_factor() - 1) * lookups_s(plan))
        if _layers(run):
            step = replace(step, optimizer_s=HALVES_UPDATES * step.optimizer_s)
        return step

    def switches(self, run: "Run") -> Sequence[Switch]:
        """Offer tables in halves."""
        made = Switch(
            name="tables in halves", change="rows: split", settings=("rows=split",),
            quality="0.008 points of AUC less with dense layers in halves as well (five seeds)", page="precision.md",
        )  # fmt: skip
        return (made,) if run.rows == "device" else ()

    def bytes_of_number(self, run: "Run") -> int | None:
        """Bytes of a weight of dense layers: 2 in halves, else None."""
        return 2 if _layers(run) else None

    def scored_run(self, run: "Run", card: "ModelCard", folder: Path) -> "Run":
        """The run with tables in fp32, since exported weights are fp32."""
        return replace(run, rows="device") if _rows(run) else run

    def summary(self, run: "Run", facts: RunFacts) -> Sequence[SystemLine]:
        """Bytes that halves take in memory, and seconds that they take of a step."""
        return (
            *([SystemLine(key="rows", on=True, said=_said_of_rows(facts.plan, facts.step))] if _rows(run) else []),
            *([SystemLine(key="optimizers.dense", on=True, said=_said_of_layers(run, facts.step, facts.numbers))]
              if _layers(run) else []),
        )  # fmt: skip

    def brought(self, job: "TrainingJob") -> Mapping[str, str]:
        """Bytes that lookups read, and seconds of updates of dense layers."""
        rows = {"rows": _brought_of_rows(job)} if _rows(job.run) else {}
        return {**rows, **self._brought_of_layers(job)}

    def _brought_of_layers(self, job: "TrainingJob") -> Mapping[str, str]:
        from recsmith.training.optimizers.dense import inner_optimizer

        optimizer = inner_optimizer(job.sharded.optimizer, "took") if _layers(job.run) else None
        if optimizer is None or not optimizer.took.times:
            return {}
        numbers = sum(each.numel() for group in optimizer.param_groups for each in group["params"])
        key = "optimizers.dense"
        return {
            key: f"{key}: {job.run.optimizers.dense.name}: products read {format_size(2 * numbers)} of bf16; an update "
            f"took {format_time(optimizer.took.mean_s)}; {format_time(HALVES_UPDATES * OPTIMIZER_S * numbers)} were "
            "predicted"
        }


def lookups_factor() -> float:
    """Seconds of lookups and updates of tables in halves / seconds of FBGEMM in fp32."""
    return SPLIT_UNCOMPILED if compiled(COMPILED) is None else SPLIT_LOOKUPS


def _rows(run: "Run") -> bool:
    return run.rows_named[0] == "split"


def _layers(run: "Run") -> bool:
    return run.optimizers.dense.name in IN_HALVES


def _said_of_rows(plan: Plan, step: "JobStep | None") -> str:
    """The line on tables in halves. Added time comes first: on CPUs they lengthen a step, though they read less."""
    weights, factor = sum(table.weight_bytes for table in plan.workload.tables), lookups_factor()
    more = (factor - 1) * lookups_s(plan)
    time = "" if step is None else (
        f"tables take {format_time(more)} longer, {format_time(step.embeddings_s)} of a step in place of "
        f"{format_time(step.embeddings_s - more)} in fp32, since lookups and updates alone take {factor:g} times those "
        "of rows: device; "
    )  # fmt: skip
    return (
        f"rows: split: {time}lookups read {format_size(weights // 2)} of bf16, and halves keep {format_size(weights)} "
        "in memory, as fp32 does"
    )


def _brought_of_rows(job: "TrainingJob") -> str:
    """Bytes that lookups of all ranks read per step, and seconds added to fp32's. Every rank must call this."""
    from torch.distributed import ReduceOp

    from recsmith.training.job.job import over_ranks

    steps = max(job.progress.step - job.progress.begun, 1)
    rows: Any = job.sharded.rows  # SplitRows, whose modules import this one
    read = over_ranks(sum(each.read_bytes for each in rows.tables), ReduceOp.SUM) // steps
    more, predicted = (lookups_factor() - 1) * lookups_s(job.plan), job.progress.told_s
    beside = "" if predicted is None else f"; a step in fp32 is predicted to take {format_time(predicted - more)}"
    return (
        f"rows: split: lookups read {format_size(read)} of bf16 in a step, half of what fp32 takes, and lookups and "
        f"updates take {format_time(more)} longer, as predicted{beside}"
    )


def _said_of_layers(run: "Run", step: "JobStep | None", numbers: int) -> str:
    dense = run.optimizers.dense
    kept = 2 + (2 if dense.name == "split" else 4)
    time = "" if step is None else (
        f"; their update takes {format_time(step.optimizer_s)} of a step, {HALVES_UPDATES:g} times fp32")  # fmt: skip
    return (
        f"optimizers.dense: {dense.name}: {format_size(kept * numbers)} of weights of dense layers, of which products "
        f"read {format_size(2 * numbers)} and ranks send {format_size(2 * numbers)} of gradients{time}"
    )


SYSTEM = Halves()
