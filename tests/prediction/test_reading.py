"""Reading a sample takes what its format, its bags and its transforms take."""

from dataclasses import replace

import pytest

from recsmith.data.batch import DataFeature, DataSchema
from recsmith.data.transforms.declared import First, HashIds, Log, NGram, Transform
from recsmith.data.transforms.graph import TransformGraph
from recsmith.prediction.reading import FORMATS, TRANSFORMED, sample_s

FEATURES = [DataFeature(name=name, num_embeddings=1000, pooling_factor=20.0) for name in ("a", "b")]


def test_columns_are_read_faster_than_samples_are_drawn_and_unknown_formats_are_told_as_drawn() -> None:
    assert sample_s("parquet", FEATURES, []) < sample_s("generator", FEATURES, [])
    assert sample_s("my_logs:Logs", FEATURES, []) == sample_s("generator", FEATURES, [])


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_more_features_and_ids_never_take_less(name: str) -> None:
    longer = [replace(each, pooling_factor=40.0) for each in FEATURES]
    assert sample_s(name, FEATURES[:1], []) < sample_s(name, FEATURES, []) <= sample_s(name, longer, [])


def test_a_transform_takes_the_ids_that_those_before_it_left() -> None:
    pairs = NGram(feature="a", length=2, num_embeddings=1000, into="c")
    cut = First(feature="a", count=5)
    plain = sample_s("parquet", FEATURES, [])
    of_feature, of_id = TRANSFORMED["n_gram"]
    assert sample_s("parquet", FEATURES, [pairs]) - plain == pytest.approx(of_feature + 20 * of_id)
    assert sample_s("parquet", FEATURES, [cut, pairs]) < sample_s("parquet", FEATURES, [pairs, cut])
    hashed = HashIds(feature="c", num_embeddings=10)  # of the pairs, of which there are 19
    more = sample_s("parquet", FEATURES, [pairs, hashed]) - sample_s("parquet", FEATURES, [pairs])
    assert more == pytest.approx(TRANSFORMED["hash"][0] + 19 * TRANSFORMED["hash"][1])


def test_every_transform_has_a_price() -> None:
    schema = DataSchema(features=tuple(FEATURES), dense=("x",), labels=("y",))
    some: list[Transform] = [Log(dense="x"), NGram(feature="a", length=2, num_embeddings=9, into="c")]
    assert TransformGraph(schema, some).schema.feature_names == ("a", "b", "c")
    assert sample_s("text", FEATURES, some) > sample_s("text", FEATURES, some[:1]) > sample_s("text", FEATURES, [])
