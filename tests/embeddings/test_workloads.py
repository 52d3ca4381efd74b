"""Workloads whose tables are stored smaller."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recsmith.embeddings import CompressionRule
from recsmith.embeddings.workloads import compress, compress_to
from recsmith.errors import UsageError
from recsmith.workloads import AccessProfile, Feature, Table, Workload, load_workload


def table(name: str, rows: int, pooling: str = "sum", ids: float = 6.0) -> Table:
    features = (Feature(name=f"{name}_f", pooling_factor=ids), Feature(name=f"{name}_g", pooling_factor=2 * ids))
    return Table(
        name=name, num_embeddings=rows, embedding_dim=16, features=features, pooling=pooling,  # type: ignore[arg-type]
        access=AccessProfile(zipf=1.1),
    )  # fmt: skip


def workload(*tables: Table) -> Workload:
    return Workload(batch_size=64, optimizer="adagrad", tables=tables)


def test_a_table_becomes_its_parts_and_others_stay():
    before = workload(table("big", 10_000), table("small", 100))
    made = compress(before, [CompressionRule(method="quotient_remainder", operation="add")])
    assert made.stored == ("big",)
    assert [t.name for t in made.workload.tables] == ["big@partition0", "big@partition1", "small"]
    assert [t.num_embeddings for t in made.workload.tables] == [4, 2500, 100]
    assert [f.name for f in made.workload.tables[1].features] == ["big_f@partition1", "big_g@partition1"]
    assert [f.pooling_factor for f in made.workload.tables[1].features] == [6.0, 12.0]
    assert made.workload.tables[1].access == AccessProfile(zipf=1.1)
    assert made.workload.tables[0].access is None
    assert made.workload.tables[2] == before.tables[1]
    assert made.parameters_after == 16 * (4 + 2500 + 100)


def test_ids_that_are_distributed_over_lookups_are_shared():
    multiplied = [CompressionRule(method="quotient_remainder", max_bag=3)]
    tables = compress(workload(table("t", 1000)), multiplied).workload.tables
    assert [len(each.features) for each in tables] == [6, 6]
    assert {f.pooling_factor for f in tables[0].features} == {2.0, 4.0}
    narrow = compress_to(workload(table("t", 100_000), table("u", 300)), 10, "mixed_dimension", above_rows=1000)
    assert narrow.workload.tables[0].embedding_dim == 4  # lanes of 1 or 2 columns
    assert sum(f.pooling_factor for f in narrow.workload.tables[0].features) == pytest.approx(18.0)


@given(st.sampled_from(["hash", "quotient_remainder", "mixed_dimension"]), st.floats(1.2, 12.0))
def test_a_target_is_reached(method: str, target: float):
    before = load_workload("criteo-kaggle")
    words = {"operation": "add"} if method == "quotient_remainder" else {}
    made = compress_to(before, target, method, **words)  # type: ignore[arg-type]
    assert made.factor >= 0.995 * target
    weights = sum(t.num_embeddings * t.embedding_dim for t in made.workload.tables)
    assert weights + made.dense >= made.parameters_after  # lanes that are left empty


@pytest.mark.parametrize(
    ("method", "words", "said"),
    [
        (
            "mixed_dimension",
            {"factor": 8.0},
            r"factor is 8.0, and mixed_dimension .* it; leave it out \(.* hash, ",
        ),
        ("hash", {"operation": "add"}, "operation is add, and hash does not read it"),
        (
            "path_based",
            {"count": 3, "temperature": 0.5},
            "count is 3, and path_based .*temperature is 0.5, and",
        ),
        ("mixed_radix", {"hidden": 8}, "hidden is 8, and mixed_radix does not read it"),
    ],
)
def test_a_field_that_the_method_does_not_read_is_refused(method: str, words: dict[str, object], said: str):
    with pytest.raises(UsageError, match=said):
        CompressionRule(method=method, **words)  # type: ignore[arg-type]
    CompressionRule(method=method, factor=4.0)  # type: ignore[arg-type]  # the default, as files may say it


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"method": "path_based", "factor": math.inf}, "factor is inf; a table becomes smaller by a factor above 1"),
        ({"method": "chinese_remainder", "count": 10**8}, "count is 100,000,000; 2 to 64 tables"),
        ({"method": "quotient_remainder", "max_bag": 10**8}, "max_bag is 100,000,000; at most 10,000"),
        ({"method": "mixed_dimension", "temperature": 1000.0}, "temperature is 1000; 0 to 10"),
    ],
)
def test_numbers_that_no_table_has_are_refused(words: dict[str, Any], said: str):
    with pytest.raises(UsageError, match=said):
        compress(workload(table("t", 1000), table("u", 500)), [CompressionRule(**words)])


def test_what_cannot_be_reached_is_refused():
    with pytest.raises(UsageError, match="and the target is nan"):
        compress_to(workload(table("t", 1000)), math.nan, "mixed_dimension")
    with pytest.raises(UsageError, match=r"at most .* times smaller, and the target is 5000"):
        compress_to(workload(table("t", 1000)), 5000.0, "mixed_dimension")
    with pytest.raises(UsageError, match="learned_hash has no setting"):
        compress_to(workload(table("t", 1000)), 4.0, "learned_hash")
