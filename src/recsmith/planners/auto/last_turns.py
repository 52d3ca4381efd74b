"""The last turns of compiled annealing in planner auto, if its best plan is still far from the bound.

First, single tables are placed in other ways (annealing/other_ways.py). Then the best plan cools once more for long,
from a temperature at which costly tables still change their sharding types: such plans depend on which of these tables
share a small fusion group, and changing one table alone seldom makes the step shorter.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from recsmith.bounds.groups import groups_dominated_by_type
from recsmith.planners.annealing.kernel import FlatOptions
from recsmith.planners.annealing.other_ways import WAY_ROUNDS, other_ways
from recsmith.planners.annealing.starts import TriedOptions
from recsmith.planners.annealing.successive_halving import FAR_ROUND, LONG_HEAT, AnnealedPlan, Round, SuccessiveHalving
from recsmith.planners.auto.drafts import Drafts
from recsmith.planners.auto.improvement import StoppingRule
from recsmith.problems import Footprint

WIDE_GAP = 1.5e-2  # relative gap above which hosts are filled unevenly, and single tables are placed in other ways
WAYS_GAIN, WAYS_TURNS = 5e-4, 3  # gain, as a share of the step, for which this is repeated; how often at most
REHEAT_GAP = 2e-2  # relative gap above which the best plan is heated again; trade-off: a CPU second or more for each


class LastTurns:
    """Turns from the best plan of a search, which keeps the best plan found. hear: as in SuccessiveHalving.run."""

    def __init__(
        self, stopping: StoppingRule, drafts: Drafts, halving: SuccessiveHalving, hear: Callable[[Footprint], bool]
    ) -> None:
        self.stopping, self.drafts, self.halving, self.hear = stopping, drafts, halving, hear
        self.search, self.devices = stopping.search, drafts.devices

    def work(self) -> bool:
        """Take turns, if any; returns whether any were. Learned models get the long round alone, on several hosts."""
        if not self.halving.is_short:
            return False
        if self.devices.linear_pieces is None:
            return self.devices.hosts > 1 and self._reheat()
        ways = self._other_ways()
        return self._reheat() or ways

    def _other_ways(self) -> bool:
        """Short turns from plans in which single tables of the best plan are placed in other ways."""
        turns = 0
        while turns < WAYS_TURNS and self._is_far(WIDE_GAP):
            before, ways = self.search.total_s, other_ways(self.devices, self.drafts.relaxation, self.halving.plans[0])
            if not ways:
                break
            self._run(ways, WAY_ROUNDS)
            turns += 1
            if self.search.total_s > before * (1 - WAYS_GAIN):
                break
        return turns > 0

    def _reheat(self) -> bool:
        """Run the long round, made for more pieces, with all groups open; not if rounds are long anyway.

        It begins at its own temperatures, whatever the number of devices. Its steps are at most the first cooling's
        steps times the number of pieces, because a few giant tables settle sooner.
        """
        if self.halving.has_long_rounds or not self._is_far(REHEAT_GAP):
            return False
        heats = tuple(share * LONG_HEAT / self.halving.heat for share in FAR_ROUND.heats)
        best = self._opened(self.halving.plans[0])
        self._run([best], (FAR_ROUND._replace(heats=heats, times=min(FAR_ROUND.times, int(best.plan.count.sum()))),))
        return True

    def _opened(self, best: AnnealedPlan) -> AnnealedPlan:
        """A plan that kept to the groups of its start, free to use all groups that no other could replace."""
        useful = self.drafts.relaxation.within(~groups_dominated_by_type(self.devices.evaluator))
        options = FlatOptions(best.options.flat, TriedOptions(self.devices, useful))
        return replace(best, options=options) if options.usable else best

    def _run(self, plans: Sequence[AnnealedPlan], rounds: tuple[Round, ...]) -> None:
        other = self.halving.another(plans, rounds)
        other.run(self.hear, self._keep_on)
        self.halving.take(other)

    def _is_far(self, gap: float) -> bool:
        return self._keep_on() and self.search.total_s > self.stopping.bound_s * (1 + gap)

    def _keep_on(self) -> bool:
        return not self.stopping.reached
