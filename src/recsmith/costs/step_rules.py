"""Step rules: how the seconds of all ranks add up to the seconds of a training step.

A step is a sequence of phases. At the end of a phase every rank waits for the slowest one, so a phase lasts as long as
its slowest rank, and the step is the sum of its phases.

Legend: W ranks, F phases; the four parts are recsmith.plans.PARTS: forward and backward compute, forward and backward
communication.
"""

from dataclasses import dataclass

import numpy as np

from recsmith._types import Floats
from recsmith.plans import PARTS, StepCost

_FORWARD_COMPUTE, _BACKWARD_COMPUTE, _FORWARD_COMM, _BACKWARD_COMM = range(len(PARTS))  # columns of parts (..., 4)


@dataclass(frozen=True, slots=True)
class StepRule:
    """A rule by which parts become a step: which parts a rank works through in each phase.

    name: what it is called in code and tests. sentence: the rule in words. phases: columns of the four parts, phase by
    phase; each part is in exactly one phase.
    """

    name: str
    sentence: str
    phases: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        parts = [part for phase in self.phases for part in phase]
        if sorted(parts) != list(range(len(PARTS))):
            raise ValueError(f"step rule '{self.name}' has parts {parts}; each of the {len(PARTS)} parts has one phase")

    @property
    def several_phases(self) -> bool:
        """Whether ranks wait for each other within a step, not only at its end."""
        return len(self.phases) > 1

    def phase_seconds(self, parts: Floats) -> Floats:
        """Seconds of each phase (F, ...) from seconds in the four parts (..., 4)."""
        return np.stack([parts[..., phase].sum(axis=-1) for phase in self.phases])

    def step_seconds(self, parts: Floats) -> float:
        """Seconds of the step from the ranks' parts (W, 4): the slowest rank of each phase, phase after phase."""
        return float(self.phase_seconds(parts).max(axis=1).sum())


LARGEST_SUM = StepRule(
    name="largest sum",
    sentence="The step takes as long as the rank with the largest sum of its four parts.",
    phases=(tuple(range(len(PARTS))),),
)
"""TorchRec's rule (torchrec 1.8, planner/perf_models.py, NoopPerfModel)."""

READY_THEN_FORWARD = StepRule(
    name="ready, then forward all-to-all",
    sentence="The backward all-to-all starts together; a rank is ready after it and its own backward and forward "
    "compute; the forward all-to-all begins when all ranks are ready and ends when the slowest sender is done.",
    phases=((_FORWARD_COMPUTE, _BACKWARD_COMPUTE, _BACKWARD_COMM), (_FORWARD_COMM,)),
)
"""The rule of cost models `analytic` and `neural:`."""


def parts_of(cost: StepCost) -> Floats:
    """Seconds of the ranks in the four parts (W, 4)."""
    return np.array([[getattr(device, part) for part in PARTS] for device in cost.per_device])


def rule_of(cost: StepCost, cost_model: str) -> StepRule:
    """The rule by which a step's parts add up to its seconds, for those who have its cost and not its model."""
    parts = parts_of(cost)
    rules = (LARGEST_SUM, READY_THEN_FORWARD) if cost_model == "torchrec" else (READY_THEN_FORWARD, LARGEST_SUM)
    return min(rules, key=lambda rule: abs(rule.step_seconds(parts) - cost.total_s))  # the first of those that agree


def ready_and_forward(compute: Floats, backward_comm: Floats, forward_comm: Floats) -> Floats:
    """Seconds of the two phases (2, ...) of READY_THEN_FORWARD from kernels and collectives (...)."""
    loads = np.empty((2, *compute.shape))
    np.add(compute, backward_comm, out=loads[0])
    loads[1] = forward_comm
    return loads
