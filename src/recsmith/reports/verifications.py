"""Measured plans compared with the predictions for each rank: kernels by themselves, and whole jobs."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Group, RenderableType

from recsmith.files import Raw
from recsmith.measuring.statistics import Interval
from recsmith.reports.layout import grid, line, plain_grid, plain_line
from recsmith.reports.plan_words import drawn_words
from recsmith.units import format_size, format_time
from recsmith.verifying.verification import (
    JobVerification,
    KernelVerification,
    PlanSteps,
    RankExchange,
    RankKernels,
    RankMeasure,
)

KERNEL_VERIFICATION_SCHEMA = "recsmith/measured-plans/1"
# a visit's slowest probe over its fastest - 1, above which a note says that the machine is not quiet; not tuned
UNQUIET = 0.25
JOB_VERIFICATION_SCHEMA = "recsmith/verification/1"
JOB_COLUMNS = ("rank", "forward", "backward", "step", "predicted", "memory", "predicted", "of it base", "ratio")
SHARED_CORES = "ranks share this machine's cores: times show the order of ranks, not the speed of the plan's devices"


def kernel_verification_to_raw(found: KernelVerification) -> dict[str, Any]:
    """Measured plans as plain data: schema recsmith/measured-plans/1."""
    plans = [
        asdict(plan) | {"error": plan.error} | {name: [asdict(each) | {"error": each.error} for each in of_ranks]
                                                for name, of_ranks in _of_ranks(plan).items()}
        for plan in found.plans
    ]  # fmt: skip
    return {"schema": KERNEL_VERIFICATION_SCHEMA, **asdict(found), "plans": plans}


def _of_ranks(plan: PlanSteps) -> dict[str, Sequence[RankKernels | RankExchange]]:
    """The fields of a plan that have one entry per rank."""
    return {"ranks": plan.ranks, "exchanges": plan.exchanges}


def kernel_verification_lines(found: KernelVerification) -> list[str]:
    """Measured and predicted times: of one plan rank by rank, of several plan by plan with their differences."""
    simulated = found.hardware.startswith("simulated:")
    cut = "" if found.complete else "; the run was interrupted"
    lines = [
        plain_line("hardware", f"{found.device}{', by formulas: nothing was measured' if simulated else ''}"),
        plain_line("plans of", f"{found.cluster}; kernels of each rank by themselves, rank after rank"),
        plain_line("visits", f"{found.visits}, medians with 95 % bootstrap intervals over visits{cut}"),
        plain_line("factor", _factor_words(found)),
        *(plain_line("links", text) for text in dict.fromkeys(_link_words(each, found) for each in found.plans)),
    ]
    if found.probe_moved > UNQUIET:
        lines.append(_note(f"not a quiet machine: its probe moved by {found.probe_moved:.0%} between visits"))
    if not found.alike:
        lines.append(_note("the plans are of different tables, batches or clusters: steps do not do equal work"))
    return [*lines, "", *(_one_plan(found.plans[0]) if len(found.plans) == 1 else _several_plans(found))]


def _note(text: str) -> str:
    return plain_line("note", text)


def _factor_words(found: KernelVerification) -> str:
    factor, (low, high) = found.factor.median, found.factor.quartiles
    return (
        f"{factor.value:.3g} [{factor.low:.3g}, {factor.high:.3g}] x cost model {found.cost_model}, by "
        f"{found.factor.samples} reference samples (middle half {low:.3g} to {high:.3g})"
    )


def _link_words(plan: PlanSteps, found: KernelVerification) -> str:
    if plan.collectives:
        return f"collectives are those of cost model {found.cost_model}: {plan.collectives}"
    if found.hardware.startswith("simulated:"):
        model = "a learned model of them" if plan.exchanges else f"cost model {found.cost_model}, all ranks at once"
        return f"all-to-alls are simulated, and each rank begins when it is ready; predicted by {model}"
    return f"all-to-alls were measured between {len(plan.ranks)} local ranks; predicted ones are of the plan's links"


def _step_words(plan: PlanSteps) -> str:
    step = plan.step
    return f"{format_time(step.value)} [{format_time(step.low)}, {format_time(step.high)}]"


def _one_plan(plan: PlanSteps) -> list[str]:
    tau = "" if plan.tau is None else f"; ranks are ordered alike: tau {plan.tau:.2f}"
    rows = [("rank", "forward", "backward", "kernels", "predicted", "error"), *(_rank_row(each) for each in plan.ranks)]
    return [
        plain_line("step", f"{_step_words(plan)}; predicted {format_time(plan.predicted_s)} ({plan.error:+z.1%}){tau}"),
        "",
        *plain_grid(rows),
        *_exchange_lines(plan),
    ]


def _exchange_lines(plan: PlanSteps) -> list[str]:
    if not plan.exchanges:
        return []
    head = ("rank", "ready", "all-to-all", "predicted", "error", "backward", "predicted")
    return ["", *plain_grid([head, *map(_exchange_row, plan.exchanges)])]


def _exchange_row(each: RankExchange) -> tuple[str, ...]:
    forward, backward = (each.ready_s, each.forward_s, each.predicted_s), (each.backward_s, each.predicted_backward_s)
    return str(each.rank), *map(format_time, forward), f"{each.error:+z.1%}", *map(format_time, backward)


def _rank_row(rank: RankKernels) -> tuple[str, ...]:
    times = (rank.forward_s, rank.backward_s, rank.measured_s, rank.predicted_s)
    return str(rank.rank), *map(format_time, times), "-" if rank.error is None else f"{rank.error:+z.1%}"


def _several_plans(found: KernelVerification) -> list[str]:
    """Plans one per row, each compared with the one that was predicted best."""
    rows = [
        ("plan", "step", "95 % interval", "predicted", "error", "than predicted best"),
        *(_plan_row(found, each) for each in found.plans),
    ]
    tau = [] if found.tau is None else ["", f"plans are ordered alike: tau {found.tau:.2f} of {len(found.plans)}"]
    return [*plain_grid(rows), *tau, "", f"{found.plans[found.winner].name} is predicted best; {verdict(found)}"]


def _plan_row(found: KernelVerification, plan: PlanSteps) -> tuple[str, ...]:
    step = plan.step
    interval = f"{format_time(step.low)} to {format_time(step.high)}"
    slower = found.slower(plan)
    apart = "(predicted best)" if slower is None else difference(slower)
    return plan.name, format_time(step.value), interval, format_time(plan.predicted_s), f"{plan.error:+z.1%}", apart


def difference(slower: Interval) -> str:
    """A paired difference in words, such as '3.1% slower [2.5%, 3.9%]'."""
    if slower.holds_zero:
        return f"no significant difference [{slower.low:+z.1%}, {slower.high:+z.1%}]"
    word = "slower" if slower.value > 0 else "faster"
    low, high = sorted((abs(slower.low), abs(slower.high)))
    return f"{abs(slower.value):.1%} {word} [{low:.1%}, {high:.1%}]"


def verdict(found: KernelVerification) -> str:
    """Whether any plan was measured to be faster than the one that was predicted best."""
    slower = {each.name: found.slower(each) for each in found.plans}
    faster = {name: one for name, one in slower.items() if one and one.high < 0}
    if not faster:
        return "no plan was measured to be faster"
    best = min(faster, key=lambda name: faster[name].value)
    return f"{best} was measured {difference(faster[best])}"


def job_verification_report(found: JobVerification) -> RenderableType:
    """Measured and predicted times and memory of each rank."""
    workload, world = found.plan.workload, found.plan.cluster.job_world_size
    lines = [
        line("ran", f"{found.steps} steps of {workload.batch_size:,} samples on {world} ranks, TorchRec on CPU (gloo)"),
        line("times", f"medians; {SHARED_CORES}"),
        line("memory", f"of embeddings at the peak of a step; predicted within {found.worst_memory:.1%} of measured"),
        line("", "predicted is the real accounting on CPU, and the local batch and its outputs (base)"),
        *([line("", words)] if (words := drawn_words(found.plan)) else []),
        line("digest", f"{found.plan.digest[:16]}"),
    ]
    made = grid(right=JOB_COLUMNS, optional=("of it base", "backward", "forward"))
    for rank in found.ranks:
        made.add_row(*_job_row(rank))
    return Group(*lines, made)


def _job_row(rank: RankMeasure) -> tuple[str, ...]:
    times = (rank.forward_s, rank.backward_s, rank.step_s, rank.predicted_s)
    sizes = (rank.peak_bytes, rank.predicted_bytes, rank.base_bytes)
    ratio = rank.predicted_bytes / max(rank.peak_bytes, 1)
    return str(rank.rank), *map(format_time, times), *map(format_size, sizes), f"{ratio:.3f}"


def job_verification_to_raw(found: JobVerification) -> Raw:
    """A plan that ran in a TorchRec job as plain data: schema recsmith/verification/1."""
    return {
        "schema": JOB_VERIFICATION_SCHEMA,
        "digest": found.plan.digest,
        "backend": "torchrec",
        "device": "cpu",
        "note": SHARED_CORES,
        "steps": found.steps,
        "batch_size": found.plan.workload.batch_size,
        "ranks": [_rank_to_raw(rank) for rank in found.ranks],
    }


def _rank_to_raw(rank: RankMeasure) -> Raw:
    fields = {name: getattr(rank, name) for name in RankMeasure.__dataclass_fields__}
    return fields | {"predicted_bytes": rank.predicted_bytes}
