"""The run file of the examples trains as its comment says."""

from pathlib import Path

import pytest

from recsmith.training import load_run, train

MOVIELENS = Path(__file__).parents[2] / "examples" / "movielens.yaml"


@pytest.mark.usefixtures("torchrec")
def test_movielens_learns_something_in_a_few_steps(data: Path, tmp_path: Path):
    path = data / "movielens" / "ml-latest-small"
    settings = (f"data.train.path={path}", f"data.test.path={path}", f"output={tmp_path / 'out'}", "steps=80")
    result = train(load_run(MOVIELENS, settings))
    assert (result["step"], result["complete"]) == (80, True)
    assert result["test"]["auc"] > 0.6
