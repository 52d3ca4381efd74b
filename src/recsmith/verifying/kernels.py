"""Verifies plans by their kernels: those of every rank, measured on hardware, and compared with a cost model.

A step is computed from measured kernels and from collectives. Collectives are measured between local ranks if this
machine can run all of a plan's ranks. With simulated kernels they are simulated, and each rank begins when it is ready
(steps.py). Otherwise they are the cost model's. A cost model describes another machine than the one that measures, or
only a device's figures. So its kernels are multiplied by this machine's factor before they are compared: measured over
predicted seconds of reference samples.

Legend: V visits, W ranks; the last axis of kernels and collectives is forward, backward.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import NamedTuple, get_args

import numpy as np

from recsmith._types import Floats
from recsmith.clusters import Cluster
from recsmith.costs import CostModel
from recsmith.costs import cost_model as find_cost_model
from recsmith.costs.pricing import group_seconds, one_device
from recsmith.errors import UsageError
from recsmith.hardware import Case, Hardware, default_scale, scale_of
from recsmith.hardware.loads import loads_of
from recsmith.measuring.cases import Cases
from recsmith.measuring.statistics import bootstrap_median, draw_visits, interval, kendall_tau
from recsmith.planning.simulate import price_plan
from recsmith.plans import Plan, StepCost, check_one_optimizer
from recsmith.verifying.collectives import SimulatedCollectives, is_simulated, measure_collectives, not_measured
from recsmith.verifying.steps import median_step, resampled_steps, step_seconds
from recsmith.verifying.verification import KernelVerification, MachineFactor, PlanSteps, RankExchange, RankKernels
from recsmith.verifying.visits import VISITS, MeasuredKernels, VisitProgress, measure_kernels, open_hardware
from recsmith.workloads.data_types import DataType
from recsmith.workloads.optimizers import OPTIMIZERS

REFERENCES = 20  # samples: trade-off, more narrow the factor's interval and take longer; not tuned further
REFERENCE_SEED = 1  # the shipped measurements are of seed 0: no cost model was trained on these cases


def reference_cases(plans: Sequence[Plan], hardware: str) -> list[Case]:
    """The first 20 cases of a seed at the hardware's scale, with the plans' optimizers and data types.

    Their work is evenly distributed in its logarithm (measuring/cases.py).
    """
    for plan in plans:
        check_one_optimizer(plan)
    optimizers = {plan.workload.optimizer for plan in plans}
    data_types = {table.data_type for plan in plans for table in plan.workload.tables}
    cases = Cases(
        seed=REFERENCE_SEED,
        scale=scale_of(default_scale(hardware)),
        optimizers=tuple(each.name for each in OPTIMIZERS.values() if each.name in optimizers),
        data_types=tuple(name for name in get_args(DataType) if name in data_types),
    )
    return [cases.case(number) for number in range(REFERENCES)]


def factor_of(
    model: CostModel, cluster: Cluster, cases: Sequence[Case], seconds: Sequence[tuple[float, float]], seed: int
) -> MachineFactor:
    """The factor from seconds of cases, forward and backward; fewer seconds than cases belong to the first ones."""
    device = one_device(cluster)
    ratios: list[float] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of references beyond a model's range; for plans the warning has been given
        for case, measured in zip(cases, seconds, strict=False):
            ratios.append(sum(measured) / float(group_seconds(model, case.workload, device).sum()))
    found: Floats = np.array(ratios)
    low, high = np.percentile(found, (25, 75)).tolist()
    return MachineFactor(median=bootstrap_median(found, seed), quartiles=(low, high), samples=len(found))


def verify_kernels(
    plans: Sequence[tuple[str, Plan]],
    hardware: str = "cpu",
    *,
    cost_model: str | None = None,
    visits: int = VISITS,
    seed: int = 0,
    on_progress: Callable[[VisitProgress], None] | None = None,
) -> KernelVerification:
    """Measure the kernels of named plans on hardware, and compare them with a cost model's predictions.

    Args:
        plans: (name, plan) of each.
        hardware: name of the hardware, as for `load_hardware`.
        cost_model: the model that predicts (default: the plans' own).
        visits: number of measurements of each rank.
        seed: of ids and of resampling.
        on_progress: called after each measured load.

    Raises:
        UsageError: a table, optimizer or data type cannot be measured, there is too little memory, or the plans have
            several cost models and none is given.
        MissingExtra: PyTorch, FBGEMM or TorchRec is missing.
        RecSmithError: the hardware failed.
    """
    model = find_cost_model(cost_model or _common_model(plans))
    some = [plan for _, plan in plans]
    loads = [loads_of(plan, seed) for plan in some]
    priced = [_predicted(price_plan(plan, model)) for plan in some]
    references = reference_cases(some, hardware)
    others = [(case,) for case in references]
    opened = open_hardware(hardware, [load for ranks in loads for load in ranks] + others)
    why = [not_measured(plan, hardware) for plan in some]
    simulated = SimulatedCollectives(hardware) if is_simulated(hardware) else None
    comm = _collectives(
        some, [not reason and simulated is None for reason in why], visits, [each.comm for each in priced]
    )
    done = measure_kernels(opened, loads, visits, others=others, on_progress=on_progress)
    factor = factor_of(model, some[0].cluster, references, done.others, seed)
    predicted = [each._replace(kernels=each.kernels * factor.median.value) for each in priced]
    measured = [_StepParts(*pair) for pair in zip(done.kernels, (each[: done.visits] for each in comm), strict=True)]
    exchanges: list[tuple[RankExchange, ...]] = [()] * len(some)
    for i, plan in enumerate(some):
        if simulated and not why[i]:
            measured[i] = measured[i].around(simulated.simulate(plan, measured[i].kernels, seed))
            predicted[i] = predicted[i].around(simulated.predict(plan, predicted[i].kernels))
            exchanges[i] = simulated.by_rank(plan, *measured[i])
    found = _steps_of_plans(plans, measured, predicted, why, exchanges, seed)
    return _verification(opened, model.name, factor, some, done, found)


def _verification(
    hardware: Hardware, model: str, factor: MachineFactor, plans: Sequence[Plan], done: MeasuredKernels,
    found: tuple[PlanSteps, ...],
) -> KernelVerification:  # fmt: skip
    """The verification of all plans, from the steps of each and the facts that concern all."""
    first = plans[0]
    steps = np.array([(each.predicted_s, each.step.value) for each in found])
    return KernelVerification(
        hardware=hardware.name, device=hardware.device, versions=hardware.versions, cost_model=model, factor=factor,
        cluster=first.cluster.describe(), visits=done.visits, complete=done.complete, plans=found,
        alike=all((plan.workload, plan.cluster) == (first.workload, first.cluster) for plan in plans),
        probe_moved=_moved(done.probe_s), winner=int(steps[:, 0].argmin()),
        tau=_tau(*steps.T) if len(found) > 2 else None,
    )  # fmt: skip


class _StepParts(NamedTuple):
    """Seconds of kernels and of collectives, (..., W, 2) each."""

    kernels: Floats
    comm: Floats

    @property
    def steps(self) -> Floats:
        """Seconds of the steps (...) with these kernels and collectives."""
        return step_seconds(self.kernels, self.comm)

    def around(self, comm: Floats | None) -> "_StepParts":
        """The same with other collectives; unchanged for None."""
        return self if comm is None else self._replace(comm=comm)


def _common_model(plans: Sequence[tuple[str, Plan]]) -> str:
    names = sorted({plan.cost_model for _, plan in plans})
    if len(names) > 1:
        raise UsageError(f"the plans were priced by {' and '.join(names)}; say which predicts them: --cost-model M")
    return names[0]


def _predicted(cost: StepCost) -> _StepParts:
    """Kernels and collectives of a price (W, 2)."""
    kernels = [(each.forward_compute_s, each.backward_compute_s) for each in cost.per_device]
    comm = [(each.forward_comm_s, each.backward_comm_s) for each in cost.per_device]
    return _StepParts(np.array(kernels), np.array(comm))


def _collectives(
    plans: Sequence[Plan], measurable: Sequence[bool], visits: int, predicted: Sequence[Floats]
) -> list[Floats]:
    """Seconds of the collectives of each plan (V, W, 2): measured where they can be, or predicted ones (W, 2)."""
    found = [np.repeat(comm[None], visits, axis=0) for comm in predicted]
    for world in sorted({plan.cluster.world_size for plan in plans}):
        some = [i for i, plan in enumerate(plans) if measurable[i] and plan.cluster.world_size == world]
        measured = measure_collectives([plans[i] for i in some], visits) if some else []
        for i, seconds in zip(some, measured, strict=True):
            found[i] = seconds
    return found


def _steps_of_plans(
    plans: Sequence[tuple[str, Plan]], measured: Sequence[_StepParts], predicted: Sequence[_StepParts],
    why: Sequence[str], exchanges: Sequence[tuple[RankExchange, ...]], seed: int,
) -> tuple[PlanSteps, ...]:  # fmt: skip
    """The measured and the predicted step of each plan."""
    drawn = draw_visits(len(measured[0].kernels), seed)
    steps = [median_step(*each) for each in measured]
    resampled = [resampled_steps(*each, drawn) for each in measured]
    found: list[PlanSteps] = []
    for i, (name, plan) in enumerate(plans):
        ranks = _ranks(measured[i], predicted[i])
        order = np.array([(rank.predicted_s, rank.measured_s) for rank in ranks])
        slower = (interval(steps[i] / steps[k] - 1, resampled[i] / resampled[k] - 1) for k in range(len(plans)))
        one = PlanSteps(
            name=name, digest=plan.digest, step=interval(steps[i], resampled[i]),
            steps_s=tuple(measured[i].steps.tolist()), predicted_s=float(predicted[i].steps), collectives=why[i],
            ranks=ranks, tau=_tau(*order.T), slower=tuple(slower), exchanges=exchanges[i],
        )  # fmt: skip
        found.append(one)
    return tuple(found)


def _ranks(measured: _StepParts, predicted: _StepParts) -> tuple[RankKernels, ...]:
    """Medians over visits of each rank, with the predictions."""
    medians, kernels_s = np.median(measured.kernels, axis=0).tolist(), predicted.kernels.sum(axis=1).tolist()
    return tuple(
        RankKernels(rank=rank, forward_s=forward, backward_s=backward, predicted_s=kernels_s[rank])
        for rank, (forward, backward) in enumerate(medians)
    )


def _moved(probes: Floats) -> float:
    return float(probes.max() / probes.min() - 1) if probes.all() else 0.0


def _tau(first: Floats, second: Floats) -> float | None:
    tau = kendall_tau(first, second)
    return None if np.isnan(tau) else tau
