"""What dense layers could do for memory: ZeRO's shares by hand, and schedules of activations that keep their limit."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.build import placed, plan_of, table, workload

from recsmith import load_cluster
from recsmith.analyses.step_memory import StepMemory, step_memory
from recsmith.prediction.dense_choices import DenseLayers, dense_choices, layers_graph
from recsmith.problems.dense_bytes import DenseBytes

KIB = 1024
DENSE = DenseBytes(fixed=12_000 * KIB, gradients=4000 * KIB, activations=64_000 * KIB)
LAYERS = DenseLayers(
    weights=4000 * KIB, gradients=4000 * KIB, state=8000 * KIB, outputs=(2000 * KIB,) * 16, forward_s=(1e-3,) * 16
)


def memory(kind: str = "h100:4", dense: DenseBytes = DENSE) -> StepMemory:
    work = workload(table("a", rows=1000, dim=32, pooling_factor=2.0), batch_size=8, optimizer="sgd")
    return step_memory(plan_of(work, load_cluster(kind), placed("a", "table_wise", [0])), dense)


def test_what_ranks_divide_is_a_share_of_each():
    before = memory()
    made = {choice.name[:3]: choice.dense for choice, _ in dense_choices(before, LAYERS)[:3]}
    assert made["opt"] == replace(DENSE, fixed=(12_000 - 6000) * KIB)
    zero_3 = [choice for choice, _ in dense_choices(before, LAYERS)][2]
    assert zero_3.dense == replace(DENSE, fixed=(12_000 - 6000 - 3000) * KIB, gradients=1000 * KIB)
    assert zero_3.costs.startswith("2.93 MiB more between ranks")  # three quarters of 4000 KiB


def test_fewer_activations_lower_the_peak_of_dense_phases_and_cost_time():
    before = memory()
    found = [(choice, then) for choice, then in dense_choices(before, LAYERS) if "activations" in choice.name]
    assert found
    peaks = [int(then.schedule.peak.max()) for _, then in found]
    assert int(before.schedule.peak.max()) > peaks[0]
    assert all(earlier >= later for earlier, later in pairwise(peaks))
    assert all("copied to the host" in choice.costs or "computed again" in choice.costs for choice, _ in found)


def test_one_rank_divides_nothing_and_layers_that_are_not_told_keep_their_activations():
    names = [choice.name for choice, _ in dense_choices(memory("h100:1"), LAYERS)]
    assert names
    assert not any("ZeRO" in name for name in names)
    assert dense_choices(memory("h100:1"), replace(LAYERS, outputs=(), forward_s=())) == ()


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 10**6), min_size=2, max_size=8), st.data())
def test_a_layers_graph_reads_what_was_made_before(outputs: list[int], data: st.DataObject):
    seconds = data.draw(st.lists(st.floats(1e-6, 1.0), min_size=len(outputs), max_size=len(outputs)))
    layers = replace(LAYERS, outputs=tuple(outputs), forward_s=tuple(seconds))
    graph = layers_graph(layers)
    assert len(graph.operations) == 2 * len(outputs)
    assert all(read < number for number, each in enumerate(graph.operations) for read in each.inputs)
    assert graph.seconds == pytest.approx(3 * sum(seconds))
