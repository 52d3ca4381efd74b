"""Planners that place by a trained policy: dreamshard and autoshard.

With `splits`, a split policy leads instead (split_planner.py). Otherwise the policy of the cluster's device, or one of
your own, makes a greedy roll-out for each split rule (items.py), and random samples if asked for; the cost model
decides which placement is best. A placement that came to a dead end is repaired. If that fails, tables are placed in as
few pieces as fit, longest first. Local search may continue from the best placement.

What a policy provides for `plan_by_policy`: the order of items, and the device of each item.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar, Protocol, Self

import numpy as np

from recsmith._types import Ints
from recsmith.bounds import lower_bound
from recsmith.bounds.relaxation import shared_relaxation
from recsmith.clusters import Device
from recsmith.costs.neural.model import is_device
from recsmith.errors import UsageError
from recsmith.planners.auto.improvement import Improvement, StoppingRule
from recsmith.planners.placing.items import SPLITS, WHOLE, ColumnSplitRule, ItemBatch, items_of
from recsmith.planners.placing.policy_files import PolicyCard, PolicyKind
from recsmith.planners.placing.policy_network import LongestFirstNetwork, PlacingNetwork
from recsmith.planners.placing.policy_options import policy_options
from recsmith.planners.placing.split_planner import plan_by_splits
from recsmith.planners.placing.split_policy import load_splits, shipped_splits
from recsmith.planners.protocol import Search, SearchPlanner, Solution
from recsmith.planners.search.device_state import NOWHERE, Assignment, DeviceState
from recsmith.planners.search.placement import place_in_fewest_pieces, repair

USUAL = "simulated-h100"  # the policy for devices for which none was trained: it sees only relative figures
LARGE, FEW_RULES = 60_000, 2  # tables times devices beyond which only this many split rules are tried
MOST_SAMPLES = MOST_SPLITS = 10_000
AT_ONCE = 200_000  # devices times placements drawn side by side: bounds their memory


@dataclass(frozen=True)
class PolicyPlanner(SearchPlanner):
    """A trained policy. policy: the name of a shipped policy or a file; None for that of the cluster's device.

    samples: number of placements drawn from it in addition. refine: whether local search continues from the best. kind:
    of policy. whole: tables that fit a device stay whole. longest_first: each item is placed on the device that takes
    least with it by the cost network, without the policy. splits: number of placements that a split policy draws, which
    `policy` then names; None for placements of pieces that split rules make.
    """

    kind: ClassVar[PolicyKind]
    numbers: ClassVar[Mapping[str, int]] = {"samples": MOST_SAMPLES}  # options that take a number, and the largest

    name: str
    policy: str | None = None
    samples: int = 0
    refine: bool = False
    whole: bool = False
    longest_first: bool = False
    splits: int | None = None
    about: str = ""

    def with_options(self, text: str) -> Self:
        """The planner of a name such as dreamshard:mine.safetensors?samples=16&refine; UsageError for other texts."""
        return type(self)(name=text, **policy_options(self.kind.planner, self.numbers, text))

    def solve(self, search: Search) -> Solution:
        """Return the best placement of the policy; NoPlanFound if tables find no room. An iteration is a placement.

        Raises:
            UsageError: the policy cannot be read, or was trained for another device.
        """
        if self.splits is not None:
            return self._by_splits(search, self.splits)
        network, note = self._network(search.problem.cluster.device)
        if self.longest_first:
            network = LongestFirstNetwork(network.tensors)
        rules = WHOLE if self.whole else SPLITS
        return plan_by_policy(search, network, self.name, note, samples=self.samples, refine=self.refine, rules=rules)

    def _by_splits(self, search: Search, count: int) -> Solution:
        """The best placement of a split policy, followed by local search if asked for."""
        kind = search.problem.cluster.device.kind
        policy = shipped_splits(kind) if self.policy is None else load_splits(self.policy)[0]
        found, draft = plan_by_splits(search, policy, self.name, count, whole=self.whole)
        if self.refine and draft is not None and not search.stop:
            with search.interruptible():
                _refine(search, draft)
            found = replace(search.found(self.name), left_out=found.left_out)
        return found

    def _network(self, device: Device) -> tuple[PlacingNetwork, str]:
        """The network for a device, and a note for the report if it was trained for another device."""
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


def is_trained_for(hardware: str, measured: str, device: Device) -> bool:
    """Whether a policy that was trained on a hardware, measured as `measured`, is for a cluster's device."""
    return is_device("cuda" if hardware.partition(":")[0] == "cuda" else hardware, measured, device)


@lru_cache
def _shipped(planner: type[PolicyPlanner], name: str) -> tuple[PlacingNetwork, PolicyCard]:
    return planner.kind.load(planner.kind.find(name))


# --- placements of a policy as plans ----------------------------------------------------------------------------------


class PlacedItems(Protocol):
    """Placements of the same items: target (episodes, items), NOWHERE if an item found no room."""

    @property
    def target(self) -> Ints:
        """The device of each item of each episode."""
        ...


class Policy(Protocol):
    """An object that places items, one after the other."""

    def order(self, items: ItemBatch) -> ItemBatch:
        """The items in the order in which they are placed."""
        ...

    def rollout(self, items: ItemBatch, count: int = 1, random: np.random.Generator | None = None) -> PlacedItems:
        """Make `count` placements of ordered items, drawn by `random`; greedy placements if it is None."""
        ...


def plan_by_policy(
    search: Search, policy: Policy, planner: str, note: str = "", *, samples: int = 0, refine: bool = False,
    rules: Sequence[ColumnSplitRule] = SPLITS,
) -> Solution:  # fmt: skip
    """Return the best placement of a policy; NoPlanFound if tables find no room. An iteration is a placement.

    planner: its name in reports. note: for the report, unless the policy found no room. samples, refine: as in
    PolicyPlanner. rules: the split rules.
    """
    drafts = _PolicyDrafts(search, policy, rules)
    with search.interruptible():
        draft = drafts.best(samples)
        if draft is not None and refine and not search.stop:
            _refine(search, draft)
    if drafts.lost:
        note = f"{planner}: the policy found no room for every table; they went longest first"
    return replace(search.found(planner), left_out=(note,) if note else ())


class _PolicyDrafts:
    """The placements of a policy, tried one after the other; `search` keeps the best plan."""

    def __init__(self, search: Search, policy: Policy, rules: Sequence[ColumnSplitRule]) -> None:
        self.search, self.policy, self.rules = search, policy, rules
        self.evaluator, self.problem = search.evaluator, search.problem
        self.lost = False  # whether no placement of the policy could be used

    def best(self, samples: int) -> Assignment | None:
        """The best complete placement over greedy roll-outs and samples; None if nothing finds room."""
        items: ItemBatch | None = None
        found: Assignment | None = None
        dead: list[Assignment] = []
        for each in self._items():
            draft = each.assignment(self.policy.rollout(each).target[0])
            if not draft.complete:
                dead.append(draft)
                continue
            better = self._try(draft, found)
            found, items = better, each if better is draft else items
            if self.search.stop:
                return found
        if found is None:
            repaired = next(filter(None, map(self._repaired, dead)), None)
            self.lost = repaired is None
            found = self._try(repaired or self._longest_first(), None)
        return found if items is None else self._drawn(items, samples, found)

    def _items(self) -> Iterator[ItemBatch]:
        """The items of each split rule, in the order of placement, without repetitions."""
        seen: set[bytes] = set()
        size = len(self.problem.tables) * len(self.problem.capacity)
        for rule in self.rules[: FEW_RULES if size > LARGE else None]:
            items = items_of(self.problem, self.evaluator, rule)
            if items is not None and items.draft.option.tobytes() not in seen:
                seen.add(items.draft.option.tobytes())
                yield self.policy.order(items)

    def _drawn(self, items: ItemBatch, samples: int, found: Assignment | None) -> Assignment | None:
        """The best of a placement and of placements drawn from the policy."""
        random, left = np.random.default_rng(self.search.seed), samples
        while left > 0 and not self.search.stop:
            count = min(left, max(1, AT_ONCE // items.devices))
            left -= count
            for target in self.policy.rollout(items, count, random).target:
                if self.search.stop:
                    break
                found = self._try(_complete(items, target), found)
        return found

    def _try(self, draft: Assignment | None, other: Assignment | None) -> Assignment | None:
        """Try a placement; returns it if it is the best yet or the only one, else the other placement."""
        best = self.search.total_s
        total = self.search.try_(draft.footprint(self.problem) if draft else None)
        return draft if draft is not None and (other is None or total < best) else other

    def _repaired(self, draft: Assignment) -> Assignment | None:
        """Repair a placement: items without room push smaller pieces away; None if that leaves some without room."""
        devices = DeviceState(self.evaluator)
        for i in np.flatnonzero(draft.target != NOWHERE).tolist():
            devices.place(int(draft.piece[i]), int(draft.target[i]))
        repair(devices, draft)
        return draft if draft.complete else None

    def _longest_first(self) -> Assignment | None:
        return place_in_fewest_pieces(DeviceState(self.evaluator), shared_relaxation(self.evaluator))


def _complete(items: ItemBatch, target: Ints) -> Assignment | None:
    """The plan of a roll-out, or None if it came to a dead end."""
    draft = items.assignment(target)
    return draft if draft.complete else None


def _refine(search: Search, draft: Assignment) -> None:
    """Local search from a placement, with the effort that planner auto gives one draft."""
    evaluator = search.evaluator
    known = lower_bound(evaluator)
    size = len(search.problem.tables) * len(search.problem.capacity)
    stopping = StoppingRule(search, known.bound.value_s or 0.0, size)
    if not stopping.reached:
        relaxation = shared_relaxation(evaluator, known.linear)
        Improvement(search, stopping, DeviceState(evaluator)).run([draft], relaxation, limited=True)
