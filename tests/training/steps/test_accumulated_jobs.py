"""Jobs whose layers learn from several batches at once: the layers of larger batches, the same bits when resumed."""

import json
from pathlib import Path

import numpy as np
import pytest
from training.test_jobs import BATCH, a_run, data, from_step

from recsmith.errors import UsageError
from recsmith.training import DenseOptimizer, Run, RunData, RunOptimizers, SparseOptimizer, train

pytestmark = pytest.mark.usefixtures("torchrec")
TWO = {"name": "accumulated", "batches": 2}
STILL = RunOptimizers(
    sparse=SparseOptimizer(name="sgd", learning_rate=1e-30), dense=DenseOptimizer(name="sgd", learning_rate=0.5)
)


def test_layers_learn_as_from_one_batch_of_all_where_tables_rest(tmp_path: Path):
    from safetensors.numpy import load_file

    halves = RunData(train=data(0, 20_000), test=data(20_000, 101), global_batch_size=BATCH // 2)
    two = train(a_run(tmp_path / "two", ranks=2, optimizers=STILL, data=halves, pipeline=TWO))
    one = train(a_run(tmp_path / "one", ranks=2, optimizers=STILL))
    assert two["test"]["logloss"] == pytest.approx(one["test"]["logloss"], rel=1e-6)
    weights = [load_file(tmp_path / name / "model/weights.safetensors") for name in ("one", "two")]
    for name, value in weights[0].items():
        assert np.allclose(value, weights[1][name], rtol=1e-5, atol=1e-6), name
    start = json.loads((tmp_path / "two/log.jsonl").read_text().splitlines()[-2])
    assert start["step"] == 12


def test_a_job_goes_on_with_the_same_bits_and_ends_when_its_batches_do(tmp_path: Path):
    short = RunData(train=data(0, 7 * BATCH), test=data(20_000, 101), global_batch_size=BATCH)
    run: Run = a_run(tmp_path / "out", ranks=2, steps=None, data=short, pipeline={**TWO, "batches": 3})
    result = train(run, settings=("checkpoint.every=2",))
    assert result["step"] == 3  # of three, three and one batch
    again = from_step(run, 2, tmp_path / "again")
    assert train(run, settings=(f"output={again}", "checkpoint.every=2"))["test"] == result["test"]
    weights = "model/weights.safetensors"
    assert (again / weights).read_bytes() == (tmp_path / "out" / weights).read_bytes()


def test_what_it_cannot_do_is_refused_before_training(tmp_path: Path):
    from recsmith.training import BatchChange
    from recsmith.training.launch.launching import dry_run

    changes = RunData(
        train=data(0, 20_000), global_batch_size=BATCH, batch_changes=(BatchChange(after_steps=2, size=96),)
    )
    with pytest.raises(UsageError, match="batch_changes needs steps of one batch, and pipeline accumulated takes"):
        dry_run(a_run(tmp_path / "out", data=changes, pipeline=TWO))
    with pytest.raises(UsageError, match=r"pipeline.batches is 0"):
        dry_run(a_run(tmp_path / "out", pipeline={**TWO, "batches": 0}))
