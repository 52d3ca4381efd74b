"""RecSmithPlanner in TorchRec's place: it keeps to TorchRec's constraints, and all ranks agree."""

from typing import Any

import pytest

from recsmith import Constraints, Space

pytestmark = pytest.mark.usefixtures("torchrec")


def test_the_plan_keeps_to_torchrecs_constraints() -> None:
    from support.jobs import TwoCollections, constraints

    from recsmith.torchrec import RecSmithPlanner

    planner = RecSmithPlanner("h100:2", batch_size=16, constraints=constraints(), space=Space(widths="torchrec"))
    plan = planner.plan(TwoCollections())
    assert plan.plan["pooled"]["t2"].sharding_type == "row_wise"  # type: ignore[index]
    assert planner.result is not None
    assert planner.result.plan.gap is not None


def test_rules_of_ones_own_hold_beside_torchrecs() -> None:
    from support.jobs import TwoCollections

    from recsmith import TableRule
    from recsmith.torchrec import RecSmithPlanner

    limits = Constraints(rules=(TableRule(tables="pooled.*", sharding_types=("table_wise",)),))
    plan = RecSmithPlanner("h100:2", batch_size=16, limits=limits).plan(TwoCollections())
    assert plan.plan["pooled"]["t0"].sharding_type == "table_wise"  # type: ignore[index]


def _collective(**words: Any) -> list[Any]:
    from recsmith.jobs.launch import launch

    return launch("support.jobs:collective", words, ranks=2)


def test_all_ranks_receive_the_plan_of_rank_0() -> None:
    first, second = _collective()
    assert first == second
    assert first["pooled"]["t2"] == ["row_wise", [0, 1]]


def test_an_error_of_rank_0_is_raised_on_every_rank() -> None:
    answers = _collective(hbm=2**16)
    assert [answer["error"] for answer in answers] == ["Infeasible", "Infeasible"]
    assert "Proved" in answers[1]["message"]


def test_a_rank_with_another_model_stops_all_ranks() -> None:
    answers = _collective(rows_of_rank_1=999)
    assert [answer["error"] for answer in answers] == ["PlanMismatch", "PlanMismatch"]
    assert "rank 1 cannot use the plan of rank 0" in answers[0]["message"]


def test_a_cluster_of_another_size_is_refused_on_every_rank() -> None:
    answers = _collective(cluster="cpu:4")
    assert all("2 ranks, the cluster 4" in answer["message"] for answer in answers)
