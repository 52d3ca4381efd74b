"""Kernels of sequence tables: priced by what was measured of them, table by table and column by column."""

import numpy as np
import pytest
from support.build import table, workload

from recsmith.clusters import load_cluster
from recsmith.costs import cost_model
from recsmith.costs.neural.evaluator import OTHER_BACKWARD, OTHER_FORWARD, NeuralEvaluator
from recsmith.costs.neural.sequences import sequence_figures, sequences_of
from recsmith.problems import Space, build_problem
from recsmith.workloads import AccessProfile
from recsmith.workloads.reuse import Reuse

EVEN = AccessProfile(zipf=0.0)
SPACE = Space(types=("table_wise", "column_wise"), kernels=("fused",))


@pytest.mark.parametrize("model", ["neural:cpu", "best"])
@pytest.mark.parametrize(
    ("optimizer", "data_type"), [("sgd", "fp32"), ("adagrad", "fp16"), ("rowwise_adagrad", "fp32")]
)
def test_a_sequence_has_the_seconds_of_its_figures(model: str, optimizer: str, data_type: str) -> None:
    """Both directions, of a whole table and of a narrow piece; the ids are those of all ranks."""
    one = table("s", 5_000, 32, pooling_factor=10.0, pooling="none", data_type=data_type, access=EVEN)
    problem = build_problem(workload(one, batch_size=512, optimizer=optimizer), load_cluster("cpu:2"), SPACE)
    found = cost_model(model).compile(problem)
    assert isinstance(found, NeuralEvaluator)
    fitted = found.card.sequences[sequences_of(optimizer, data_type)]
    ids = np.array([512 * 2 * 10.0])
    unique = Reuse.of((one,)).unique_rows(np.zeros(1, dtype=np.int64), ids)
    for width in (32, 8):
        forward, backward = sequence_figures(
            ids, unique, np.array([float(width)]), np.array([float(one.element_bytes)])
        )
        seconds = [float(forward[0] @ np.array(fitted.forward)), float(backward[0] @ np.array(fitted.backward))]
        terms = found.terms(np.zeros(1, dtype=np.int64), np.array([width]))[0]
        assert terms[[OTHER_FORWARD, OTHER_BACKWARD]] == pytest.approx(seconds, rel=1e-9)
        assert min(seconds) > 0


def test_sequences_take_several_times_as_long_as_formulas_say() -> None:
    """Which counted one row and no hash map for each id."""
    one = table("s", 100_000, 64, pooling_factor=20.0, pooling="none", access=EVEN)
    problem = build_problem(workload(one, batch_size=1024), load_cluster("cpu:2"), SPACE)
    mode, width = np.zeros(1, dtype=np.int64), np.array([64])
    found, formula = cost_model("best").compile(problem), cost_model("analytic").compile(problem)
    ratio = found.head(found.terms(mode, width))[0, :2] / formula.head(formula.terms(mode, width))[0, :2]
    assert (ratio > 2).all(), ratio
    assert (ratio < 30).all(), ratio
