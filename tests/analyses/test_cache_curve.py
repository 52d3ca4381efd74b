"""The curve of a plan's caches rises, ends where all rows are cached, and goes through the plan's own point."""

from dataclasses import replace

import pytest
from support.build import placed, plan_of, table, workload

from recsmith.analyses.cache_curve import SHARES, cache_curve
from recsmith.clusters import load_cluster
from recsmith.plans import Cache, Plan
from recsmith.problems.cached_lookups import cached_tables_of, hit_share
from recsmith.workloads import AccessProfile


def with_caches(cluster: str, kernel: str, policy: str = "lru") -> Plan:
    """Two tables behind caches of a tenth of their rows, and one in device memory."""
    tables = [replace(table(name, rows, 16), access=AccessProfile(zipf=zipf))
              for name, rows, zipf in (("a", 50_000, 1.1), ("b", 20_000, 0.6), ("c", 100, 1.0))]  # fmt: skip
    made = [placed(name, "table_wise", [0], kernel=kernel) for name in ("a", "b")]
    cached = [replace(each, cache=Cache(load_factor=0.1, policy=policy)) for each in made]  # type: ignore[arg-type]
    return plan_of(workload(*tables), load_cluster(cluster), *cached, placed("c", "table_wise", [0]))


@pytest.mark.parametrize("policy", ["lru", "static"])
def test_hits_rise_to_all_lookups_and_meet_the_plan(policy: str):
    plan = with_caches("cpu:1", "key_value", policy)
    curve = cache_curve(plan)
    assert curve is not None
    assert [point.share for point in curve.points] == list(SHARES)
    for hits in ([point.lru for point in curve.points], [point.static or 0.0 for point in curve.points]):
        assert hits == sorted(hits)
        assert hits[-1] == pytest.approx(1.0, abs=0.01)
    own = next(point for point in curve.points if point.share == 0.1)
    assert curve.planned_bytes == own.bytes == round(0.1 * 70_000 * 16 * 4)
    assert curve.planned_hits == (own.lru if policy == "lru" else own.static)
    assert curve.planned_hits == hit_share(plan.workload, cached_tables_of(plan))
    assert own.static is not None
    assert own.static > own.lru  # of accesses that do not change, the rows that are read most serve more


def test_caches_in_front_of_host_memory_have_one_policy_and_other_plans_no_curve():
    curve = cache_curve(with_caches("h100:1", "fused_uvm_caching"))
    assert curve is not None
    assert [point.static for point in curve.points] == [None] * len(SHARES)
    assert (
        cache_curve(plan_of(workload(table("a", 10, 8)), load_cluster("h100:1"), placed("a", "table_wise", [0])))
        is None
    )
