"""Words of a space and its rules: checked, kept in the house order, and carried in plans."""

import pytest

from recsmith.errors import CorruptFile, UsageError
from recsmith.problems import Constraints, Space, TableRule, constraints_from_raw, constraints_to_raw, load_constraints
from recsmith.sharding import TYPE_NAMES


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
    only, both = (Constraints(rules=tuple(rules)).rule_for(name) for name in ("aa", "ab"))
    assert only is not None
    assert only.cache_factors == (0.1, 0.3)
    assert both is not None
    assert both.cache_factors == (0.3,)
    apart = Constraints(rules=(rules[0], TableRule(tables="*", cache_factors=(0.7,))))
    with pytest.raises(UsageError, match="rules for table 'a' leave it no cache factor; relax one of them"):
        apart.rule_for("a")


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
    constraints = Constraints(
        rules=(
            TableRule(tables="a*", sharding_types=("row_wise", "table_wise"), min_width=8),
            TableRule(tables="*b", sharding_types=("column_wise", "table_wise"), min_width=16),
            TableRule(tables="[x]", compute_kernels=("dense",)),
        )
    )
    both = constraints.rule_for("ab")
    assert both is not None
    assert (both.sharding_types, both.min_width) == (("table_wise",), 16)
    only = constraints.rule_for("x")
    assert only is not None
    assert only.compute_kernels == ("dense",)
    assert only.sharding_types == TYPE_NAMES
    assert constraints.rule_for("c") is None


def test_a_rule_may_name_a_table_with_brackets() -> None:
    constraints = Constraints(rules=(TableRule(tables="t[0]", min_width=8),))
    constraints.check_names(["t[0]"])
    assert constraints.rule_for("t[0]") is not None


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
