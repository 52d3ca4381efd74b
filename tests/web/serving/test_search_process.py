"""What the page offers where a search has no plan."""

import pytest

from recsmith import load_cluster, plan
from recsmith.errors import Infeasible
from recsmith.problems import Space
from recsmith.web.serving.asked import changed
from recsmith.web.serving.edits import ProblemChanges
from recsmith.web.serving.search_process import explained
from recsmith.workloads import load_workload


def test_histories_that_leave_no_room_offer_fewer_samples_whose_reserve_is_estimated_anew():
    work, cluster = load_workload("dlrm-v4"), load_cluster("h200:8")
    with pytest.raises(Infeasible) as found:
        plan(work, cluster, planner="size_greedy")
    said, fixes = explained(found.value, cluster, Space())
    assert "--" not in said
    assert {"text": "512 samples a device", "changes": {"batch_size": 512}} in fixes
    fewer, _ = changed(work, cluster, ProblemChanges(batch_size=512))
    made = plan(fewer, cluster, planner="size_greedy").plan
    again = changed(made.workload, made.cluster, ProblemChanges(batch_size=256))[1]
    assert (again.reserve_bytes or 0) < 0.6 * (made.cluster.reserve_bytes or 0)
