"""The rules of features, tables, access profiles and workloads, and what they derive."""

from pathlib import Path
from typing import Any

import pytest
from support.build import cluster, table, workload

from recsmith import diff, explain, load_plan, plan, report, save_plan, simulate
from recsmith.errors import UsageError
from recsmith.problems import Constraints, pins_of
from recsmith.workloads import AccessProfile, Feature, Table, Workload, check_name

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


NAMES = ("items", "keys", "values", "pop", "type", "a.b", "*", "a[1]", "a1", "user_?", "--help", "null", "x#2", "a/b",
         " ", "'\"<b>&", "{0}%s[red]", "\u6771\u4eac", "__class__", "schema")  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_any_printable_text_is_a_name(name: str):
    check_name(name, "table")
    assert table(name).features[0].name == name


@pytest.mark.parametrize("name", ["", "a\nb", "\t", "a\x00", "\x1b[1m"])
def test_control_characters_and_nothing_are_no_names(name: str):
    for what in ("table", "feature"):
        with pytest.raises(UsageError, match=f"{what} n"):
            check_name(name, what)
    with pytest.raises(UsageError, match="name"):
        table(name)


def test_tables_of_any_names_are_planned_kept_explained_and_pinned(tmp_path: Path):
    work = workload(*(table(name, rows=1000 * (i + 1), dim=16) for i, name in enumerate(NAMES)))
    made = plan(work, cluster(local=4), planner="cost_greedy").plan
    save_plan(made, tmp_path / "p.json")
    assert load_plan(tmp_path / "p.json") == made
    assert simulate(tmp_path / "p.json").cost == made.cost
    assert not diff(made, tmp_path / "p.json").changes
    for name in NAMES:
        account = explain(made, name).account
        assert account is not None
        assert account.table.name == name
    pins = Constraints(rules=pins_of(made))
    assert plan(work, cluster(local=4), planner="size_greedy", constraints=pins).plan.placements == made.placements
    report(made, tmp_path / "p.html")
    assert "<b>&" not in (tmp_path / "p.html").read_text("utf-8").split("<body", 1)[1].split("<script", 1)[0]


def test_ids_a_sample_count_a_feature_with_its_own_batch_for_its_share():
    two = Table(
        name="a", num_embeddings=10, embedding_dim=4,
        features=(Feature(name="x", pooling_factor=3), Feature(name="y", pooling_factor=4, batch_size=16)),
    )  # fmt: skip
    assert Workload(batch_size=64, optimizer="sgd", tables=(two,)).ids_a_sample(two) == 4
