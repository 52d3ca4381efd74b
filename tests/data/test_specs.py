"""Specs: their files, what a path opens, and the workload that the planner gets."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recsmith.data import (
    ColumnFeature,
    CriteoSpec,
    DataFeature,
    DataSchema,
    DriftSpec,
    GeneratedFeature,
    GeneratorSpec,
    MovieLensSpec,
    ParquetSpec,
    SessionSpec,
    TeacherSpec,
    generator_like,
    load_spec,
    open_dataset,
    schema_workload,
    spec_from_raw,
    spec_to_raw,
)
from recsmith.errors import CorruptFile, UsageError
from recsmith.workloads import Feature, Table, Workload, load_workload

GENERATED = GeneratorSpec(
    num_samples=1000,
    features=(GeneratedFeature(name="a", num_embeddings=10, zipf=1.2, duplication=0.5),),
    dense=2,
    teacher=TeacherSpec(clusters=3),
    sessions=SessionSpec(size=4, duplication=0.2),
    drift=DriftSpec(kind="sudden", samples=100),
)
SPECS = [
    GENERATED,
    CriteoSpec(paths=("day_0.gz",), max_rows=100, index="lines.npz"),
    MovieLensSpec(path="ml", split="test", max_user_id=671),
    ParquetSpec(paths=("a",), features=(ColumnFeature(name="u", num_embeddings=5, ids="modulo"),), labels=("y",)),
]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: type(spec).__name__)
def test_a_spec_survives_its_file(spec: Any, tmp_path: Path):
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(spec_to_raw(spec)))
    assert load_spec(path) == spec
    without_schema = {key: value for key, value in spec_to_raw(spec).items() if key != "schema"}
    assert spec_from_raw(without_schema, "run.yaml") == spec


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"schema": "recsmith/dataset/1"}, "`format` is missing; known: criteo, generator, movielens, parquet"),
        ({"format": "critoe", "paths": ["a"]}, "no format of data is called 'critoe'; did you mean 'criteo'"),
        ({"format": "criteo", "path": ["a"]}, "path is not a known field; did you mean 'paths'"),
        ({"format": "generator", "features": []}, "num_samples is missing"),
        (
            {"format": "generator", "num_samples": 2**36, "features": [{"name": "a", "num_embeddings": 9}]},
            r"num_samples is 68719476736; it must be 1 to 3.43597e\+10",
        ),
        (
            {
                "format": "parquet",
                "paths": ["a"],
                "features": [{"name": "a", "num_embeddings": 2**63}],
                "labels": ["y"],
            },
            r"num_embeddings of feature 'a' is 9223372036854775808; it must be at least 1 and below 2\^53",
        ),
        ({"schema": "recsmith/plan/1"}, "has a schema 'recsmith/plan/1'; expected `recsmith/dataset/1`"),
    ],
)
def test_wrong_specs_are_refused(raw: dict[str, Any], message: str):
    with pytest.raises(CorruptFile, match=message):
        spec_from_raw(raw, "spec.yaml")


def test_a_path_says_what_it_is(tmp_path: Path):
    (tmp_path / "ml").mkdir()
    (tmp_path / "ml" / "ratings.csv").touch()
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "part-00000.parquet").touch()
    (tmp_path / "days").mkdir()
    assert load_spec(tmp_path / "ml") == MovieLensSpec(path=str(tmp_path / "ml"))
    assert load_spec(tmp_path / "parts") == ParquetSpec(paths=(str(tmp_path / "parts"),))
    assert load_spec(tmp_path / "days") == CriteoSpec(paths=(str(tmp_path / "days"),))
    for name, noun in (("a.parquet", ParquetSpec), ("a.feather", ParquetSpec), ("train.txt", CriteoSpec),
                       ("day_3", CriteoSpec), ("day_3.gz", CriteoSpec)):  # fmt: skip
        assert type(load_spec(name)) is noun
    (tmp_path / "a.csv").touch()
    with pytest.raises(UsageError, match=r"a.csv' is no data of a known format"):
        load_spec(tmp_path / "a.csv")
    with pytest.raises(UsageError, match=r"cannot read 'a.csv': there is no such file"):
        load_spec("a.csv")
    with pytest.raises(UsageError, match=r"is an address of 'https', and data and plans may be s3://, gs://, hdfs://"):
        load_spec("https://host/clicks")
    with pytest.raises(UsageError, match=r"'ftp:/\*\*\*@host/a.parquet' is an address of 'ftp'"):
        open_dataset(ParquetSpec(paths=("ftp://me:secret@host/a.parquet",)))


def test_a_mapping_opens_as_its_file_does():
    raw = spec_to_raw(GENERATED)
    assert open_dataset(raw).source.digest == open_dataset(GENERATED).source.digest
    wrong: Any = 5
    with pytest.raises(UsageError, match="int is no data; give a path, a spec, or a mapping with `format`"):
        open_dataset(wrong)


def test_a_dataset_makes_a_workload_for_the_planner():
    made = schema_workload(open_dataset(GENERATED).schema, batch_size=128, embedding_dim=32)
    table = made.tables[0]
    assert (made.batch_size, table.num_embeddings, table.embedding_dim) == (128, 10, 32)
    assert table.access is not None
    assert table.access.zipf == 1.2
    unknown = DataSchema(features=(DataFeature(name="x"),), dense=(), labels=("y",))
    with pytest.raises(UsageError, match="the rows of feature 'x' are not known"):
        schema_workload(unknown, batch_size=1)


def test_generated_data_reads_the_tables_of_a_workload():
    workload = load_workload("criteo-kaggle")
    spec = generator_like(workload, num_samples=5000, seed=4)
    again = schema_workload(spec.schema, batch_size=workload.batch_size, embedding_dim=64)
    assert again.tables == workload.tables
    assert len(spec.features) == 26
    fitted = replace(spec.features[2], zipf=None)
    assert 0.3 <= fitted.exponent <= 1.0, "Meta's published counts of accesses"


def test_generated_data_has_the_weights_of_a_workload_and_names_shared_tables():
    def table(name: str, *features: Feature) -> Table:
        return Table(name=name, num_embeddings=50, embedding_dim=4, features=features)

    alone = table("w", Feature(name="w", pooling_factor=3, weighted=True))
    both = table("shared", Feature(name="a", pooling_factor=1), Feature(name="b", pooling_factor=2))
    plain = Workload(batch_size=8, optimizer="sgd", tables=(alone,), name="")
    spec = generator_like(plain, num_samples=500)
    assert schema_workload(spec.schema, batch_size=8, embedding_dim=4, optimizer="sgd").tables[0].features[0].weighted
    bags = next(open_dataset(spec).batches(rank=0, world_size=1, batch_size=500, seed=0)).ids["w"]
    assert bags.weights is not None
    assert len(bags.weights) == len(bags.values) == 1500
    assert bags.weights.min() >= 0
    assert 0.45 < bags.weights.mean() < 0.55
    with pytest.warns(UserWarning, match=r"read by several \('shared': a, b\); give a model of your own the shared"):
        generator_like(replace(plain, tables=(alone, both)), num_samples=500)


def test_the_digest_of_data_without_weights_is_as_it_was():
    spec = GeneratorSpec(num_samples=9, features=(GeneratedFeature(name="a", num_embeddings=7),))
    weighted = replace(spec, features=(GeneratedFeature(name="a", num_embeddings=7, weighted=True),))
    assert open_dataset(spec).source.digest == "3c9aea15f6862cb7"
    assert open_dataset(weighted).source.digest != "3c9aea15f6862cb7"
