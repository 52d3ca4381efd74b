"""`recsmith data sequences`: a MovieLens folder or a spec becomes Parquet, and what is left out is told."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")
RATINGS = "userId,movieId,rating,timestamp\n1,5,4.0,10\n1,6,2.5,20\n1,7,5.0,15\n2,5,3.0,9\n"


def test_a_movielens_folder_becomes_histories(tmp_path: Path, run: Callable[..., Any]):
    from recsmith.data import load_spec, open_dataset

    (tmp_path / "ml").mkdir()
    (tmp_path / "ml" / "ratings.csv").write_text(RATINGS)
    said = run("data", "sequences", str(tmp_path / "ml"), "-o", str(tmp_path / "out"), "--longest", "1")
    assert "1 event came after a later one of their user" in said.err
    assert "2 samples in 1 file" in said.err
    source = open_dataset(load_spec(tmp_path / "out")).source
    samples = source.read(0).samples
    assert samples.ids["history"].values.tolist() == [0, 2]
    assert samples.ids["target"].values.tolist() == [2, 1]
    assert samples.ids["actions"].values.tolist() == [8, 10]
    assert samples.labels[:, 0].tolist() == [1.0, 0.0]


def test_other_data_is_refused(tmp_path: Path, run: Callable[..., Any]):
    (tmp_path / "g.yaml").write_text("format: generator\nnum_samples: 9\nfeatures: [{name: a, num_embeddings: 4}]\n")
    said = run("data", "sequences", str(tmp_path / "g.yaml"), "-o", str(tmp_path / "out"))
    assert said.code == 2
    assert "is no spec with `format: sequences`, nor a MovieLens folder" in said.err
