"""Kernels are measured in blocks that take turns, and a second run goes on where the first one ended."""

from pathlib import Path

import pytest

from recsmith.errors import UsageError
from recsmith.prediction.graph import Kernel
from recsmith.prediction.kernels.cases import draw_case
from recsmith.prediction.kernels.inputs import LEARNED
from recsmith.prediction.kernels.run import BLOCK, measure_kernels, steady
from recsmith.prediction.kernels.times import load_times


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of FBGEMM's import
def test_a_file_is_filled_once_and_of_one_seed(tmp_path: Path):
    target = tmp_path / "kernels.json"
    heard: list[int] = []
    made = measure_kernels(target, budget_s=None, seed=0, cases=1, on_progress=heard.append)
    assert made.cases == BLOCK
    assert made == load_times(target)
    assert heard == [len(made.kernels)]
    assert {each.kind for each in made.kernels} <= set(LEARNED)
    assert len(made.kernels) > BLOCK / 4  # the others were disturbed
    assert measure_kernels(target, budget_s=None, seed=0, cases=BLOCK) == made
    with pytest.raises(UsageError, match=r"seed 0, .* and seed 1"):
        measure_kernels(target, budget_s=None, seed=1, cases=BLOCK)


def test_cases_whose_visits_disagree_are_left_out():
    kernel = Kernel("copy", (4.0, 4.0, 1.0, 0.0, 0.0))
    calm, disturbed = (
        [(kernel, 3e-6), (kernel, 2e-6), (kernel, 2.1e-6)],
        [(kernel, 2e-6), (kernel, 3e-6), (kernel, 4e-6)],
    )
    assert [each.seconds for each in steady([calm, disturbed])] == [2.1e-6]


def test_half_of_the_extents_are_whole_vectors():
    columns = [draw_case(0, number).figures[1] for number in range(600) if draw_case(0, number).kind == "softmax"]
    share = sum(each % 16 == 0 for each in columns) / len(columns)
    assert 0.3 < share < 0.8
