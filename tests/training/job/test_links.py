"""Whether a told step may be compared with the one that a job had: hosts of its plan and those that it has."""

from dataclasses import replace

import pytest
from support.build import cluster

from recsmith.clusters import sharding_group
from recsmith.jobs.agent import PARENT
from recsmith.training.job.links import step_line, why_not_comparable


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A rank that torchrun started, of two on its host."""
    monkeypatch.delenv(PARENT, raising=False)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    return monkeypatch


def test_a_step_is_comparable_where_the_plans_hosts_are_there(launched: pytest.MonkeyPatch) -> None:
    assert why_not_comparable(cluster(2), 4) is None
    assert why_not_comparable(cluster(1), 2) is None
    launched.setenv("LOCAL_WORLD_SIZE", "4")
    assert why_not_comparable(cluster(2), 4) == (
        "not comparable: that is of 2 hosts and the links between them, and this job ran on 1 host"
    )


def test_ranks_that_recsmith_started_on_this_machine_are_one_host(launched: pytest.MonkeyPatch) -> None:
    """Each agent of an emulated host says that its ranks are a host of their own; no link lies between these."""
    launched.setenv(PARENT, "1")
    assert "and this job ran on 1 host" in (why_not_comparable(cluster(2), 4) or "")
    assert why_not_comparable(cluster(1), 2) is None
    groups = sharding_group(replace(cluster(1), local_world_size=4), 2)  # two, of two ranks each, on one host
    assert why_not_comparable(groups, 4) is None


def test_the_end_of_a_job_says_so_beside_both_steps(launched: pytest.MonkeyPatch) -> None:
    assert step_line(0.0173, 0.00974, cluster(2), 4) == "the usual step took 17.3 ms; 9.74 ms were predicted"
    launched.setenv(PARENT, "1")
    said = step_line(0.0173, 0.00974, cluster(2), 4) or ""
    assert said.startswith("the usual step took 17.3 ms; 9.74 ms were predicted, not comparable: that is of 2 hosts")
    assert step_line(0.0173, None, cluster(2), 4) == "the usual step took 17.3 ms"
    assert step_line(None, 0.00974, cluster(2), 4) is None
