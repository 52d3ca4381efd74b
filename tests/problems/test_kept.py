"""Plans are judged by their placements: each constraint is kept or named, and a pin is a pin down to the columns."""

from typing import Any

import pytest
from support.cases import cluster, table, workload

from recsmith.errors import PlanMismatch
from recsmith.plans import Placement
from recsmith.problems import (
    Apart,
    Constraints,
    PerRank,
    Pin,
    TableRule,
    Together,
    broken_constraint,
    build_problem,
    check_solves,
    footprint_of,
    in_space,
    placements_of,
)

WORK = workload(*(table(name, 1000, 32) for name in "abcd"))
CLUSTER = cluster(2, 2)


def placed(name: str, kind: str, *ranks: int, widths: tuple[int, ...] = (), kernel: str = "fused") -> Placement:
    return Placement(table=name, sharding_type=kind, compute_kernel=kernel, ranks=ranks, widths=widths)


PLAN = (
    placed("a", "column_wise", 2, 0, 1, widths=(8, 16, 8)), placed("b", "table_wise", 3),
    placed("c", "row_wise", 0, 1, 2, 3), placed("d", "table_row_wise", 0, 1),
)  # fmt: skip


def rule(name: str, **fields: Any) -> Constraints:
    return Constraints(rules=(TableRule(tables=name, **fields),))


def pin(*ranks: int, kind: str = "column_wise", widths: tuple[int, ...] = (8, 16, 8)) -> Constraints:
    return rule("a", pin=Pin(sharding_type=kind, ranks=ranks, widths=widths))


@pytest.mark.parametrize(
    ("constraints", "words"),
    [
        (rule("b", sharding_types=("row_wise",)), "table 'b' is table_wise; its rules allow row_wise"),
        (rule("?", compute_kernels=("dense",)), "table 'a' runs fused; its rules allow dense"),
        (rule("a", min_width=12), "table 'a' has a piece of 8 columns; its rules ask for 12 at least"),
        (rule("a", widths=(4, 8)), r"table 'a' has pieces of \[8, 16, 8\] columns; its rules allow \[4, 8\]"),
        (rule("c", max_shards=3), "table 'c' has 4 shards; its rules allow 3"),
        (rule("d", ranks=(0,)), r"table 'd' is on ranks \[0, 1\]; its rules allow only \[0\]"),
        (rule("*", not_ranks=(2,)), r"table 'a' is on ranks \[0, 1, 2\]; its rules allow not \[2\]"),
        (rule("b", hosts=(0,)), r"table 'b' is on hosts \[1\]; its rules allow only \[0\]"),
        (rule("d", not_hosts=(0,)), r"table 'd' is on hosts \[0\]; its rules allow not \[0\]"),
        (pin(1, 0, 2), r"table 'a' is .* on ranks \[2, 0, 1\] .* it is pinned to .* on ranks \[1, 0, 2\]"),
        (pin(2, 0, 1, widths=(8, 8, 16)), r"with widths \[8, 16, 8\]; it is pinned to .* with widths \[8, 8, 16\]"),
        (Constraints(together=(Together(tables=("b", "c")),)), r"tables 'b' and 'c' are on ranks .* together"),
        (Constraints(together=(Together(tables=("b", "d"), per="host"),)), r"on hosts \[1\] and \[0\]; together"),
        (Constraints(apart=(Apart(tables=("a", "d")),)), "tables 'a' and 'd' are both on rank 0; they must be apart"),
        (Constraints(apart=(Apart(tables=("a", "b"), per="host"),)), "both on host 1"),
        (Constraints(per_rank=(PerRank(max_tables=2),)), r"rank 0 holds 3 tables of \[\*\]; per_rank allows 2"),
        (Constraints(per_rank=(PerRank(tables=("a", "c"), max_shards=1),)), "rank 0 holds 2 shards"),
    ],
)
def test_what_is_broken_is_named(constraints: Constraints, words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(broken_constraint(constraints, PLAN, WORK.tables, CLUSTER))


@pytest.mark.parametrize(
    "constraints",
    [
        Constraints(), pin(2, 0, 1), rule("b", pin=Pin(sharding_type="table_wise", ranks=(3,), widths=(32,))),
        rule("[bd]", sharding_types=("table_wise", "table_row_wise")), rule("a", min_width=8, widths=(8, 16)),
        rule("d", hosts=(0,), not_ranks=(2, 3), max_shards=2),
        Constraints(together=(Together(tables=("a", "c"), per="host"),)),
        Constraints(apart=(Apart(tables=("b", "d"), per="host"),)),
        Constraints(per_rank=(PerRank(max_tables=3, max_shards=3),)),
    ],
)  # fmt: skip
def test_what_is_kept_is_not(constraints: Constraints) -> None:
    assert broken_constraint(constraints, PLAN, WORK.tables, CLUSTER) is None
    problem = build_problem(WORK, CLUSTER, constraints=constraints)
    assert in_space(problem, PLAN)
    check_solves(problem, PLAN)


def test_a_rule_for_a_table_that_is_called_like_a_pattern_holds_for_all_that_it_matches() -> None:
    tables = (table("t*", 100, 8), table("t1", 100, 8))
    limits = rule("t*", ranks=(0,))
    for names in (("t*", "t1"), ("t1", "t*")):
        here = [placed(name, "table_wise", rank) for rank, name in enumerate(names)]
        assert f"table '{names[1]}' is on ranks [1]" in (broken_constraint(limits, here, tables, CLUSTER) or "")


def test_pieces_of_a_pinned_table_keep_the_order_of_their_columns() -> None:
    """Searches know pieces by width and rank alone; plans have them as they are pinned."""
    problem = build_problem(WORK, CLUSTER, constraints=pin(2, 0, 1))
    assert placements_of(problem, footprint_of(problem, PLAN)) == PLAN
    swapped = (placed("a", "column_wise", 1, 0, 2, widths=(8, 16, 8)), *PLAN[1:])
    assert not in_space(problem, swapped)
    with pytest.raises(PlanMismatch, match=r"on ranks \[1, 0, 2\] .* pinned to .* on ranks \[2, 0, 1\]"):
        check_solves(problem, swapped)


def test_two_pins_that_differ_in_the_order_of_columns_contradict_each_other() -> None:
    from recsmith.problems.constraints import NoChoiceLeft

    both = Constraints(rules=(*pin(2, 0, 1).rules, *pin(1, 0, 2).rules))
    with pytest.raises(NoChoiceLeft, match="pin it to 2 placements"):
        build_problem(WORK, CLUSTER, constraints=both)
