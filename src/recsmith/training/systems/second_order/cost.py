"""The predicted time and memory of a second-order step; without torch.

A pass is a forward and a backward pass through dense layers, over all samples of a step. The number of passes of a step
depends on the data, so both the usual and the largest number are reported.

W ranks
"""

import inspect
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from recsmith._components import find, parsed
from recsmith._types import record
from recsmith.plans import Plan
from recsmith.prediction.job_step import JobStep
from recsmith.training.seams.system import STEP
from recsmith.units import format_size, format_time

FORWARD, GRADIENT, DOTS, PRODUCT = 1 / 3, 1.0, 2 / 3, 2.0  # costs in passes (forward and backward)
AVERAGED = 10  # gradients that progressive L-BFGS averages
NEWTON_VECTORS = 8  # weights before and now, gradient, direction, solution, product, residual, H * direction
HALVINGS = 12  # halvings of a step length after which a line search is given up
# Measured by `python benchmarks/second_order.py steps`: a pass by torch.func over PyTorch's own pass, the additional
# seconds of its calls for each batch, and Hessian products in a Newton step of DANCE. ERRORS: how far measured steps
# are from predictions with these numbers, as a share.
PASS, CALLS_S, PRODUCTS = 1.7, 1.3e-3, 4
# Log loss above Adam's after four passes, from random layers: `python benchmarks/second_order.py layers`.
ABOVE_ADAM = {"progressive_lbfgs": "0.0031 ± 0.0045", "dance": "0.0192 ± 0.0080"}
ERRORS = {"progressive_lbfgs": 0.5, "dance": 1.0}


@record
class PassWork:
    """Work of the first step. batches: of a rank. samples: of all ranks. usual, most: number of passes.

    kept: most batches that a rank keeps in later steps. growth: factor by which samples grow from step to step.
    """

    batches: int
    samples: int
    usual: float
    most: float
    kept: int
    growth: float


def step_work(pipeline: Any, batch: int, ranks: int) -> PassWork:
    """The work of the first step of a run's pipeline. batch: samples of a rank."""
    name, words = settings_of(pipeline)
    batches = max(1, min(words["most"], math.ceil(words["samples"] / (batch * ranks))))
    samples, searched = batches * batch * ranks, HALVINGS * GRADIENT
    if name == "dance":
        usual = GRADIENT + words["newton"] * (min(PRODUCTS, words["inner"]) * PRODUCT + GRADIENT)
        most = GRADIENT + words["newton"] * (words["inner"] * PRODUCT + searched)
    else:
        dots = 2 * DOTS * min(1.0, math.ceil(words["tested"] / batch) / batches)
        usual, most = 2 * GRADIENT + dots, GRADIENT + searched + dots
    return PassWork(
        batches=batches, samples=samples, usual=usual, most=most, kept=words["most"], growth=words["growth"]
    )  # fmt: skip


def changed_step(pipeline: Any, plan: Plan, ranks: int, step: JobStep, passes: float | None = None) -> JobStep:
    """The predicted first step, from a job's plain step. passes: over its samples; None: the usual number."""
    work = step_work(pipeline, plan.workload.batch_size, ranks)
    passes = work.usual if passes is None else passes
    return passes_step(pipeline, step, new=work.batches, kept=work.batches, passes=passes)


def passes_step(pipeline: Any, step: JobStep, *, new: int, kept: int, passes: float) -> JobStep:
    """The predicted step that reads `new` batches a rank and passes over `kept` ones. step: plain step of a batch."""
    name, words = settings_of(pipeline)
    follow = words.get("tables") == "follow"
    seen = 1.0 if follow else FORWARD  # share of the pass in which tables are looked up
    return replace(
        step,
        trainer_s=new * step.trainer_s,
        reading_s=new * step.reading_s,
        embeddings_s=new * step.embeddings_s * seen,
        layers_s=new * step.layers_s * seen + kept * passes * (step.layers_s * PASS + CALLS_S),
        gradients_s=step.gradients_s * (new * follow + 2 * passes),  # sums over ranks are in fp64
        optimizer_s=0.0,
        rows_s=new * step.rows_s,
        error=ERRORS[name],
    )


def kept_bytes(pipeline: Any, plan: Plan) -> int:
    """Bytes of the vectors and ids of all batches that a rank keeps at once."""
    _, words = settings_of(pipeline)
    numbers = ids = 0.0
    for table in plan.workload.tables:
        for each in table.features:
            count = each.pooling_factor * each.num_poolings
            numbers += table.embedding_dim * (count if table.pooling == "none" else each.num_poolings)
            ids += count
    return math.ceil(words["most"] * plan.workload.batch_size * (4 * numbers + 8 * ids))


def vectors_of(pipeline: Any) -> int:
    """Number of vectors, each as long as all dense layers, that a step holds at once."""
    name, words = settings_of(pipeline)
    return 2 * words["memory"] + AVERAGED if name == "progressive_lbfgs" else NEWTON_VECTORS


def work_line(pipeline: Any, plan: Plan, ranks: int) -> str:
    """A line on what a step of a run's pipeline does."""
    name, _ = settings_of(pipeline)
    work = step_work(pipeline, plan.workload.batch_size, ranks)
    return (
        f"pipeline {name}: the first step has {work.samples:,} samples and passes over them about {work.usual:,.0f} "
        f"times, at most {work.most:,.0f}; later ones have up to {work.growth:g} times as many each time, and at most "
        f"{work.kept:,} batches a rank, whose vectors and ids take {format_size(kept_bytes(pipeline, plan))}"
    )


def times_line(pipeline: Any, plan: Plan, ranks: int, step: JobStep | None) -> str:
    """A line on how long the first step takes. step: plain step of the job; None if it is not predicted."""
    name, _ = settings_of(pipeline)
    if step is None:
        return f"pipeline {name}: how long its passes take is predicted on CPU only"
    work = step_work(pipeline, plan.workload.batch_size, ranks)
    usual, most = (
        format_time(changed_step(pipeline, plan, ranks, step, passes).step_s) for passes in (work.usual, work.most)
    )
    plain = format_time(step.step_s * work.batches)
    return (
        f"pipeline {name}: the first step takes about {usual}, at most {most}; a job of pipeline: base passes once "
        f"over as many samples in {plain}"
    )


def quality_line(pipeline: Any) -> str:
    """A line on the quality of the method in our measurements."""
    name, _ = settings_of(pipeline)
    return (
        f"quality: on the layers of a DLRM {name} was {ABOVE_ADAM[name]} of log loss above Adam after four passes "
        "(five seeds on generated clicks; docs/optimizers.md); it pays on convex problems, such as the last layer of a "
        "trained model (recsmith refit)"
    )


def settings_of(pipeline: Any) -> tuple[str, Mapping[str, Any]]:
    """(name of the pipeline, its settings including defaults)."""
    name, settings = parsed(pipeline, "pipeline")
    given = inspect.signature(find(STEP, name)).bind(None, **settings)
    given.apply_defaults()
    return name, given.arguments
