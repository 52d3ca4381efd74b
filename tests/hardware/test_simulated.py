"""The simulated GPU: the analytic model, and its three effects."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.measured import group

from recsmith.clusters import load_cluster
from recsmith.costs import cost_model
from recsmith.costs.analytic import BACKWARD_KERNELS, FORWARD_KERNELS, LAUNCH_S
from recsmith.costs.fitted_kernels import MULTIPROCESSORS
from recsmith.hardware import SCALES, Case, Hardware, load_hardware
from recsmith.hardware.simulated import WARPS_PER_SM
from recsmith.measuring.cases import Cases
from recsmith.problems import Space, build_problem

H100 = load_hardware("simulated:h100")
SMALL = Cases(seed=5, scale=SCALES["gpu"])
FEW = settings(max_examples=25)
SLOTS = MULTIPROCESSORS["h100"] * WARPS_PER_SM


def times(case: Case, hardware: Hardware = H100) -> tuple[float, float]:
    found = hardware.measure(case)
    assert found.status == "ok"
    assert found.forward_s is not None
    assert found.backward_s is not None
    return found.forward_s, found.backward_s


def analytic(case: Case) -> tuple[float, float]:
    """Compute of the analytic model for the whole case on one device."""
    problem = build_problem(case.workload, load_cluster("h100:1"), Space(types=("table_wise",), kernels=("fused",)))
    evaluator, modes = cost_model("analytic").compile(problem), np.arange(len(problem.tables))
    sums = evaluator.terms(modes, problem.demand.dim).sum(axis=0, keepdims=True)
    forward, backward, *_ = evaluator.head(sums)[0].tolist()
    return forward, backward


def test_a_case_that_does_nothing_takes_its_launches():
    forward, backward = times(group((1, 4, 0.0, 0.0), batch_size=1))
    assert forward == pytest.approx(FORWARD_KERNELS * LAUNCH_S, rel=0.01)
    assert backward == pytest.approx(BACKWARD_KERNELS * LAUNCH_S, rel=0.01)


@FEW
@given(st.integers(0, 500))
def test_it_is_never_faster_than_the_analytic_model(number: int):
    case = SMALL.case(number)
    for ours, model in zip(times(case), analytic(case), strict=True):
        assert ours >= model * (1 - 1e-9)


def test_whole_waves_of_one_table_take_what_the_analytic_model_says():
    case = group((100_000, 64, 4.0, 0.5), batch_size=2 * SLOTS)
    assert times(case) == pytest.approx(analytic(case), rel=1e-9)


def test_a_wave_begun_takes_as_long_as_a_whole_one():
    launch = FORWARD_KERNELS * LAUNCH_S
    whole, begun = (times(group((50, 64, 1.0, 0.0), batch_size=SLOTS * 3 + more))[0] - launch for more in (0, 1))
    assert begun / whole == pytest.approx(4 / 3, rel=0.01)


def test_tables_of_a_group_crowd_each_other_out_of_the_cache():
    """300,000 hot rows of 256 bytes fill the cache: two such tables get half of it each."""
    one = (400_000, 64, 60.0, 0.4)
    alone, both = (sum(times(group(*tables, batch_size=4 * SLOTS))) for tables in ((one,), (one, one)))
    launches = (FORWARD_KERNELS + BACKWARD_KERNELS) * LAUNCH_S
    assert both - launches > 2.02 * (alone - launches)


@FEW
@given(st.integers(0, 500))
def test_counts_are_as_expected_and_fit_each_other(number: int):
    case = SMALL.case(number)
    found = H100.measure(case)
    bins = np.array(found.reuse_bins).reshape(len(case.tables), 17)
    assert found.lookups == case.lookups
    assert bins.sum(axis=1).tolist() == list(found.unique_rows)
    most = [min(table.num_embeddings, count) for table, count in zip(case.tables, case.lookups, strict=True)]
    assert (bins.sum(axis=1) <= np.array(most) + 9).all()  # each of 17 bins is rounded


def test_noise_is_seeded_and_differs_between_visits():
    noisy, again = load_hardware("simulated:h100?noise=0.05"), load_hardware("simulated:h100?noise=0.05")
    case = group((1000, 64, 10.0, 0.5), batch_size=4096)
    assert noisy.measure(case) == again.measure(case)
    assert noisy.measure(case, 1) == again.measure(case, 1) != noisy.measure(case)
    small = group((1000, 64, 10.0, 0.5), batch_size=64)  # noise is a factor of whatever is measured
    cases = [replace(small, number=number) for number in range(200)]
    factors = [math.log(times(each, noisy)[0] / times(each)[0]) for each in cases]
    assert np.mean(factors) == pytest.approx(0, abs=0.01)
    assert np.std(factors) == pytest.approx(0.05, rel=0.15)


@pytest.mark.parametrize("device", MULTIPROCESSORS)
def test_every_gpu_of_the_catalogue_answers(device: str):
    forward, backward = times(group((10_000, 64, 10.0, 0.5), batch_size=8192), load_hardware(f"simulated:{device}"))
    assert 0 < forward < backward < 1


def test_a_faster_gpu_is_faster():
    case = group((10_000, 64, 10.0, 0.5), batch_size=65_536)
    seconds = [sum(times(case, load_hardware(f"simulated:{name}"))) for name in ("v100-32", "a100-80", "h100", "h200")]
    assert seconds == sorted(seconds, reverse=True)
