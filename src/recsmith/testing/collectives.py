"""The contract of collectives: for your own (set `comms`, as a run names it), and for RecSmith's."""

from typing import Any

from recsmith.sharding import TYPE_NAMES
from recsmith.testing.problems import sample_problems
from recsmith.training.collectives import collectives_of, sharders_of


class CollectiveContract:
    """The contract of collectives. Subclass it as a test class, and set `comms`.

    changes: whether pooled embeddings are exchanged in another format than fp32.
    """

    comms: Any
    changes = True

    def test_it_says_how_many_bytes_a_number_takes_and_which_types_it_carries(self) -> None:
        """It states how many bytes a number takes and which sharding types it supports."""
        made = collectives_of(self.comms)
        each = made.bytes_per_value()
        assert all(value is None or 0 < value <= 8 for value in each)
        assert (each == (None, None)) == (not self.changes)
        types = made.sharding_types()
        assert types is None or set(types) <= set(TYPE_NAMES)
        assert (made.codecs() is None) == (not self.changes)
        assert sharders_of(made)

    def test_it_carries_the_plans_that_it_says_it_carries(self) -> None:
        """It accepts exactly the plans whose sharding types it states."""
        from recsmith.planning import plan

        made = collectives_of(self.comms)
        for problem in sample_problems():
            found = plan(problem.workload, problem.cluster, planner="size_greedy", space=problem.space).plan
            types = made.sharding_types()
            if types is None or {each.sharding_type for each in found.placements} <= set(types):
                assert made.refuses(found) is None
            else:
                assert made.refuses(found)
