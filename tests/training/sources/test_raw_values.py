"""Jobs on texts and raw ids: trained, scored and begun anew by one vocabulary, refused under another one."""

import importlib
import json
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recsmith.data import make_vocabularies, spec_from_raw
from recsmith.errors import CorruptFile, UsageError
from recsmith.training import Run, RunData, RunModel, evaluate, train
from recsmith.training.launch.dry_run import described

pytestmark = [
    pytest.mark.skipif(find_spec("torchrec") is None, reason="needs TorchRec"),
    pytest.mark.usefixtures("torchrec"),
]
pyarrow: Any = importlib.import_module("pyarrow")
parquet: Any = importlib.import_module("pyarrow.parquet")


def write(folder: Path, name: str, cities: list[str], users: list[int], clicked: list[float]) -> dict[str, Any]:
    """A day's file, and the spec of it under the vocabularies of a folder of that name."""
    parquet.write_table(pyarrow.table({"city": cities, "user": users, "clicked": clicked}), folder / f"{name}.parquet")
    features = [
        {"name": each, "vocabulary": {"path": f"{folder}/{name}/{each}.arrow", "unknown": 2}}
        for each in ("city", "user")
    ]
    return {
        "format": "parquet",
        "paths": [str(folder / f"{name}.parquet")],
        "features": features,
        "labels": ["clicked"],
    }


@pytest.fixture(scope="module")
def days(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], dict[str, Any]]:
    """Monday, on which a model is trained, and Tuesday, with more cities, whose vocabularies extend Monday's."""
    folder, draw, specs = tmp_path_factory.mktemp("days"), np.random.default_rng(0), list[dict[str, Any]]()
    for name, names in (("monday", 7), ("tuesday", 9)):
        at = draw.integers(0, names, 400)
        users = (draw.integers(0, 50, 400) * 10**13 - 5).tolist()
        specs.append(write(folder, name, [f"city {each}" for each in at], users, (at % 2).astype(float).tolist()))
    make_vocabularies([spec_from_raw(specs[0], "monday")], folder / "monday")
    make_vocabularies([spec_from_raw(specs[1], "tuesday")], folder / "tuesday", extend=folder / "monday")
    train(a_run(folder / "out", specs[0]))
    return folder, specs[0], specs[1]


def a_run(output: Path, train_on: dict[str, Any], **words: Any) -> Run:
    data = RunData(train=train_on, test=train_on, batch_size=16, epochs=4)
    return Run(data=data, model=RunModel(embedding_dim=8), output=str(output), ranks=2, **words)


def test_texts_are_learned_and_scored(days: tuple[Path, dict[str, Any], dict[str, Any]]):
    folder, _, tuesday = days
    scores = evaluate(folder / "out")
    assert scores.auc is not None
    assert scores.auc > 0.95, "whether a city is even says the label"
    raw = folder / "tuesday.parquet"
    (folder / "monday").rename(folder / "away")  # the model has its own vocabularies
    seven = evaluate(folder / "out", data=str(raw)).auc
    (folder / "away").rename(folder / "monday")
    assert seven is not None
    assert seven > 0.7, "read as Monday was, whose seven cities are most of Tuesday's nine"
    parquet.write_table(parquet.read_table(raw).slice(0, 0), folder / "empty.parquet")
    with pytest.raises(UsageError, match="--data has no samples; give data to score the model on"):
        evaluate(folder / "out", data=str(folder / "empty.parquet"))
    other = r"--data has feature 'city' with vocabulary \w+ \(9 values, 2 rows for all others\), and the model"
    with pytest.raises(UsageError, match=other):
        evaluate(folder / "out", data=tuesday)


def test_another_vocabulary_is_not_served(days: tuple[Path, dict[str, Any], dict[str, Any]], tmp_path: Path):
    from recsmith.training import load_model

    rows, folder = [{"city": "city 3", "user": 10**13 - 5}], days[0]
    expected = load_model(folder / "out").predict_rows(rows)
    model = shutil.copytree(folder / "out/model", tmp_path / "model")
    assert load_model(model).predict_rows(rows).tolist() == expected.tolist()
    city = model / "vocabularies/0-city.arrow"
    city.unlink()
    wrong = r"0-city.arrow' is gone, or is not the vocabulary that feature 'city' was trained with"
    with pytest.raises(CorruptFile, match=wrong):
        load_model(model).predict_rows(rows)
    shutil.copy(folder / "tuesday/city.arrow", city)
    with pytest.raises(CorruptFile, match=wrong):
        load_model(model).predict_rows(rows)
    with pytest.raises(UsageError, match=r"monday' holds no trained model; give the output folder of a run"):
        load_model(folder / "monday")


def test_a_day_begins_with_the_rows_of_the_day_before(days: tuple[Path, dict[str, Any], dict[str, Any]]):
    folder, _, tuesday = days
    told = described(a_run(folder / "next", tuesday, start_from=str(folder / "out"))).systems
    assert "table city grows from 9 to 11 rows; the new ones are drawn" in str(told)


def test_another_vocabulary_is_refused(days: tuple[Path, dict[str, Any], dict[str, Any]], tmp_path: Path):
    folder, monday, _ = days
    make_vocabularies([spec_from_raw(monday, "monday")], tmp_path / "other", rows=3)
    other: dict[str, Any] = json.loads(json.dumps(monday).replace(f"{folder}/monday/", f"{tmp_path}/other/"))
    with pytest.raises(
        UsageError,
        match=r"feature 'city' with vocabulary \w+ \(3 values, .* on vocabulary \w+ \(7 values, .*; name that one, or",
    ):
        train(a_run(tmp_path / "out", other, start_from=str(folder / "out")))
    with pytest.raises(Exception, match="the position is of other data"):
        train(a_run(folder / "out", other))
    write(tmp_path, "foreign", ["elsewhere"] * 300, [5] * 300, [0.0] * 300)
    foreign = {**monday, "paths": [str(tmp_path / "foreign.parquet")]}
    with pytest.raises(UsageError, match="none of the first 300 values of feature 'city' has a row in its voc"):
        described(a_run(tmp_path / "out", foreign))
