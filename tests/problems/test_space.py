"""Words of a space and its rules: checked, kept in the house order, and carried in plans."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recsmith.errors import CorruptFile, UsageError
from recsmith.problems import Constraints, Space, TableRule, constraints_from_raw, constraints_to_raw, load_constraints
from recsmith.problems.constraints import RulesByTable
from recsmith.problems.space import column_splits, piece_counts, torchrec_width
from recsmith.sharding import TYPE_NAMES

DIMS = st.integers(1, 256).map(lambda steps: 4 * steps)


def test_words_stand_in_the_house_order_once_each() -> None:
    space = Space(types=("row_wise", "table_wise", "row_wise"), kernels=("dense", "fused"))
    assert space.types == ("table_wise", "row_wise")
    assert space.kernels == ("fused", "dense")
    assert space == Space(types=("table_wise", "row_wise"))


CACHING = ("fused", "fused_uvm_caching")


def test_cache_factors_rise_once_each_and_stand_in_the_words_of_the_space() -> None:
    space = Space(kernels=CACHING, cache_factors=(0.5, 0.1, 0.5, 1))
    assert space.cache_factors == (0.1, 0.5, 1.0)
    assert space.describe() == "all types; widths any; kernels fused, fused_uvm_caching at 0.1, 0.5, 1"
    assert Space().describe() == "all types; widths any; kernels fused, dense"
    assert Space(cache_factors=(0.3,)) == Space()  # they say nothing


@pytest.mark.parametrize("space", [Space(), Space(kernels=CACHING), Space(kernels=CACHING, cache_factors=(0.3,))])
def test_a_space_survives_the_way_into_a_plan_and_back(space: Space) -> None:
    limits = Constraints(rules=(TableRule(tables="a", cache_factors=(0.4, 0.2)),))
    raw = constraints_to_raw(space, limits)
    assert ("cache_factors" in raw) == ("fused_uvm_caching" in space.kernels)
    assert constraints_from_raw(raw, "plan") == (space, limits)


def test_rules_give_tables_cache_factors_of_their_own() -> None:
    rules = [
        TableRule(tables=name, cache_factors=factors) for name, factors in (("a*", (0.1, 0.3)), ("*b", (0.3, 1.0)))
    ]
    only, both = map(RulesByTable(tuple(rules)).merged, ("aa", "ab"))
    assert only is not None
    assert only.cache_factors == (0.1, 0.3)
    assert both is not None
    assert both.cache_factors == (0.3,)
    apart = RulesByTable((rules[0], TableRule(tables="*", cache_factors=(0.7,))))
    with pytest.raises(UsageError, match="rules for table 'a' leave it no cache factor; relax one of them"):
        apart.merged("a")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Space(types=("rowwise",)), "no sharding type is called 'rowwise'; did you mean 'row_wise'"),
        (lambda: Space(kernels=("fussed",)), "no compute kernel is called 'fussed'; did you mean 'fused'"),
        (lambda: Space(types=()), "at least one sharding type must be allowed"),
        (lambda: Space(kernels=()), "at least one compute kernel must be allowed"),
        (lambda: TableRule(tables="a", sharding_types=("x",)), "no sharding type is called 'x'"),
        (lambda: TableRule(tables="a", compute_kernels=()), "at least one compute kernel"),
        (lambda: TableRule(tables="a", min_width=3), "min_width of rule 'a' is 3; it must be at least 4"),
        (lambda: Space(kernels=CACHING, cache_factors=(0.0,)), "load_factor is 0.0; it must lie above 0"),
        (lambda: Space(kernels=CACHING, cache_factors=()), "at least one cache factor must be allowed"),
        (lambda: TableRule(tables="a", cache_factors=(1.5,)), "load_factor is 1.5; it must lie above 0"),
    ],
)
def test_unknown_words_are_refused(make, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make()


def test_all_rules_that_match_a_table_hold() -> None:
    by_table = RulesByTable(
        (
            TableRule(tables="a*", sharding_types=("row_wise", "table_wise"), min_width=8),
            TableRule(tables="*b", sharding_types=("column_wise", "table_wise"), min_width=16),
            TableRule(tables="[x]", compute_kernels=("dense",)),
        )
    )
    both = by_table.merged("ab")
    assert both is not None
    assert (both.sharding_types, both.min_width) == (("table_wise",), 16)
    only = by_table.merged("x")
    assert only is not None
    assert only.compute_kernels == ("dense",)
    assert only.sharding_types == TYPE_NAMES
    assert by_table.merged("c") is None


def test_a_rule_may_name_a_table_with_brackets() -> None:
    constraints = Constraints(rules=(TableRule(tables="t[0]", min_width=8),))
    constraints.check_names(["t[0]"])
    assert RulesByTable(constraints.rules).merged("t[0]") is not None


def test_space_and_constraints_survive_a_plan_file() -> None:
    space = Space(types=("row_wise",), widths="torchrec", kernels=("fused",))
    constraints = Constraints(memory="torchrec", rules=(TableRule(tables="a", min_width=8),))
    assert constraints_from_raw(constraints_to_raw(space, constraints), "plan") == (space, constraints)
    assert constraints_from_raw({}, "plan") == (Space(), Constraints())


def test_rules_are_read_from_a_file(tmp_path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text("schema: recsmith/constraints/1\nrules:\n- {tables: 'user_*', sharding_types: [row_wise]}\n")
    assert load_constraints(file).rules == (TableRule(tables="user_*", sharding_types=("row_wise",)),)
    file.write_text("schema: recsmith/constraints/1\nrules:\n- {tables: 'user_*', shardingtypes: [row_wise]}\n")
    with pytest.raises(CorruptFile, match="did you mean 'sharding_types'"):
        load_constraints(str(file))


@given(DIMS, st.integers(1, 4), st.integers(1, 300), st.sampled_from(["any", "torchrec"]),
       st.none() | st.integers(4, 300), st.booleans(), st.booleans())  # fmt: skip
def test_every_split_is_legal(dim, least, most, rule, min_width, equal, fine) -> None:
    splits = column_splits(dim, least, most, rule, min_width, equal=equal, fine=fine)
    assert len(set(splits)) == len(splits)
    for split in splits:
        widths = [width for width, count in split for _ in range(count)]
        assert sum(widths) == dim
        assert least <= len(widths) <= most
        assert all(width % 4 == 0 and width >= min(min_width or 4, dim) for width in widths)
        assert widths == sorted(widths, reverse=True)
        assert len(split) <= (1 if equal else 2)


@given(DIMS)
def test_whole_tables_and_the_finest_split_are_always_tried(dim) -> None:
    splits = column_splits(dim, 1, dim // 4, "any", None)
    assert splits[0] == ((dim, 1),)
    assert splits[-1] == ((4, dim // 4),)


def test_fine_splits_leave_a_rest_of_any_width() -> None:
    fine = column_splits(128, 1, 32, "any", None, fine=True)
    for split in (((104, 1), (24, 1)), ((40, 3), (8, 1)), ((112, 1), (8, 2)), ((64, 2),)):
        assert split in fine
    assert set(column_splits(128, 1, 32, "any", None)) < set(fine)


def test_blocks_of_the_kernels_are_tried() -> None:
    assert ((128, 1), (64, 1)) in column_splits(192, 1, 48, "any", None)
    assert ((32, 3), (4, 1)) in column_splits(100, 1, 25, "any", None)


@given(DIMS, st.none() | st.integers(4, 300))
def test_the_torchrec_width_is_found_by_trying_all(dim, least) -> None:
    width = torchrec_width(dim, least)
    assert dim % width == 0
    assert width == dim or width >= (least or 128)
    assert not any(dim % w == 0 and w % 4 == 0 for w in range(least or 128, width))


@given(st.integers(1, 50), st.integers(1, 2000))
def test_counts_are_dense_when_few_and_sparse_when_many(least, most) -> None:
    counts = piece_counts(least, most)
    assert counts == sorted(set(counts))
    if least <= most:
        assert counts[-1] == most
        assert set(range(least, min(most, 8) + 1)) <= set(counts)
        assert len(counts) < 50


@given(DIMS)
def test_equal_splits_are_all_that_divide_the_columns(dim) -> None:
    found = {split[0] for split in column_splits(dim, 1, dim // 4, "any", None, equal=True)}
    assert found == {(width, dim // width) for width in range(4, dim + 1, 4) if dim % width == 0}


def test_equal_splits_only_where_asked() -> None:
    assert column_splits(24, 1, 6, "any", None, equal=True) == (
        ((24, 1),), ((12, 2),), ((8, 3),), ((4, 6),),
    )  # fmt: skip


@pytest.mark.parametrize("dim", [4, 64, 128])
def test_torchrec_never_splits_up_to_128_columns(dim) -> None:
    assert column_splits(dim, 1, dim // 4, "torchrec", None) == (((dim, 1),),)
