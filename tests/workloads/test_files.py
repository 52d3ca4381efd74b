"""Workloads from files: YAML, JSON and CSV say the same; what is written reads back; CSV errors name their line."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.build import table, workload

from recsmith.errors import CorruptFile, UsageError
from recsmith.files import dump_json, parse
from recsmith.workloads import (
    AccessProfile,
    Feature,
    Table,
    Workload,
    builtins,
    load_workload,
    save_workload,
    workload_from_raw,
    workload_to_raw,
)
from recsmith.workloads.zipf import zipf_unique_rows

YAML = """\
schema: recsmith/workload/1
batch_size: 64
optimizer: adam
tables:
  - {name: no, num_embeddings: 1e6, embedding_dim: 128, pooling_factor: 12.5}
  - name: "a b"
    num_embeddings: 010
    embedding_dim: 4
    pooling_factor: 0
    num_poolings: 0.5
    pooling: none
    data_type: bf16
    collection: sparse.ec
"""
JSON = """\
{"schema": "recsmith/workload/1", "batch_size": 64, "optimizer": "adam", "tables": [
  {"name": "no", "num_embeddings": 1e6, "embedding_dim": 128, "pooling_factor": 12.5},
  {"name": "a b", "num_embeddings": 10, "embedding_dim": 4, "features": [
    {"name": "a b", "pooling_factor": 0, "num_poolings": 0.5}],
   "pooling": "none", "data_type": "bf16", "collection": "sparse.ec"}]}
"""
CSV = """\
name,num_embeddings,embedding_dim,pooling_factor,num_poolings,pooling,data_type,collection
no,1e6,128,12.5,,,,
"a b",010,4,0,0.5,none,bf16,sparse.ec
"""

names = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1, max_size=6)
counts = st.integers(1, 2**53 - 1)
amounts = st.floats(0, 1e12)
bins = st.lists(st.integers(0, 9), min_size=17, max_size=17).filter(any)
profiles = st.builds(AccessProfile, zipf=st.floats(0, 10)) | st.builds(
    lambda shares, extra, unique: AccessProfile(
        reuse_bins=tuple(share / sum(shares) for share in shares), lookups=unique + extra, unique_rows=unique
    ),
    bins,
    st.integers(0, 100),
    counts,
)
CRITEO = ("criteo-1tb", "criteo-kaggle", "dlrm-v2")
SEQUENCES = {  # name: tables, columns, weights in GiB, ids per sample, samples a device
    "dlrm-v4": (11, 512, 558.95, 8000, 1024),
    "dlrm-v4-streaming": (3, 512, 963.21, 5391, 1024),
    "kuairand-hstu": (7, 256, 9.537, 2056, 16),
}
NVIDIA = {  # name: tables and GiB as published, devices of the largest published run
    "tiny": (55, 4.2, 16),
    "small": (107, 26.3, 32),
    "medium": (311, 206.2, 128),
    "large": (612, 773.8, 128),
    "jumbo": (1022, 3109.5, 128),
    "colossal": (2002, 22327.4, None),
}
BATCH = 65_536


@st.composite
def tables(draw: Any, name: str) -> Table:
    weighted = draw(st.booleans())
    feature_names = draw(st.just([name]) | st.lists(names, min_size=1, max_size=3, unique=True))
    features = tuple(
        Feature(
            name=feature,
            pooling_factor=draw(amounts),
            num_poolings=draw(st.just(1.0) | amounts),
            weighted=weighted,
            batch_size=draw(st.none() | counts),
        )
        for feature in feature_names
    )
    return Table(
        name=name,
        num_embeddings=draw(counts),
        embedding_dim=draw(counts),
        features=features,
        pooling=draw(st.sampled_from(["sum", "mean", "none"])),
        data_type=draw(st.sampled_from(["fp32", "fp16", "bf16", "int8"])),
        collection=draw(st.just("") | names),
        access=draw(st.none() | profiles),
    )


@st.composite
def workloads(draw: Any) -> Workload:
    return Workload(
        batch_size=draw(counts),
        optimizer=draw(st.sampled_from(["sgd", "adagrad", "rowwise_adagrad", "partial_rowwise_adam", "adam", "lamb"])),
        tables=tuple(draw(tables(name)) for name in draw(st.lists(names, min_size=1, max_size=3, unique=True))),
        comm_dtype=draw(st.none() | st.sampled_from(["fp16", "bf16"])),
        backward_comm_dtype=draw(st.none() | st.sampled_from(["fp32", "bf16"])),
        pipeline=draw(st.sampled_from(["none", "sparse_dist", "prefetch_sparse_dist"])),
        name=draw(st.just("") | names),
        source=draw(st.just("") | names),
    )


def load(tmp_path: Path, name: str, text: str, **options: Any) -> Workload:
    (tmp_path / name).write_text(text, encoding="utf-8")
    return load_workload(str(tmp_path / name), **options)


def test_yaml_json_and_csv_say_the_same(tmp_path: Path):
    from_yaml = load(tmp_path, "w.yaml", YAML)
    assert from_yaml.tables[0].name == "no"
    assert from_yaml.tables[0].num_embeddings == 1_000_000
    assert load(tmp_path, "w.json", JSON) == from_yaml
    assert load(tmp_path, "w.txt", JSON) == from_yaml
    assert load(tmp_path, "w.csv", CSV, batch_size=64, optimizer="adam") == from_yaml


@settings(max_examples=60)
@given(workloads())
def test_what_is_written_reads_back(work: Workload):
    raw = workload_to_raw(work)
    assert workload_from_raw(raw, "w") == work
    assert workload_from_raw(parse(dump_json(raw), "w.json"), "w") == work
    assert workload_to_raw(workload_from_raw(raw, "w")) == raw


def test_one_feature_of_the_tables_name_is_written_short():
    raw = workload_to_raw(workload(table("a", pooling_factor=2.0)))
    assert raw["tables"] == [{"name": "a", "num_embeddings": 100, "embedding_dim": 32, "pooling_factor": 2.0}]


@pytest.mark.parametrize(
    "features",
    [
        (Feature(name="b", pooling_factor=2.0),),
        (Feature(name="a", pooling_factor=2.0, batch_size=4),),
        (Feature(name="a", pooling_factor=2.0), Feature(name="b", pooling_factor=1.0)),
    ],
)
def test_other_features_are_written_long(features: tuple[Feature, ...]):
    assert "features" in workload_to_raw(workload(table("a", features=features)))["tables"][0]


def test_short_and_long_form_cannot_be_mixed():
    raw = workload_to_raw(workload(table("a")))
    raw["tables"][0]["features"] = [{"name": "a", "pooling_factor": 1}]
    with pytest.raises(CorruptFile, match="table 'a' has features and also pooling_factor; put it on the features"):
        workload_from_raw(raw, "w")


@pytest.mark.parametrize("rest", [{}, {"num_poolings": 2}, {"weighted": True}])
def test_a_table_needs_features_or_a_pooling_factor(rest: dict[str, Any]):
    raw = workload_to_raw(workload(table("a")))
    raw["tables"][0] = {"name": "a", "num_embeddings": 1, "embedding_dim": 4, **rest}
    with pytest.raises(CorruptFile, match=r"table 'a' has neither features nor a pooling_factor; give one of the two$"):
        workload_from_raw(raw, "w")


def test_batch_size_and_optimizer_can_be_given_instead(tmp_path: Path):
    work = load(tmp_path, "w.yaml", YAML, batch_size=2, optimizer="lamb")
    assert (work.batch_size, work.optimizer) == (2, "lamb")
    assert work.tables == load(tmp_path, "w.yaml", YAML).tables


def test_an_unknown_optimizer_gets_the_nearest_name():
    with pytest.raises(UsageError, match="no optimizer is called 'adgrad'; did you mean 'adagrad'"):
        load_workload("dlrm-v2", optimizer="adgrad")


@pytest.mark.parametrize("batch_size", [0, -1, 2**53])
def test_a_batch_size_given_instead_is_a_count(batch_size: int):
    with pytest.raises(UsageError, match="batch_size is"):
        load_workload("dlrm-v2", batch_size=batch_size)


def test_an_unknown_name_gets_the_nearest_built_in():
    with pytest.raises(UsageError, match=r"cannot read 'dlrmv2': .* or a built-in workload; did you mean 'dlrm-v2'"):
        load_workload("dlrmv2")


# --- CSV ----------------------------------------------------------------------------------------------------------


def test_csv_needs_a_batch_size(tmp_path: Path):
    with pytest.raises(UsageError, match="CSV, which has no place for the batch size; add --batch-size"):
        load(tmp_path, "w.csv", CSV)


def test_csv_may_be_named_in_capitals(tmp_path: Path):
    made = load(tmp_path, "W.CSV", CSV, batch_size=64, optimizer="adam")
    assert made == load(tmp_path, "w.csv", CSV, batch_size=64, optimizer="adam")
    with pytest.raises(UsageError, match="a workload is written as JSON"):
        save_workload(made, tmp_path / "W.CSV")


def test_csv_is_trained_by_sgd_unless_an_optimizer_is_given(tmp_path: Path):
    assert load(tmp_path, "w.csv", CSV, batch_size=1).optimizer == "sgd"


def test_csv_takes_columns_in_any_order_blank_lines_and_a_byte_order_mark(tmp_path: Path):
    text = "\ufeff\r\npooling_factor,name,embedding_dim,num_embeddings\r\n1,a,8,10\r\n\r\n2,b,8,20\r\n"
    work = load(tmp_path, "w.csv", text, batch_size=1)
    assert [(table.name, table.num_embeddings) for table in work.tables] == [("a", 10), ("b", 20)]


HEADER = "name,num_embeddings,embedding_dim,pooling_factor\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name,rows\na,1\n", "column 'rows' is not known"),
        ("name,num_embedings\na,1\n", "did you mean 'num_embeddings'?"),
        ("name,name\na,b\n", "a column stands twice"),
        (",name\na,b\n", "column '' is not known"),
        ('name,"num', "is not CSV: unexpected end of data"),
        (HEADER + 'a,1,"8', "line 2 is not CSV"),
        (HEADER + "a,1,8,1\nb,1,8\n", "line 3 has 3 fields, the header 4: 'b,1,8'"),
        ("name;num_embeddings\na;1\n", "separates columns by ';'"),
        ("name\tnum_embeddings\na\t1\n", "separates columns by '\\t'"),
        (HEADER + "a,1,8,1,1\n", "line 2 has 5 fields, the header 4: 'a,1,8,1,1'"),
        (HEADER + "a,x,8,1\n", "line 2: num_embeddings: 'x' is not a number"),
        (HEADER + "a,1_000,8,1\n", "line 2: num_embeddings: '1_000' is not a number"),
        (HEADER + "a,\u0661,8,1\n", "is not a number"),
        (HEADER + "a,1,8,nan\n", "pooling_factor: 'nan' is not a number"),
        (HEADER + "a,1,8,inf\n", "pooling_factor: 'inf' is not a number"),
        (HEADER + "a,1,8,1e999\n", "line 2: pooling_factor: 1e999 is out of range"),
        (HEADER + "a,1.5,8,1\n", "tables[0] ('a').num_embeddings is 1.5"),
        (HEADER + "a,0,8,1\n", "num_embeddings of table 'a' is 0"),
        (HEADER + "a,9007199254740993,8,1\n", "num_embeddings of table 'a' is 9007199254740993"),
        (HEADER + "a,1,8,1\na,1,8,1\n", "two tables are named 'a'"),
        (HEADER + ",1,8,1\n", "name is missing"),
        (HEADER + "a,1,8,\n", "table 'a' has neither features nor a pooling_factor"),
        ("name,embedding_dim,pooling_factor\na,8,1\n", "tables[0] ('a').num_embeddings is missing"),
        (HEADER, "the workload has no tables"),
        ("", "the workload has no tables"),
        (HEADER + "a,1,8," + "1" * 200_000, "line 2 is not CSV: field larger than field limit"),
    ],
)
def test_bad_csv_is_refused_with_its_place(tmp_path: Path, text: str, words: str):
    with pytest.raises(CorruptFile) as caught:
        load(tmp_path, "w.csv", text, batch_size=1)
    assert words in str(caught.value)
    assert "w.csv" in str(caught.value)


def test_a_big_list_of_tables_is_read_in_no_time(tmp_path: Path):
    raw = workload_to_raw(workload(*(table(f"t{i}") for i in range(20_000))))
    assert len(load(tmp_path, "w.json", json.dumps(raw)).tables) == 20_000


def ids_per_sample(work: Workload) -> np.ndarray:
    """Of each table."""
    return np.array([sum(f.pooling_factor * f.num_poolings for f in table.features) for table in work.tables])


def test_the_list_of_built_ins_is_frozen():
    assert builtins() == tuple(sorted([*CRITEO, *SEQUENCES, *(f"nvidia-{size}" for size in NVIDIA)]))


@pytest.mark.parametrize("name", builtins())
def test_a_built_in_loads_and_names_its_source(name: str):
    work = load_workload(name)
    assert work.name == name
    assert len(work.source) > 20


@pytest.mark.parametrize("name", CRITEO)
def test_criteo_has_26_tables(name: str):
    assert len(load_workload(name).tables) == 26


def test_dlrm_v2_is_the_one_of_mlperf():
    work = load_workload("dlrm-v2")
    assert work.batch_size == 8192
    assert work.optimizer == "rowwise_adagrad"
    assert {table.embedding_dim for table in work.tables} == {128}
    assert sum(table.num_embeddings for table in work.tables) == 204_184_588
    assert sum(table.features[0].pooling_factor for table in work.tables) == 214
    assert work.weight_bytes / 2**30 == pytest.approx(97.36, abs=0.005)


@pytest.mark.parametrize("size", NVIDIA)
def test_nvidia_models_weigh_what_is_published_and_meet_the_published_batch(size: str):
    tables, gib, devices = NVIDIA[size]
    work = load_workload(f"nvidia-{size}")
    assert len(work.tables) == tables
    assert work.weight_bytes / 2**30 == pytest.approx(gib, abs=0.05)
    assert work.optimizer == "adagrad"
    assert work.batch_size == (512 if devices is None else BATCH / devices)


@pytest.mark.parametrize("size", NVIDIA)
def test_nvidia_models_have_the_published_tables(size: str, data: Path):
    blocks = json.loads((data / "public_configs" / "nvidia_synthetic.json").read_text())[size]
    tables = load_workload(f"nvidia-{size}").tables
    assert [(t.num_embeddings, t.embedding_dim, [f.pooling_factor for f in t.features]) for t in tables] == [
        (rows, width, hotness) for count, hotness, rows, width, _ in blocks for _ in range(count)
    ]


@pytest.mark.parametrize("name", SEQUENCES)
def test_sequence_models_have_the_published_tables_and_none_is_pooled(name: str):
    tables, columns, gib, ids, batch = SEQUENCES[name]
    work = load_workload(name)
    assert len(work.tables) == tables
    assert {(table.embedding_dim, table.pooling) for table in work.tables} == {(columns, "none")}
    assert work.weight_bytes / 2**30 == pytest.approx(gib, abs=0.005)
    assert ids_per_sample(work).sum() == ids
    assert (work.batch_size, work.optimizer) == (batch, "rowwise_adagrad")


@pytest.mark.parametrize(("name", "unique"), [("item_id", 0.024), ("album_id", 0.015), ("artist_id", 0.006)])
def test_a_batch_of_dlrm_v4_reads_as_many_different_rows_as_its_reference_measured(name: str, unique: float):
    (table,) = (table for table in load_workload("dlrm-v4").tables if table.name == name)
    assert table.access
    lookups = np.array([2.69e6])  # of a batch of 1,024 samples, as published
    rows = zipf_unique_rows(np.array([table.access.zipf]), np.array([float(table.num_embeddings)]), lookups)
    assert rows[0] / lookups[0] == pytest.approx(unique, rel=0.01)


@pytest.mark.parametrize("name", [name for name in builtins() if name not in SEQUENCES])
def test_a_batch_of_65536_reads_014_unique_rows_a_lookup(name: str):
    work = load_workload(name)
    (exponent,) = {table.access.zipf for table in work.tables if table.access}
    assert all(table.access for table in work.tables)
    rows = np.array([float(table.num_embeddings) for table in work.tables])
    lookups = BATCH * ids_per_sample(work)
    unique = zipf_unique_rows(np.full(len(rows), exponent), rows, lookups)
    assert unique.sum() / lookups.sum() == pytest.approx(0.14, rel=0.02)


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_csv_of_any_editor_is_read(tmp_path: Path, ending: str, mark: str):
    """Lines end as on Linux, Windows or an old Mac; a byte order mark may stand first."""
    (tmp_path / "w.csv").write_bytes((mark + HEADER + "a,1,8,1\nb,2,8,1\n").replace("\n", ending).encode())
    work = load_workload(tmp_path / "w.csv", batch_size=4)
    assert [(each.name, each.num_embeddings) for each in work.tables] == [("a", 1), ("b", 2)]
