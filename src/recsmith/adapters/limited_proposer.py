"""A proposer of TorchRec's planner that ends after some CPU seconds, so that a busy machine changes no comparison."""

import time
from typing import Any

from torchrec.distributed.planner.types import Enumerator, Proposer, ShardingOption, Topology


class LimitedProposer(Proposer):
    """Another proposer, asked for no more once the process has spent cpu_s since the first proposal.

    TorchRec's own time limit is by the clock and for all proposers together, so that the first leaves the others none.
    """

    def __init__(self, proposer: Proposer, cpu_s: float) -> None:
        self._proposer, self._cpu_s = proposer, cpu_s
        self._ends: float | None = None

    def load(self, search_space: list[ShardingOption], enumerator: Enumerator | None = None) -> None:
        """Give the proposer the search space; its time begins with its first proposal."""
        self._ends = None
        self._proposer.load(search_space, enumerator)

    def propose(self) -> list[ShardingOption] | None:
        """The proposer's next proposal; None once its time is over."""
        if self._ends is None:
            self._ends = time.process_time() + self._cpu_s
        return self._proposer.propose() if time.process_time() < self._ends else None

    def feedback(
        self,
        partitionable: bool,
        plan: list[ShardingOption] | None = None,
        perf_rating: float | None = None,
        storage_constraint: Topology | None = None,
    ) -> None:
        """What came of the last proposal."""
        given: dict[str, Any] = {"plan": plan, "perf_rating": perf_rating, "storage_constraint": storage_constraint}
        self._proposer.feedback(partitionable, **given)
