"""Rows of tables on disk in the graph of a step: they come before the lookup, or beside what follows it."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.amounts import some
from support.dlrm_plans import DLRM, a_plan
from support.machines import a_machine

from recsmith.clusters import Disk
from recsmith.costs.fetches import disk_fetches
from recsmith.plans import Cache, Plan
from recsmith.prediction.fetching import TERM, with_fetches
from recsmith.prediction.graph import Graph
from recsmith.prediction.kernels import LOOKUPS
from recsmith.prediction.models.build import model_graph
from recsmith.prediction.predict import predict_graph
from recsmith.prediction.walk import walk
from recsmith.prediction.what_if import apply_what_ifs, parse_what_ifs
from recsmith.workloads.workload import AHEAD


def on_disk(reads_per_s: float, pipeline: str) -> Plan:
    """A plan of two ranks whose tables are all on disk, a tenth of their rows cached."""
    plan = a_plan((0, 1, 0, 1, 0))
    cluster = replace(plan.cluster, ssd_bytes_per_host=2**40, disk=Disk(bandwidth=1e12, reads_per_s=reads_per_s))
    placed = tuple(replace(each, compute_kernel="key_value", cache=Cache(load_factor=0.1)) for each in plan.placements)
    workload = replace(plan.workload, pipeline=pipeline)  # type: ignore[arg-type]
    return replace(plan, cluster=cluster, placements=placed, workload=workload)


def plain() -> Graph:
    return model_graph(DLRM, a_machine(), plan=a_plan((0, 1, 0, 1, 0)), ranks=2, batch=None)


@settings(max_examples=some(8, 20), deadline=None)
@given(st.floats(2.0, 9.0))
def test_a_step_takes_the_longer_of_its_rest_and_its_fetch(power: float):
    waits, beside = on_disk(10**power, "none"), on_disk(10**power, AHEAD)
    found = disk_fetches(waits)
    assert found is not None
    graph, slowest = plain(), found.longest_s
    step = walk(graph).step_s
    waiting, hidden = (walk(with_fetches(graph, plan)[0]).step_s for plan in (waits, beside))
    assert step <= hidden <= waiting + 1e-12
    assert max(step, slowest) <= hidden + 1e-12
    assert waiting <= step + sum(found.seconds) + 1e-12  # ranks wait for each other at collectives
    assert step + slowest <= waiting + 1e-12 or slowest < step
    lookups = [times.begin[next(i for i, e in enumerate(tape) if e.term == LOOKUPS[0])]
               for tape, times in zip(graph.ranks, walk(graph).ranks, strict=True)]  # fmt: skip
    if slowest < min(lookups):  # all of it comes before the next lookup
        assert hidden == pytest.approx(step)
    assert found.ahead_s == max(found.step_s, slowest)


def test_what_a_step_waits_for_is_said_and_is_no_kernel():
    graph, (note,) = with_fetches(plain(), on_disk(100.0, AHEAD))
    found, whole = predict_graph(graph), predict_graph(plain())
    assert found.terms[TERM] > 0.9 * found.step_s
    assert found.kernels_s == whole.kernels_s
    assert [each.active_s for each in found.ranks] == pytest.approx([each.active_s for each in whole.ranks])
    assert "beside the step before (pipeline prefetch_sparse_dist)" in note
    quick = apply_what_ifs(graph, parse_what_ifs("kernel=0"), lambda _: 0.0)
    assert predict_graph(quick).terms[TERM] > 0.9 * found.terms[TERM]


def test_nothing_changes_without_tables_on_disk():
    graph = plain()
    assert with_fetches(graph, a_plan((0, 1, 0, 1, 0))) == (graph, ())
    assert with_fetches(graph, None) == (graph, ())
