"""All-to-alls of gloo between hosts go one way and then the other; elsewhere nothing is added."""

from dataclasses import replace

import pytest
from support.plans import two_tables

from recsmith.clusters import load_cluster
from recsmith.planning.simulate import simulate
from recsmith.plans import Plan
from recsmith.prediction.job_step import job_step
from recsmith.prediction.reading import Reading
from recsmith.prediction.turns import between_hosts_s, exchange_s, forward_turn_s

RATE = 25e6  # bytes a second


def two_hosts(device: str = "cpu:2") -> Plan:
    cluster = load_cluster(device)
    links = replace(cluster.links, inter_host_bandwidth=RATE)
    apart = replace(cluster, hosts=2, local_world_size=1, links=links)
    return simulate(replace(two_tables(), cluster=apart, digest=""), bound=False)


def test_nothing_is_added_on_one_host_and_on_gpus() -> None:
    assert between_hosts_s(replace(two_tables(), cluster=load_cluster("cpu:2")), 1e6, 1e5) == 0
    assert between_hosts_s(two_hosts("h100:2"), 1e6, 1e5) == 0


def test_backward_both_ways_take_turns_and_ids_cross_first() -> None:
    plan = two_hosts()
    least = max(each.backward_comm_s for each in plan.cost.per_device)
    none, some = between_hosts_s(plan, 0.0, 0.0), between_hosts_s(plan, 1e6, 0.0)
    assert least <= none <= exchange_s(plan)
    assert some - none == pytest.approx(1.5 * 8e6 / 2 / RATE)


def test_the_longer_ranks_look_up_the_more_often_they_take_turns() -> None:
    plan = two_hosts()
    whole = max(each.forward_comm_s for each in plan.cost.per_device)
    turns = [forward_turn_s(plan, each) for each in (0.0, 6e-4, 6e-3, 1.0)]
    assert turns == sorted(turns)
    assert turns[0] == 0
    assert turns[1] == pytest.approx(whole / 2)
    assert turns[-1] == pytest.approx(whole, rel=1e-2)


def test_reading_hides_behind_a_link_that_is_waited_for() -> None:
    plan, shapes = two_hosts(), [(16, 13), (16,)]
    none, some, much = (job_step(plan, shapes, reading=Reading(sample_s=each)) for each in (0.0, 1e-12, 1.0))
    assert none is not None
    assert some is not None
    assert much is not None
    assert some.reading_s == none.reading_s
    assert much.reading_s - none.reading_s == pytest.approx(2 * plan.workload.batch_size - exchange_s(plan))
