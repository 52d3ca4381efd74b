"""How the weights of tables start: evenly, within the reach that a run gives to those that fit a pattern."""

from pathlib import Path

import pytest
from training.test_jobs import DIM, SIZES, a_run

from recsmith.errors import UsageError
from recsmith.training import RunModel, RunOptimizers, SparseOptimizer, TableStart, train

pytestmark = pytest.mark.usefixtures("torchrec")


def test_tables_that_fit_a_pattern_start_within_its_reach_on_any_ranks(tmp_path: Path):
    from safetensors.numpy import load_file

    starts = (TableStart(tables="[ab]", reach=0.001), TableStart(tables="b", reach=9.0))
    model = RunModel(embedding_dim=DIM, bottom=(8,), top=(8,), initial=starts)
    still = RunOptimizers(sparse=SparseOptimizer(name="sgd", learning_rate=1e-30))
    for ranks in (1, 2):
        train(a_run(tmp_path / str(ranks), ranks=ranks, steps=1, model=model, optimizers=still, checkpoint=None))
    one, two = (load_file(tmp_path / name / "model/weights.safetensors") for name in ("1", "2"))
    found = {name.split(".")[-2]: abs(each).max() for name, each in one.items() if "embedding_bags" in name}
    for table, rows in SIZES.items():
        reach = 0.001 if table in "ab" else rows**-0.5
        assert 0.9 * reach < found[table] <= reach
    assert all((two[name] == each).all() for name, each in one.items() if "embedding_bags" in name)


def test_a_reach_without_sense_is_refused():
    with pytest.raises(UsageError, match="reach of 'a' is 0; it must be above 0"):
        TableStart(tables="a", reach=0)
