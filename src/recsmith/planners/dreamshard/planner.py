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

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from recsmith._types import Ints
from recsmith.bounds import lower_bound
from recsmith.bounds.shared_relaxations import shared_relaxation
from recsmith.clusters import Device
from recsmith.costs import Evaluator
from recsmith.costs.neural.model import is_device
from recsmith.errors import UsageError
from recsmith.planners.auto.improvement import Improvement
from recsmith.planners.auto.stopping import StoppingRule
from recsmith.planners.dreamshard.files import PolicyCard, find_policy, load_policy, shipped_policies
from recsmith.planners.dreamshard.network import DreamShardNetwork
from recsmith.planners.placing import SPLITS, ItemBatch, items_of
from recsmith.planners.protocol import Budget, OnImprove, Search, Solution
from recsmith.planners.search.assignment import NOWHERE, Assignment
from recsmith.planners.search.device_state import DeviceState
from recsmith.planners.search.fewest_pieces import place_in_fewest_pieces
from recsmith.planners.search.repair import repair
from recsmith.problems import Footprint, Problem

NAME = "dreamshard"
USUAL = "simulated-h100"  # the policy for devices for which none was trained: what it sees is relative
MOST_SAMPLES = 10_000
LARGE, FEW_RULES = 60_000, 2  # tables times devices beyond which so many rules of what is split are tried
AT_ONCE = 200_000  # devices times placements drawn side by side: bounds the memory that they take
_WORDS = f"write {NAME}, {NAME}:<name or file>, {NAME}?samples=16, {NAME}?refine, or {NAME}?samples=16&refine"


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
        named, _, options = word.partition("?")
        _, colon, policy = named.partition(":")
        if (colon and not policy) or word.endswith(("?", "&")):
            raise UsageError(
                f"'{word}' has no {'option' if policy or not colon else 'policy'} where one belongs; {_WORDS}"
            )
        samples, refine = 0, False
        for option in options.split("&") if options else ():
            key, _, value = option.partition("=")
            if (key == "samples" and samples) or (option == "refine" and refine):
                raise UsageError(f"'{word}' says {key} twice; {_WORDS}")
            if key == "samples":
                samples = _samples(value)
            elif option == "refine":
                refine = True
            else:
                raise UsageError(f"'{option}' is not an option of planner {NAME}; {_WORDS}")
        return cls(name=word, policy=policy or None, samples=samples, refine=refine)

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
        network, lost = self._network(problem.cluster.device)
        drafts = _Drafts(search, network, seed)
        with search.interruptible():
            draft = drafts.best(self.samples)
            if draft is not None and self.refine and not search.stop:
                _refine(search, draft, seed)
        words = drafts.lost or lost
        return replace(search.found(self.name), left_out=(words,) if words else ())

    def _network(self, device: Device) -> tuple[DreamShardNetwork, str]:
        """The network for a device; and words for a report where it was trained for another."""
        if self.policy is not None:
            network, card = load_policy(find_policy(self.policy))
            if not _is_for(card, device):
                raise UsageError(
                    f"policy '{self.policy}' was trained on {card.hardware} ({card.device}), the cluster's device is "
                    f"'{device.name}'; write {NAME} for the policy that ships, or train one: recsmith learn dreamshard"
                )
            return network, ""
        for name in shipped_policies():
            network, card = _shipped(name)
            if _is_for(card, device):
                return network, ""
        network, _ = _shipped(USUAL)
        return network, f"{NAME}: no policy was trained for '{device.name}'; that of {USUAL} placed the tables"


def _samples(value: str) -> int:
    """The number of samples in a word; UsageError for none, or for too many."""
    if not (value.isascii() and value.isdigit() and len(value) < 9 and 1 <= int(value) <= MOST_SAMPLES):
        raise UsageError(f"'{value[:20]}' is no number of samples from 1 to {MOST_SAMPLES:,}; {_WORDS}")
    return int(value)


@lru_cache
def _shipped(name: str) -> tuple[DreamShardNetwork, PolicyCard]:
    return load_policy(Path(find_policy(name)))


def _is_for(card: PolicyCard, device: Device) -> bool:
    """Whether a policy was trained for a device."""
    kind = card.hardware.partition(":")[0]
    return is_device("cuda" if kind == "cuda" else card.hardware, card.device, device)


class _Drafts:
    """The placements of a policy, tried one after the other; `search` keeps the best plan."""

    def __init__(self, search: Search, network: DreamShardNetwork, seed: int) -> None:
        self.search, self.network, self.seed = search, network, seed
        self.evaluator, self.problem = search.evaluator, search.evaluator.problem
        self.lost = ""  # that the policy placed nothing, in words for a report

    def best(self, samples: int) -> Assignment | None:
        """The best complete placement of greedy roll-outs and of samples; None where nothing finds room."""
        items: ItemBatch | None = None
        found: Assignment | None = None
        dead: list[Assignment] = []
        for each in self._items():
            draft = each.assignment(self.network.rollout(each).target[0])
            if not draft.complete:
                dead.append(draft)
                continue
            better = self._try(draft, found)
            found, items = better, each if better is draft else items
            if self.search.stop:
                return found
        if found is None:
            repaired = next(filter(None, map(self._repaired, dead)), None)
            self.lost = "" if repaired else f"{NAME}: the policy found no room for every table; they went longest first"
            found = self._try(repaired or self._longest_first(), None)
        return found if items is None else self._drawn(items, samples, found)

    def _items(self) -> Iterator[ItemBatch]:
        """The items of each rule of what is split, in the order of placement; none twice."""
        seen: set[bytes] = set()
        size = len(self.problem.tables) * len(self.problem.capacity)
        for rule in SPLITS[: FEW_RULES if size > LARGE else None]:
            items = items_of(self.problem, self.evaluator, rule)
            if items is not None and items.draft.option.tobytes() not in seen:
                seen.add(items.draft.option.tobytes())
                yield self.network.order(items)

    def _drawn(self, items: ItemBatch, samples: int, found: Assignment | None) -> Assignment | None:
        """The best of a placement and of those drawn from the policy."""
        random, left = np.random.default_rng(self.seed), samples
        while left > 0 and not self.search.stop:
            count = min(left, max(1, AT_ONCE // items.devices))
            left -= count
            for target in self.network.rollout(items, count, random).target:
                if self.search.stop:
                    break
                found = self._try(_placed(items, target), found)
        return found

    def _try(self, draft: Assignment | None, other: Assignment | None) -> Assignment | None:
        """Try a placement; it, where it is the best yet or there is no other, or else the other."""
        best = self.search.total_s
        total = self.search.try_(draft.footprint(self.problem) if draft else None)
        return draft if draft is not None and (other is None or total < best) else other

    def _repaired(self, draft: Assignment) -> Assignment | None:
        """The placement once what found no room has pushed smaller pieces away; None where that does not help."""
        devices = DeviceState(self.evaluator)
        for i in np.flatnonzero(draft.target != NOWHERE).tolist():
            devices.place(int(draft.piece[i]), int(draft.target[i]))
        repair(devices, draft)
        return draft if draft.complete else None

    def _longest_first(self) -> Assignment | None:
        return place_in_fewest_pieces(DeviceState(self.evaluator), shared_relaxation(self.evaluator))


def _placed(items: ItemBatch, target: Ints) -> Assignment | None:
    """The plan of a roll-out, None where it came to a dead end."""
    draft = items.assignment(target)
    return draft if draft.complete else None


def _refine(search: Search, draft: Assignment, seed: int) -> None:
    """Local search from a placement, with the effort that planner auto gives one draft."""
    evaluator = search.evaluator
    known = lower_bound(evaluator)
    size = len(evaluator.problem.tables) * len(evaluator.problem.capacity)
    stopping = StoppingRule(search, known.bound.value_s or 0.0, size)
    if not stopping.reached:
        relaxation = shared_relaxation(evaluator, known.linear)
        Improvement(search, stopping, DeviceState(evaluator), seed).run([draft], relaxation, limited=True)
