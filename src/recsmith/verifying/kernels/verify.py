"""Plans, measured: kernels of every rank on hardware, beside what a cost model predicted.

A step is put together from measured kernels and from collectives, which are measured between local ranks where this
machine can run all of a plan's, simulated with simulated kernels (there each rank begins when it is ready:
skewed_steps.py), and the cost model's elsewhere. Predicted kernels are multiplied by this machine's factor
(references.py).

Legend: V visits, W ranks; the last axis of kernels and collectives is forward, backward.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from recsmith._types import Floats
from recsmith.costs import cost_model as find_cost_model
from recsmith.errors import UsageError
from recsmith.measuring.intervals import draw_visits, interval
from recsmith.measuring.ranking import kendall_tau
from recsmith.planning.simulate import price_plan
from recsmith.plans import Plan, StepCost
from recsmith.verifying.kernels.collectives import is_simulated, measure_collectives, not_measured
from recsmith.verifying.kernels.findings import KernelVerification, PlanSteps, RankExchange, RankKernels
from recsmith.verifying.kernels.loads import loads_of
from recsmith.verifying.kernels.references import factor_of, reference_cases
from recsmith.verifying.kernels.simulated_links import Linked
from recsmith.verifying.kernels.steps import (
    VISITS,
    StepProgress,
    measure_steps,
    median_step,
    open_for,
    resampled_steps,
    step_seconds,
)


def verify_plans(
    plans: Sequence[tuple[str, Plan]],
    hardware: str = "cpu",
    *,
    cost_model: str | None = None,
    visits: int = VISITS,
    seed: int = 0,
    on_progress: Callable[[StepProgress], None] | None = None,
) -> KernelVerification:
    """Measure named plans side by side on hardware, and hold them against a cost model (default: the plans' own).

    seed: of ids and of resampling.

    Raises:
        UsageError: a table, optimizer or data type that cannot be measured, too little memory, or plans of several cost
            models where none is said.
        MissingExtra: PyTorch, FBGEMM or TorchRec is missing.
        RecSmithError: the hardware failed.
    """
    model = find_cost_model(cost_model or _common_model(plans))
    some = [plan for _, plan in plans]
    loads = [loads_of(plan, seed) for plan in some]
    predicted = [_predicted(price_plan(plan, model.name)) for plan in some]
    references = reference_cases(some, hardware)
    others = [(case,) for case in references]
    opened = open_for(hardware, [load for ranks in loads for load in ranks] + others)
    why = [not_measured(plan, hardware) for plan in some]
    linked = Linked(hardware) if is_simulated(hardware) else None
    local = [words or ("simulated" if linked else "") for words in why]
    comm = _collectives(some, local, visits, [each.comm for each in predicted])
    steps = measure_steps(opened, loads, visits, others=others, on_progress=on_progress)
    factor = factor_of(model, some[0].cluster, references, steps.others, seed)
    guesses = [each._replace(kernels=each.kernels * factor.median.value) for each in predicted]
    taken = [_Seconds(*pair) for pair in zip(steps.kernels, (each[: steps.visits] for each in comm), strict=True)]
    exchanges: list[tuple[RankExchange, ...]] = [()] * len(some)
    for i, plan in enumerate(some):
        if linked and not why[i]:
            taken[i] = taken[i].around(linked.simulated(plan, taken[i].kernels, seed))
            guesses[i] = guesses[i].around(linked.predicted(plan, guesses[i].kernels))
            exchanges[i] = linked.exchanges(plan, *taken[i])
    found = _judged(plans, taken, guesses, why, exchanges, seed)
    order = np.array([(each.predicted_s, each.step.value) for each in found])
    return KernelVerification(
        hardware=opened.name, device=opened.device, versions=opened.versions, cost_model=model.name, factor=factor,
        cluster=some[0].cluster.describe(), visits=steps.visits, complete=steps.complete, plans=found,
        alike=all((plan.workload, plan.cluster) == (some[0].workload, some[0].cluster) for plan in some),
        probe_moved=_moved(steps.probe_s), winner=int(order[:, 0].argmin()),
        tau=_tau(*order.T) if len(found) > 2 else None,
    )  # fmt: skip


class _Seconds(NamedTuple):
    """Seconds of kernels and of collectives, (..., W, 2) each."""

    kernels: Floats
    comm: Floats

    @property
    def steps(self) -> Floats:
        """Of the steps that they add up to (...)."""
        return step_seconds(self.kernels, self.comm)

    def around(self, comm: Floats | None) -> "_Seconds":
        """With other collectives; as it is for None."""
        return self if comm is None else self._replace(comm=comm)


def _common_model(plans: Sequence[tuple[str, Plan]]) -> str:
    names = sorted({plan.cost_model for _, plan in plans})
    if len(names) > 1:
        raise UsageError(f"the plans were priced by {' and '.join(names)}; say which predicts them: --cost-model M")
    return names[0]


def _predicted(cost: StepCost) -> _Seconds:
    """What a price holds (W, 2)."""
    kernels = [(each.forward_compute_s, each.backward_compute_s) for each in cost.per_device]
    comm = [(each.forward_comm_s, each.backward_comm_s) for each in cost.per_device]
    return _Seconds(np.array(kernels), np.array(comm))


def _collectives(plans: Sequence[Plan], why: Sequence[str], visits: int, predicted: Sequence[Floats]) -> list[Floats]:
    """Seconds of the collectives of each plan (V, W, 2): predicted ones (W, 2) where `why` says so, or measured."""
    found = [np.repeat(comm[None], visits, axis=0) for comm in predicted]
    for world in sorted({plan.cluster.world_size for plan in plans}):
        some = [i for i, plan in enumerate(plans) if not why[i] and plan.cluster.world_size == world]
        measured = measure_collectives([plans[i] for i in some], visits) if some else []
        for i, seconds in zip(some, measured, strict=True):
            found[i] = seconds
    return found


def _judged(
    plans: Sequence[tuple[str, Plan]], taken: Sequence[_Seconds], guesses: Sequence[_Seconds], why: Sequence[str],
    exchanges: Sequence[tuple[RankExchange, ...]], seed: int,
) -> tuple[PlanSteps, ...]:  # fmt: skip
    """What was measured of each plan beside what was predicted."""
    drawn = draw_visits(len(taken[0].kernels), seed)
    steps = [median_step(*each) for each in taken]
    resampled = [resampled_steps(*each, drawn) for each in taken]
    found: list[PlanSteps] = []
    for i, (name, plan) in enumerate(plans):
        ranks = _ranks(taken[i], guesses[i])
        order = np.array([(rank.predicted_s, rank.measured_s) for rank in ranks])
        slower = (interval(steps[i] / steps[k] - 1, resampled[i] / resampled[k] - 1) for k in range(len(plans)))
        one = PlanSteps(
            name=name, digest=plan.digest, step=interval(steps[i], resampled[i]),
            steps_s=tuple(taken[i].steps.tolist()), predicted_s=float(guesses[i].steps), collectives=why[i],
            ranks=ranks, tau=_tau(*order.T), slower=tuple(slower), exchanges=exchanges[i],
        )  # fmt: skip
        found.append(one)
    return tuple(found)


def _ranks(taken: _Seconds, guess: _Seconds) -> tuple[RankKernels, ...]:
    """Medians over visits beside predictions."""
    measured, predicted = np.median(taken.kernels, axis=0).tolist(), guess.kernels.sum(axis=1).tolist()
    return tuple(
        RankKernels(rank=rank, forward_s=forward, backward_s=backward, predicted_s=predicted[rank])
        for rank, (forward, backward) in enumerate(measured)
    )


def _moved(probes: Floats) -> float:
    return float(probes.max() / probes.min() - 1) if probes.all() else 0.0


def _tau(first: Floats, second: Floats) -> float | None:
    tau = kendall_tau(first, second)
    return None if np.isnan(tau) else tau
