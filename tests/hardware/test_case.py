"""Random numbers: the same everywhere, and what their names say."""

from dataclasses import replace

import numpy as np
import pytest
from support.measured import group

from recsmith.errors import UsageError
from recsmith.hardware import SCALES, Case
from recsmith.hardware.case import CASES, IDS, KeyedRandom


def test_a_case_counts_its_ids_weights_and_outputs():
    case = group((100, 8, 2.5, 0.0), (10, 4, 0.0, 1.0), batch_size=3)
    assert (case.lookups, case.elements, case.outputs, case.data_type) == ((8, 0), 840, 36, "fp32")


def test_states_lie_beside_weights_or_behind_them():
    case = group((100, 8, 1.0, 0.0), (10, 4, 1.0, 0.0), optimizer="adam")
    assert (case.elements, case.states) == (840, 1680)
    assert replace(case, workload=replace(case.workload, optimizer="rowwise_adagrad")).states == 110
    assert replace(case, workload=replace(case.workload, optimizer="sgd")).states == 0
    scale = SCALES["check"]
    assert (scale.room(case), replace(scale, apart=False).room(case)) == (1680, 896 + 1680)
    assert replace(scale, apart=False).size == scale.size - 4 * scale.elements
    with pytest.raises(UsageError, match="2,576 elements of weights and states"):
        replace(scale, apart=False, elements=2000).check((case,))


def test_tables_of_two_types_are_two_groups():
    case = group((100, 8, 1.0, 0.0), (10, 4, 0.0, 1.0))
    mixed = (case.tables[0], replace(case.tables[1], data_type="fp16"))
    with pytest.raises(UsageError, match="differ in data_type"):
        Case(seed=0, number=0, workload=replace(case.workload, tables=mixed))


@pytest.mark.parametrize(
    "case",
    [
        group((10, 4, 500.0, 0.0), batch_size=100),
        group((10**6, 4, 1.0, 0.0)),
        group((10, 1024, 0.0, 0.0), batch_size=999),
    ],
)
def test_a_case_beyond_its_scale_is_refused(case: Case):
    case.check(SCALES["cpu"])
    with pytest.raises(UsageError, match="scale check allows"):
        case.check(SCALES["check"])


def test_the_numbers_of_a_key_are_frozen():
    assert KeyedRandom(0, 0, CASES).uniform(3).tolist() == [
        0.011546754286331562,
        0.24154919656271812,
        0.11142585551493822,
    ]


@pytest.mark.parametrize("other", [(1, 0, CASES), (0, 1, CASES), (0, 0, IDS)])
def test_another_key_gives_other_numbers(other: tuple[int, int, int]):
    assert not np.isin(KeyedRandom(0, 0, CASES).uniform(100), KeyedRandom(*other).uniform(100)).any()


def test_a_shorter_draw_is_the_beginning_of_a_longer_one():
    assert (KeyedRandom(3, 4, CASES).uniform(1000)[:10] == KeyedRandom(3, 4, CASES).uniform(10)).all()


def test_uniform_numbers_are_even_from_0_to_1():
    drawn = np.sort(KeyedRandom(0, 1, CASES).uniform(10_000))
    assert drawn[0] >= 0
    assert drawn[-1] < 1
    assert np.abs(drawn - np.linspace(0, 1, 10_000)).max() < 0.02


def test_between_is_even_in_the_logarithm():
    drawn = KeyedRandom(0, 2, CASES).between(0.01, 100, 10_000)
    assert drawn.min() >= 0.01
    assert drawn.max() <= 100
    assert np.mean(drawn < 1) == pytest.approx(0.5, abs=0.02)


def test_normal_numbers_have_mean_0_and_deviation_1():
    drawn = KeyedRandom(0, 3, CASES).normal(10_000)
    assert drawn.mean() == pytest.approx(0, abs=0.03)
    assert drawn.std() == pytest.approx(1, abs=0.03)
