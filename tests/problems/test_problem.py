"""The problem as arrays: what is legal, in which order, and what is refused with which words."""

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from support.cases import Case, cluster, drawn, kernel_limits, make_workload, medium_case, seeded, table, workload

from recsmith.clusters import sharding_group
from recsmith.errors import PlanMismatch, UsageError
from recsmith.plans import Placement, check_placements
from recsmith.problems import (
    NO_PIECE,
    Constraints,
    Problem,
    Space,
    TableRule,
    build_problem,
    option_pieces,
)
from recsmith.problems.constraints import RulesByTable
from recsmith.problems.problem import canonical_order
from recsmith.sharding import KERNEL_NAMES, SHARDING_TYPES, TYPE_NAMES, UVM_CACHING, Span

CASES = [medium_case(seeded(seed)) for seed in range(60)]
SOME = workload(table("a", 100, 16), table("b", 50, 8, pooling="none"), table("c", 10, 4))
JOB = cluster(4, 2, ddr_bytes_per_host=2**40, ssd_bytes_per_host=2**40)
GROUP = sharding_group(JOB, 4)


# --- order --------------------------------------------------------------------------------------------------------


@given(drawn(lambda pick: make_workload(pick, 8, (4, 8, 64))))
def test_order_of_tables_ignores_their_names_and_how_they_are_listed(work) -> None:
    shuffled = random.Random(0).sample(work.tables, len(work.tables))
    renamed = tuple(replace(t, name=f"{i}") for i, t in enumerate(reversed(shuffled)))
    found, again = canonical_order(tuple(shuffled), {}), canonical_order(renamed, {})
    assert found == canonical_order(work.tables, {})
    assert [_nameless(t) for t in found] == [_nameless(t) for t in again]


def _nameless(t) -> object:
    return replace(t, name="x", features=tuple(replace(f, name=str(i)) for i, f in enumerate(t.features)))


@pytest.mark.parametrize("change", [{"num_embeddings": 101}, {"data_type": "fp16"}, {"pooling": "mean"},
                                    {"collection": "tower"}, {"embedding_dim": 8}])  # fmt: skip
def test_tables_that_differ_are_ordered_by_what_they_are(change) -> None:
    one = table("a", 100, 16)
    other = replace(one, **change)
    first = canonical_order((one, replace(other, name="b")), {})
    second = canonical_order((replace(one, name="b"), other), {})
    assert [_nameless(t) for t in first] == [_nameless(t) for t in second]


def test_rules_are_part_of_what_a_table_is() -> None:
    twins = (table("a", 100, 16), table("b", 100, 16))
    rule = TableRule(tables="a", sharding_types=("row_wise",), compute_kernels=("fused",))
    first = canonical_order(twins, {"a": rule, "b": None})
    second = canonical_order(twins, {"b": replace(rule, tables="b"), "a": None})
    assert [t.name for t in first] == ["b", "a"]
    assert [t.name for t in second] == ["a", "b"]


# --- options ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
def test_options_are_complete_and_in_order_of_tables(case: Case) -> None:
    problem = case.problem
    options, modes, pieces = problem.options, problem.modes, problem.pieces
    assert (np.diff(options.start) > 0).all()
    assert (np.repeat(np.arange(len(problem.tables)), np.diff(options.start)) == options.table).all()
    assert (modes.table[options.mode] == options.table).all()
    assert (np.diff(options.mode) >= 0).all()
    used = options.piece != NO_PIECE
    assert (used == (options.count > 0)).all()
    assert (pieces.mode[options.piece] == options.mode[:, None])[used].all()


@pytest.mark.parametrize("case", CASES)
def test_the_widths_of_every_option_sum_to_the_dim_and_are_legal(case: Case) -> None:
    problem = case.problem
    seen = set()
    for option in range(len(problem.options.table)):
        mode, t = int(problem.options.mode[option]), problem.tables[problem.options.table[option]]
        widths = [int(problem.pieces.width[piece]) for piece in option_pieces(problem, option)]
        kind = SHARDING_TYPES[problem.modes.type[mode]]
        if kind.span == Span.RANK:  # pieces of one width on one rank; PlanMismatch if they may not stand so
            kind.check(t, [sorted(set(widths)).index(width) for width in widths], widths, cluster(2))
        else:
            kind.check(t, kind.ranks((0,) * len(widths), case.cluster), widths, case.cluster)
        assert widths == sorted(widths, reverse=True)
        assert sum(widths) == t.embedding_dim
        assert min(widths) >= min(int(problem.least_width[problem.options.table[option]]), t.embedding_dim)
        seen.add((mode, *widths))
    assert len(seen) == len(problem.options.table)


@pytest.mark.parametrize("case", CASES)
def test_modes_are_what_space_rules_and_sharding_types_allow(case: Case) -> None:
    problem, found = case.problem, set()
    modes = problem.modes
    for mode, (t, kind, kernel, factor) in enumerate(
        zip(modes.table, modes.type, modes.kernel, modes.load_factor, strict=True)
    ):
        assert problem.find_mode(int(t), TYPE_NAMES[kind], KERNEL_NAMES[kernel], float(factor)) == mode
        found.add((problem.tables[t].name, TYPE_NAMES[kind], KERNEL_NAMES[kernel], float(factor)))
    expected, limits = set(), kernel_limits(case)
    for t in case.workload.tables:
        rule = RulesByTable(case.constraints.rules).merged(t.name)
        types = set(rule.sharding_types or TYPE_NAMES) if rule else set(TYPE_NAMES)
        kinds = [k for k in SHARDING_TYPES if k.name in types & set(case.space.types)]
        for kind in kinds:
            if not kind.refusal(t, case.cluster):
                for kernel in set(kind.kernels) & set(case.space.kernels):
                    factors = case.space.cache_factors if kernel == UVM_CACHING.name else (0.0,)
                    if limits.refusal(t, kind.name, kernel) is None:
                        expected |= {(t.name, kind.name, kernel, factor) for factor in factors}
    assert found == expected


@pytest.mark.parametrize("case", CASES[:20])
def test_rows_and_coverage_of_modes_are_those_of_the_shards(case: Case) -> None:
    problem = case.problem
    for mode in range(len(problem.modes.table)):
        t, kind = problem.tables[problem.modes.table[mode]], SHARDING_TYPES[problem.modes.type[mode]]
        targets = (0, 0) if kind.name == "grid_shard" else (0,)
        widths = (t.embedding_dim // 2,) * 2 if kind.name == "grid_shard" else (t.embedding_dim,)
        shards = kind.shards(t, kind.ranks(targets, case.cluster), widths, case.cluster)[
            -problem.modes.coverage[mode] :
        ]
        rows = [b - a for a, b in (shard.rows for shard in shards)]
        head, tail = problem.modes.head_rows[mode], problem.modes.tail_rows[mode]
        assert rows == [head] * (len(rows) - 1) + [tail]
        assert Span(problem.modes.span[mode]) == kind.span


def test_widths_torchrec_is_the_smallest_divisor_from_128_on() -> None:
    space = Space(types=("column_wise",), widths="torchrec")
    for dim, width in {64: 64, 128: 128, 132: 132, 192: 192, 256: 128, 288: 144, 384: 128, 1000: 200}.items():
        problem = build_problem(workload(table("a", 10, dim)), cluster(2), space)
        assert problem.pieces.width.tolist() == [width]
        assert problem.options.count.tolist() == [[dim // width, 0]]


def test_widths_torchrec_starts_at_the_least_width_of_a_rule() -> None:
    space = Space(types=("column_wise",), widths="torchrec")
    for least, width in {4: 4, 16: 16, 17: 20, 33: 40, 81: 160, 161: 160}.items():
        rules = Constraints(rules=(TableRule(tables="a", min_width=least),))
        problem = build_problem(workload(table("a", 10, 160)), cluster(2), space, rules)
        assert set(problem.pieces.width.tolist()) == {width}


def test_tables_that_torchrec_fuses_share_a_group() -> None:
    same = [table("a", 10, 8), table("b", 20, 16)]
    other = [table("c", 10, 8, data_type="fp16"), table("d", 10, 8, pooling="mean"), table("e", 10, 8, collection="x"),
             replace(table("f", 10, 8), features=(replace(table("f", 1, 4).features[0], weighted=True),))]  # fmt: skip
    problem = build_problem(workload(*same, *other), cluster(2), Space(types=("table_wise", "row_wise")))
    names = [problem.tables[t].name for t in problem.modes.table]
    groups: dict[int, set[str]] = {}
    for name, kind, group in zip(names, problem.modes.type, problem.modes.group, strict=True):
        groups.setdefault(int(group), set()).add(f"{name} {TYPE_NAMES[kind]}")
    expected = [{"a table_wise", "b table_wise"}, {"a row_wise", "b row_wise"}]
    expected += [{f"{name} {kind}"} for name in "cef" for kind in ("table_wise", "row_wise")]
    expected.append({"d table_wise"})  # of means beside others, TorchRec splits none by rows rightly
    assert sorted(groups.values(), key=sorted) == sorted(expected, key=sorted)


# --- rules --------------------------------------------------------------------------------------------------------


def _types_of(problem, name: str) -> set[str]:
    t = [other.name for other in problem.tables].index(name)
    return {TYPE_NAMES[kind] for kind in problem.modes.type[problem.modes.table == t]}


def test_rules_limit_types_kernels_and_widths_of_the_tables_they_name() -> None:
    rules = Constraints(
        rules=(
            TableRule(tables="user_*", sharding_types=("column_wise", "row_wise")),
            TableRule(tables="user_id", sharding_types=("column_wise", "table_wise"), min_width=8),
            TableRule(tables="ad", compute_kernels=("dense",)),
        )
    )
    tables = (table("user_id", 100, 16), table("user_age", 100, 16), table("ad", 100, 16))
    problem = build_problem(workload(*tables), cluster(2), Space(), rules)
    assert _types_of(problem, "user_id") == {"column_wise"}
    assert _types_of(problem, "user_age") == {"column_wise", "row_wise"}
    assert _types_of(problem, "ad") == {"data_parallel"}
    of_user = problem.modes.table[problem.pieces.mode] == [t.name for t in problem.tables].index("user_id")
    assert sorted(problem.pieces.width[of_user].tolist()) == [8, 16]


def test_a_table_narrower_than_min_width_stays_whole() -> None:
    rules = Constraints(rules=(TableRule(tables="a", min_width=64),))
    problem = build_problem(workload(table("a", 100, 16)), cluster(2), Space(types=("column_wise",)), rules)
    assert problem.pieces.width.tolist() == [16]


# --- caches -------------------------------------------------------------------------------------------------------

CACHING = Space(types=("table_wise", "row_wise"), kernels=("fused", "fused_uvm_caching"), cache_factors=(0.1, 0.4))


def _factors(problem: Problem, name: str, kind: str) -> list[float]:
    modes, t = problem.modes, [table.name for table in problem.tables].index(name)
    mine = (modes.table == t) & (modes.type == TYPE_NAMES.index(kind))
    return modes.load_factor[mine].tolist()


def test_each_factor_is_a_mode_and_rules_give_tables_their_own() -> None:
    work = workload(table("a", 10**5, 64), table("b", 10**5, 64), table("c", 10**5, 64))
    limits = Constraints(
        rules=(TableRule(tables="b", cache_factors=(0.3,)), TableRule(tables="c", compute_kernels=("fused",)))
    )
    problem = build_problem(work, cluster(ddr_bytes_per_host=2**40), CACHING, limits)
    for kind in CACHING.types:
        assert _factors(problem, "a", kind) == [0.0, 0.1, 0.4]
        assert _factors(problem, "b", kind) == [0.0, 0.3]
        assert _factors(problem, "c", kind) == [0.0]
    assert problem.find_mode(0, "table_wise", "fused_uvm_caching", 0.2) is None


def test_caches_that_weigh_no_less_than_the_table_or_a_larger_cache_are_left_out() -> None:
    """32 rows are one set of a cache; tables of which many rows are asked keep places of ids on the device."""
    work = workload(
        table("tiny", 30, 64), table("few", 100, 64), table("asked", 1000, 4, 500.0), table("large", 10**5, 64)
    )
    problem = build_problem(work, cluster(1, ddr_bytes_per_host=2**40), CACHING)
    found = {name: _factors(problem, name, "table_wise") for name in ("tiny", "few", "asked", "large")}
    assert found == {"tiny": [0.0], "few": [0.0, 0.1, 0.4], "asked": [0.0], "large": [0.0, 0.1, 0.4]}
    alone = build_problem(work, cluster(1, ddr_bytes_per_host=2**40), replace(CACHING, kernels=("fused_uvm_caching",)))
    assert _factors(alone, "tiny", "table_wise") == [0.4]  # 3 and 12 rows take one set each


def test_what_is_left_out_weighs_no_less_than_what_is_kept_and_faster() -> None:
    assert sum(_check_what_is_left_out(case) for case in CASES if UVM_CACHING.name in case.space.kernels) > 20


def _check_what_is_left_out(case: Case) -> int:
    """How many modes of a case are left out, each of them checked."""
    every, searched = case.problem, build_problem(case.workload, case.cluster, case.space, case.constraints)
    kept = {key: every.mode_of[key] for key in searched.mode_of}
    for key in every.mode_of.keys() - kept.keys():
        table_, kind, _, factor = key
        alike = [(kernel, f, mode) for (t, k, kernel, f), mode in kept.items() if (t, k) == (table_, kind)]
        faster = [mode for kernel, f, mode in alike if kernel == KERNEL_NAMES.index("fused") or f > factor]
        width = np.arange(4, every.demand.dim[table_] + 1, 4)
        weights = [every.memory(np.full(len(width), mode), width) for mode in (every.mode_of[key], *faster)]
        ours, *others = (np.stack([end.device for end in ends]) for ends in weights)
        assert any((other <= ours).all() for other in others)
    return len(every.mode_of) - len(kept)


# --- refusals -----------------------------------------------------------------------------------------------------


def _refusal(*args: object) -> str:
    with pytest.raises(UsageError) as caught:
        build_problem(*args)  # type: ignore[arg-type]
    return str(caught.value)


def test_a_rule_that_matches_nothing_is_refused_with_the_nearest_name() -> None:
    rules = Constraints(rules=(TableRule(tables="user_idd", min_width=8),))
    work = workload(table("user_id", 100, 16), table("ad", 100, 16))
    assert _refusal(work, cluster(), Space(), rules) == "rule 'user_idd' matches no table; did you mean 'user_id'?"


def test_rules_that_contradict_each_other_are_refused() -> None:
    for field, one, two in (
        ("sharding_types", ("row_wise",), ("table_wise",)), ("compute_kernels", ("fused",), ("dense",)),
    ):  # fmt: skip
        limits: list[dict[str, Any]] = [{"tables": "a", field: one}, {"tables": "*", field: two}]
        rules = Constraints(rules=tuple(TableRule(**limit) for limit in limits))
        assert "rules for table 'a' leave it no sharding type or kernel" in _refusal(SOME, cluster(), Space(), rules)


@pytest.mark.parametrize(("dim", "padded"), [(1, 4), (6, 8), (127, 128), (130, 132)])
def test_a_dim_that_is_no_multiple_of_4_is_refused_with_the_padded_one(dim: int, padded: int) -> None:
    message = _refusal(workload(table("a", 100, dim)), cluster())
    assert f"embedding_dim {dim}" in message
    assert f"pad it to {padded}" in message


@pytest.mark.parametrize(
    ("space", "rules", "why"),
    [
        (Space(types=("table_column_wise",)), (), "table_column_wise does not run sequence tables"),
        (Space(types=("row_wise",)), (), "leave a rank of 64 empty"),
        (
            Space(types=("grid_shard",)),
            (),
            "grid_shard has two ranges of columns or more here, and no more than hosts, so it needs two hosts",
        ),
        (Space(types=("table_wise",), kernels=("dense",)), (), "table_wise runs fused"),
        (Space(types=("data_parallel",), kernels=("fused",)), (), "data_parallel runs dense"),
        (
            Space(types=("table_wise",)),
            (TableRule(tables="*", sharding_types=("row_wise",)),),
            "rules leave out table_w",
        ),
    ],
)
def test_a_table_without_a_legal_type_is_refused_with_the_reason(space: Space, rules, why: str) -> None:
    message = _refusal(SOME, cluster(64), space, Constraints(rules=rules))
    assert message.startswith("table '")
    assert f"has no legal placement with {space.words} (" in message
    assert why in message


def test_a_table_whose_columns_have_no_split_is_refused_with_the_reason() -> None:
    space = Space(types=("grid_shard",), widths="torchrec")
    message = _refusal(workload(table("a", 100, 64)), cluster(2, 2), space)
    assert "grid_shard has no split of 64 columns under widths torchrec" in message
    rules = Constraints(rules=(TableRule(tables="a", min_width=64),))
    message = _refusal(workload(table("a", 100, 64)), cluster(2, 2), Space(types=("grid_shard",)), rules)
    assert "no split of 64 columns under widths any and min_width 64" in message


def test_kernels_on_host_memory_need_host_memory() -> None:
    space = Space(kernels=("fused", "fused_uvm"))
    assert "ddr_bytes_per_host" in _refusal(SOME, cluster(), space)
    assert build_problem(SOME, cluster(ddr_bytes_per_host=1000), space).host_capacity.tolist() == [1000]


# --- memory -------------------------------------------------------------------------------------------------------


def test_capacities_are_those_of_the_ranks_less_the_reserve() -> None:
    problem = build_problem(SOME, cluster(2, 2, hbm=(10, 20, 30, 40), reserve_bytes=5, ddr_bytes_per_host=7))
    assert problem.capacity.tolist() == [5, 15, 25, 35]
    assert problem.host_capacity.tolist() == [7, 7]


def test_the_accounting_is_the_constraints() -> None:
    real, torchrec = (
        build_problem(SOME, cluster(), Space(types=("column_wise",)), Constraints(memory=memory))
        for memory in ("real", "torchrec")
    )
    assert (real.pieces.head.device > torchrec.pieces.head.device).all()


def test_keep_exact_leaves_no_column_split_under_row_wise_optimizers() -> None:
    for optimizer, split in (("rowwise_adagrad", False), ("adagrad", True)):
        work = workload(table("a", 100, 64), optimizer=optimizer)
        options = build_problem(work, cluster(2, 2), constraints=Constraints(keep_exact=True)).options
        assert (options.count.sum(axis=1) > 1).any() == split


@pytest.mark.parametrize(
    ("work", "space", "message"),
    [
        ({"optimizer": "adam"}, {}, "optimizer adam in a 2D job: .* take sgd, adagrad, rowwise_adagrad"),
        ({}, {"kernels": ("fused", "fused_uvm_caching")}, "kernel fused_uvm_caching in a 2D job: .* replicas drift"),
        ({}, {"kernels": ("fused", "key_value")}, "kernel key_value in a 2D job: .* none on disk, so replicas drift"),
    ],
)
def test_what_sync_would_break_is_refused(work: dict[str, Any], space: dict[str, Any], message: str) -> None:
    made = workload(table("a", 1000, 16), **work)
    build_problem(made, JOB, Space(**space))
    with pytest.raises(UsageError, match=message):
        build_problem(made, GROUP, Space(**space))


def test_table_column_wise_is_not_in_the_space() -> None:
    made = workload(table("a", 1000, 16))
    kinds = {TYPE_NAMES[kind] for kind in build_problem(made, GROUP).modes.type}
    assert "table_column_wise" not in kinds
    assert {"column_wise", "table_row_wise", "row_wise", "table_wise", "data_parallel"} <= kinds
    placement = Placement(
        table="a", sharding_type="table_column_wise", compute_kernel="fused", ranks=(0, 1), widths=(8, 8)
    )
    check_placements((placement,), made, JOB)
    with pytest.raises(PlanMismatch, match="table_column_wise does not run in TorchRec's DMPCollection"):
        check_placements((placement,), made, GROUP)
