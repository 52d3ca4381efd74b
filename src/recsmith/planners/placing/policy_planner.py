"""Planners that place by a trained policy: which policy serves a cluster, and what their word asks for.

The word on the command line carries the options, as that of simulated hardware does; NAME is dreamshard or autoshard:

    NAME                          the policy that ships for the cluster's device; a greedy roll-out for each rule of
                                  what is split first (items.py); the cost model judges which is best
    NAME:mine.safetensors         a policy of your own, or the name of one that ships
    NAME?samples=16               also draws 16 placements from the policy
    NAME?refine                   goes on with the local search that planner auto uses
    NAME:mine.safetensors?samples=16&refine

A placement that came to a dead end is repaired; where that fails, tables go in as few pieces as fit, longest first.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Self

from recsmith.clusters import Device
from recsmith.costs import Evaluator
from recsmith.errors import UsageError
from recsmith.planners.placing.drafts import plan_by_policy
from recsmith.planners.placing.policy_files import PolicyCard, PolicyKind
from recsmith.planners.placing.rollouts import PlacingNetwork
from recsmith.planners.placing.words import PolicyWord, is_trained_for, read_word
from recsmith.planners.protocol import Budget, OnImprove, Search, Solution
from recsmith.problems import Footprint, Problem

USUAL = "simulated-h100"  # the policy for devices for which none was trained: what it sees is relative


@dataclass(frozen=True)
class PolicyPlanner:
    """A trained policy. policy: the name of one that ships or a file, None for the one of the cluster's device.

    samples: placements drawn from it besides. refine: whether local search goes on from the best. kind: of policy.
    """

    kind: ClassVar[PolicyKind]

    name: str
    policy: str | None = None
    samples: int = 0
    refine: bool = False
    about: str = ""

    @classmethod
    def of(cls, word: str) -> Self:
        """The planner of a word such as dreamshard:mine.safetensors?samples=16&refine; UsageError for another one."""
        policy, samples, refine = read_word(word, cls.kind.planner)
        return cls(name=word, policy=policy, samples=samples, refine=refine)

    def plan(
        self,
        problem: Problem,
        evaluator: Evaluator,
        *,
        seed: int = 0,
        budget: Budget | None = None,
        start: Footprint | None = None,
        on_improve: OnImprove | None = None,
    ) -> Solution:
        """The best placement of the policy; NoPlanFound where tables find no room. An iteration is a placement.

        Raises:
            UsageError: the policy cannot be read, or was trained for another device.
        """
        search = Search(evaluator, budget, start, on_improve)
        network, note = self._network(problem.cluster.device)
        return plan_by_policy(
            search, network, PolicyWord(self.policy, self.samples, self.refine), self.name, seed, note
        )

    def _network(self, device: Device) -> tuple[PlacingNetwork, str]:
        """The network for a device; and words for a report where it was trained for another."""
        kind = self.kind
        if self.policy is not None:
            network, card = kind.load(kind.find(self.policy))
            if not is_trained_for(card.hardware, card.device, device):
                raise UsageError(
                    f"policy '{self.policy}' was trained on {card.hardware} ({card.device}), the cluster's device is "
                    f"'{device.name}'; write {kind.planner} for the policy that ships, or train one: {kind.made_by}"
                )
            return network, ""
        for name in kind.shipped():
            network, card = _shipped(type(self), name)
            if is_trained_for(card.hardware, card.device, device):
                return network, ""
        network, _ = _shipped(type(self), USUAL)
        return network, f"{kind.planner}: no policy was trained for '{device.name}'; that of {USUAL} placed the tables"


@lru_cache
def _shipped(planner: type[PolicyPlanner], name: str) -> tuple[PlacingNetwork, PolicyCard]:
    return planner.kind.load(planner.kind.find(name))
