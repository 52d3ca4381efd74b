"""Planner `dreamshard`: items go, dearest first, where a trained policy scores highest. Inference is NumPy.

The word on the command line carries its options, as that of simulated hardware does:

    dreamshard                          the policy that ships for the cluster's device; a greedy roll-out for each rule
                                        of what is split first (placing/items.py); the cost model judges which is best
    dreamshard:mine.safetensors         a policy of your own, or the name of one that ships
    dreamshard?samples=16               also draws 16 placements from the policy
    dreamshard?refine                   goes on with the local search that planner auto uses
    dreamshard:mine.safetensors?samples=16&refine

A placement that came to a dead end is repaired; where that fails, tables go in as few pieces as fit, longest first.
"""

from dataclasses import dataclass
from functools import lru_cache

from recsmith.clusters import Device
from recsmith.costs import Evaluator
from recsmith.errors import UsageError
from recsmith.planners.dreamshard.files import PolicyCard, find_policy, load_policy, shipped_policies
from recsmith.planners.dreamshard.network import DreamShardNetwork
from recsmith.planners.placing.drafts import plan_by_policy
from recsmith.planners.placing.words import PolicyWord, is_trained_for, read_word
from recsmith.planners.protocol import Budget, OnImprove, Search, Solution
from recsmith.problems import Footprint, Problem

NAME = "dreamshard"
USUAL = "simulated-h100"  # the policy for devices for which none was trained: what it sees is relative


@dataclass(frozen=True)
class DreamShard:
    """A trained policy. policy: the name of one that ships or a file, None for the one of the cluster's device.

    samples: placements drawn from it besides. refine: whether local search goes on from the best.
    """

    name: str = NAME
    policy: str | None = None
    samples: int = 0
    refine: bool = False
    about: str = "A trained policy (Zha et al., 2022); ?samples=16, ?refine."

    @classmethod
    def of(cls, word: str) -> "DreamShard":
        """The planner of a word such as dreamshard:mine.safetensors?samples=16&refine; UsageError for another one."""
        policy, samples, refine = read_word(word, NAME)
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

    def _network(self, device: Device) -> tuple[DreamShardNetwork, str]:
        """The network for a device; and words for a report where it was trained for another."""
        if self.policy is not None:
            network, card = load_policy(find_policy(self.policy))
            if not is_trained_for(card.hardware, card.device, device):
                raise UsageError(
                    f"policy '{self.policy}' was trained on {card.hardware} ({card.device}), the cluster's device is "
                    f"'{device.name}'; write {NAME} for the policy that ships, or train one: recsmith learn dreamshard"
                )
            return network, ""
        for name in shipped_policies():
            network, card = _shipped(name)
            if is_trained_for(card.hardware, card.device, device):
                return network, ""
        network, _ = _shipped(USUAL)
        return network, f"{NAME}: no policy was trained for '{device.name}'; that of {USUAL} placed the tables"


@lru_cache
def _shipped(name: str) -> tuple[DreamShardNetwork, PolicyCard]:
    return load_policy(find_policy(name))
