"""Measured kernels, and how cold their data is."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recsmith.errors import UsageError
from recsmith.prediction.graph import KernelShape
from recsmith.prediction.kernels import LEARNED, within_step
from recsmith.prediction.kernels.run import BLOCK, measure_kernels, steady
from recsmith.prediction.kernels.times import draw_case, load_times
from recsmith.prediction.machine import load_machine


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of FBGEMM's import
def test_a_file_is_filled_once_and_of_one_seed(tmp_path: Path):
    target = tmp_path / "kernels.json"
    heard: list[int] = []
    made = measure_kernels(target, budget_s=None, seed=0, cases=1, on_progress=heard.append)
    assert made.cases == BLOCK
    assert made == load_times(target)
    assert heard == [len(made.kernels)]
    assert {each.kind for each in made.kernels} <= set(LEARNED)
    assert len(made.kernels) > BLOCK / 12  # the others were disturbed: beside other tests most may be
    assert measure_kernels(target, budget_s=None, seed=0, cases=BLOCK) == made
    with pytest.raises(UsageError, match=r"seed 0, .* and seed 1"):
        measure_kernels(target, budget_s=None, seed=1, cases=BLOCK)


def test_cases_whose_visits_disagree_are_left_out():
    kernel = KernelShape("copy", (4.0, 4.0, 1.0, 0.0, 0.0))
    calm, disturbed = (
        [(kernel, 3e-6), (kernel, 2e-6), (kernel, 2.1e-6)],
        [(kernel, 2e-6), (kernel, 3e-6), (kernel, 4e-6)],
    )
    assert [each.seconds for each in steady([calm, disturbed])] == [2.1e-6]


def test_half_of_the_extents_are_whole_vectors():
    columns = [draw_case(0, number).figures[1] for number in range(600) if draw_case(0, number).kind == "softmax"]
    share = sum(each % 16 == 0 for each in columns) / len(columns)
    assert 0.3 < share < 0.8


MIB = 2**20
LOOKUP = KernelShape("embedding_forward", (4.0, 4e4, 4e3, 128.0, 1e6, 0.0))


def added(size: float, between: float = 0.0) -> KernelShape:
    """Two tensors of so many bytes each, added to a third one."""
    return KernelShape("elementwise", (2 * size, size, 2.0, 0.0, 2.0), between)


@given(st.lists(st.floats(1, 1e8), min_size=1, max_size=20))
def test_what_passes_lies_between_a_kernels_data_and_all_data_of_the_step(sizes: list[float]):
    kernels = [*map(added, sizes), LOOKUP]
    known = within_step(kernels)
    whole = known[-1].between  # a lookup's rows are used once in a step
    moved = 3 * sum(sizes) + within_step([LOOKUP])[0].between * 2
    assert whole == pytest.approx(moved / 2)
    for size, kernel in zip(sizes, known, strict=False):
        assert min(3 * size, whole) * (1 - 1e-9) <= kernel.between <= whole * (1 + 1e-9)
    assert [kernel._replace(between=0.0) for kernel in known] == kernels
    assert within_step(known) == known


def test_the_same_kernel_takes_longer_where_more_passes():
    kernels = load_machine("cpu").kernels
    warm, cold = kernels.seconds([added(MIB, MIB), added(MIB, 64 * MIB)])
    assert cold > 1.2 * warm
