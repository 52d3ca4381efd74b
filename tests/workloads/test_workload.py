"""The rules of features, tables, access profiles and workloads, and what they derive."""

from typing import Any

import pytest
from support.build import table, workload

from recsmith.errors import UsageError
from recsmith.workloads import AccessProfile, Feature

UNIFORM = tuple([1 / 17] * 17)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"zipf": 1.0, "reuse_bins": UNIFORM, "lookups": 2, "unique_rows": 1}, "give one of the two"),
        ({"zipf": float("nan")}, "between 0"),
        ({"zipf": -0.1}, "between 0"),
        ({"reuse_bins": UNIFORM[:16], "lookups": 2, "unique_rows": 1}, "17 shares"),
        ({"reuse_bins": (*UNIFORM[:16], 0.5), "lookups": 2, "unique_rows": 1}, "add up to 1"),
        ({"reuse_bins": (1.5, -0.5, *[0.0] * 15), "lookups": 2, "unique_rows": 1}, "17 shares"),
        ({"reuse_bins": (float("nan"), *UNIFORM[1:]), "lookups": 2, "unique_rows": 1}, "17 shares"),
        ({"reuse_bins": UNIFORM}, "`lookups` and `unique_rows`"),
        ({"reuse_bins": UNIFORM, "lookups": 1, "unique_rows": 2}, "unique_rows <= lookups"),
        ({"reuse_bins": UNIFORM, "lookups": 1, "unique_rows": 0}, "unique_rows <= lookups"),
    ],
)
def test_an_access_profile_is_one_whole_form(fields: dict[str, Any], words: str):
    with pytest.raises(UsageError, match=words):
        AccessProfile(**fields)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, 2.0**53])
def test_amounts_are_finite_and_not_negative(value: float):
    with pytest.raises(UsageError, match="pooling_factor of feature 'f'"):
        Feature(name="f", pooling_factor=value)
    with pytest.raises(UsageError, match="num_poolings of feature 'f'"):
        Feature(name="f", pooling_factor=1.0, num_poolings=value)


@pytest.mark.parametrize("batch_size", [0, -1, 2**53])
def test_the_batch_size_of_a_feature_is_a_count(batch_size: int):
    with pytest.raises(UsageError, match="batch_size of feature 'f'"):
        Feature(name="f", pooling_factor=1.0, batch_size=batch_size)


def test_the_edges_of_an_access_profile_are_legal():
    rows_read_once = (1.0, *[0.0] * 16)
    assert AccessProfile(reuse_bins=rows_read_once, lookups=1, unique_rows=1).lookups == 1
    assert AccessProfile(zipf=0.0).zipf == 0
    assert AccessProfile(zipf=10.0).zipf == 10


def test_a_table_needs_features_that_agree():
    weighted, plain = Feature(name="f", pooling_factor=1.0, weighted=True), Feature(name="g", pooling_factor=1.0)
    with pytest.raises(UsageError, match="table 'a' has no features"):
        table("a", features=())
    with pytest.raises(UsageError, match="table 'a' lists feature 'g' twice"):
        table("a", features=(plain, plain))
    with pytest.raises(UsageError, match="table 'a' mixes weighted and unweighted features"):
        table("a", features=(weighted, plain))


def test_a_workload_needs_tables():
    with pytest.raises(UsageError, match="no tables"):
        workload(tables=())


@pytest.mark.parametrize(("data_type", "size"), [("fp32", 4), ("fp16", 2), ("bf16", 2), ("int8", 1)])
def test_weights_are_rows_times_columns_times_element_bytes(data_type: str, size: int):
    work = workload(table("a", 10, 8, data_type=data_type), table("b", 3, 4, data_type=data_type))
    assert work.weight_bytes == (10 * 8 + 3 * 4) * size


@pytest.mark.parametrize(("pooling", "pooled"), [("sum", True), ("mean", True), ("none", False)])
def test_only_pooling_none_returns_sequences(pooling: str, pooled: bool):
    assert table(pooling=pooling).pooled is pooled


def test_nouns_are_frozen():
    with pytest.raises(AttributeError):
        table().name = "b"  # pyright: ignore[reportAttributeAccessIssue]
