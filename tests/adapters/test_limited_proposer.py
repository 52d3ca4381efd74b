"""A limit of CPU seconds on a proposer: it ends between proposals, and changes none before."""

import time
from dataclasses import replace

import pytest

from recsmith.adapters.torchrec_settings import STOCK
from recsmith.bench.tasks import SPACE, DimRow, draw_tasks

pytestmark = pytest.mark.usefixtures("torchrec")


def test_a_limit_that_is_not_reached_changes_no_plan():
    from recsmith.adapters.torchrec_planner import plan_with_torchrec

    task = draw_tasks(DimRow(devices=4, max_dim=4), 1, 2026, "h100", 65_536).tasks[0]
    limited = plan_with_torchrec(task.workload, task.cluster, SPACE, replace(STOCK, proposer_cpu_s=1000.0))
    assert limited == plan_with_torchrec(task.workload, task.cluster, SPACE, STOCK)


def test_it_is_asked_for_no_more_after_its_seconds():
    from torchrec.distributed.planner.proposers import UniformProposer
    from torchrec.distributed.planner.types import ShardingOption

    from recsmith.adapters.limited_proposer import LimitedProposer

    class Endless(UniformProposer):
        def propose(self) -> list[ShardingOption] | None:
            return []

    made = LimitedProposer(Endless(), 0.01)
    made.load([])
    assert made.propose() == []
    ends = time.process_time() + 0.02
    while time.process_time() < ends:
        pass
    assert made.propose() is None
