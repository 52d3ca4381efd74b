"""Of each collection of column-wise sequences one width stays open, one that fits."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from support.cases import BOTH, Case, check_plan, cluster, drawn, fits, medium_case, table, workload

from recsmith.errors import UsageError
from recsmith.plans import Cache, Placement
from recsmith.problems import Constraints, Problem, Space, TableRule
from recsmith.sharding import KERNEL_NAMES, TYPE_NAMES, sharding_type
from recsmith.workloads import Table

SPLIT = Space(types=("column_wise",))
MIB = 2**20
TINY = drawn(medium_case, tightness=(0.5, 1.0, 3.0), models=BOTH, counts=(1, 2, 3), dims=(4, 8, 20, 64))


def _sequence(name: str, rows: int, dim: int, collection: str = "seq") -> Table:
    return table(name, rows, dim, pooling="none", collection=collection)


def _open_widths(problem: Problem) -> dict[str, set[int]]:
    """Per table: the widths of its column-wise options that searches may choose."""
    options, found = problem.options, {each.name: set[int]() for each in problem.tables}
    split = problem.modes.type[options.mode] == TYPE_NAMES.index("column_wise")
    for option in np.flatnonzero(split & ~options.barred):
        found[problem.tables[options.table[option]].name].add(int(problem.pieces.width[options.piece[option, 0]]))
    return found


@given(drawn(medium_case))
def test_searches_see_one_width_per_collection_and_all_of_pooled_tables(case: Case) -> None:
    problem = case.problem
    collections: dict[str, set[int]] = {}
    for each in problem.tables:
        if not each.pooled:
            collections.setdefault(each.collection, set()).update(_open_widths(problem)[each.name])
    assert all(len(widths) <= 1 for widths in collections.values())
    assert not problem.demand.pooled[problem.options.table[problem.options.barred]].any()


@given(drawn(medium_case))
def test_other_openings_also_have_one_width_per_collection_and_cover_all(case: Case) -> None:
    problem, seen = case.problem, {each.name: set[int]() for each in case.problem.tables}
    free = replace(problem, options=replace(problem.options, barred=np.zeros_like(problem.options.barred)))
    for barred in problem.other_openings():
        opened = _open_widths(replace(problem, options=replace(problem.options, barred=barred)))
        for collection in {each.collection for each in problem.tables}:
            own = [each.name for each in problem.tables if not each.pooled and each.collection == collection]
            assert len(set[int]().union(*(opened[name] for name in own))) <= 1
        for each in problem.tables:
            assert each.pooled <= (opened[each.name] == _open_widths(free)[each.name])
            seen[each.name] |= opened[each.name]
    assert all(each.pooled or seen[each.name] == _open_widths(free)[each.name] for each in problem.tables)


def test_where_memory_is_ample_the_width_is_what_torchrec_gives_the_first_table() -> None:
    wide, narrow = _sequence("wide", 100, 512), _sequence("narrow", 100, 256)
    assert _open_widths(Case(workload(wide, narrow), cluster(8)).problem) == {"wide": {128}, "narrow": {128}}
    assert _open_widths(Case(workload(wide, _sequence("thin", 90, 64)), cluster(8)).problem)["thin"] == set()
    apart = Case(workload(wide, _sequence("thin", 90, 64, "other")), cluster(8)).problem
    assert _open_widths(apart) == {"wide": {128}, "thin": {64}}


def test_where_memory_is_short_the_width_is_the_widest_that_fits() -> None:
    """150,000 rows x 64 columns are 37 MiB of fp32, and as many x 32 are 18 MiB."""
    case = Case(workload(_sequence("long", 150_000, 128)), cluster(3, hbm=40 * MIB), SPLIT)
    assert _open_widths(case.problem) == {"long": {64}}
    check_plan(case, case.plan().plan)
    tighter = replace(case, cluster=cluster(5, hbm=25 * MIB))
    assert _open_widths(tighter.problem) == {"long": {32}}
    check_plan(tighter, tighter.plan().plan)


def test_pieces_that_fit_one_by_one_must_also_find_room_together() -> None:
    """150,000 rows x 64 columns are 37 MiB of fp32: the larger device holds one such piece, the smaller none."""
    case = Case(workload(_sequence("long", 150_000, 128)), cluster(2, hbm=(60 * MIB, 36 * MIB)), SPLIT)
    assert _open_widths(case.problem) == {"long": {32}}
    check_plan(case, case.plan().plan)


@pytest.mark.parametrize("types", [("column_wise", "table_wise"), ("column_wise", "row_wise")])
def test_tables_that_fit_otherwise_do_not_choose_the_width(types: tuple[str, ...]) -> None:
    small, long = _sequence("small", 1000, 256), _sequence("long", 150_000, 128)
    work = workload(replace(small, num_embeddings=400_000), long) if types[1] == "row_wise" else workload(small)
    case = Case(work, cluster(16, hbm=60 * MIB), Space(types=types))
    assert set.union(*_open_widths(case.problem).values()) == {128}


def test_a_rule_keeps_pieces_wide() -> None:
    rules = Constraints(rules=(TableRule(tables="long", min_width=64),))
    case = Case(workload(_sequence("long", 150_000, 128)), cluster(5, hbm=25 * MIB), SPLIT, rules)
    assert _open_widths(case.problem) == {"long": {64}}  # nothing fits: TorchRec's own


def test_under_torchrec_widths_the_table_that_must_be_split_decides() -> None:
    """TorchRec proposes 128 for the longer table's 256 columns, which rows may split too, and 160 for 320."""
    work = workload(_sequence("long", 200_000, 256), _sequence("wide", 60_000, 320))
    space = Space(types=("column_wise", "row_wise"), widths="torchrec")
    either = Case(work, cluster(4), space)
    assert _open_widths(either.problem) == {"long": {128}, "wide": set()}
    rules = Constraints(rules=(TableRule(tables="wide", sharding_types=("column_wise",)),))
    must = replace(either, constraints=rules)
    assert _open_widths(must.problem) == {"long": set(), "wide": {160}}
    check_plan(must, must.plan().plan)


def test_sequences_that_run_only_column_wise_must_share_a_width() -> None:
    rules = Constraints(rules=(TableRule(tables="*", min_width=12),))
    work = workload(*(_sequence(name, 100, dim) for name, dim in (("a", 20), ("b", 12), ("c", 36))))
    with pytest.raises(UsageError, match=r"tables .*'a' \(20\).* of collection 'seq' run only column_wise") as caught:
        Case(work, cluster(2), SPLIT, rules).plan()
    assert "table_wise or row_wise" in str(caught.value)
    assert _open_widths(Case(work, cluster(2), SPLIT).problem) == {"a": {4}, "b": {4}, "c": {4}}
    either = Space(types=("column_wise", "table_wise"))
    check_plan(case := Case(work, cluster(2), either, rules), case.plan().plan)
    check_plan(case := Case(work, cluster(2), SPLIT), case.plan().plan)


@given(TINY)
def test_a_piece_fits_alone_where_some_target_has_room(case: Case) -> None:
    problem = case.problem
    found = problem.fits_alone(problem.pieces.mode, problem.pieces.head, problem.pieces.tail)
    for piece, mode in enumerate(problem.pieces.mode):
        t = problem.tables[problem.modes.table[mode]]
        kind, kernel = TYPE_NAMES[problem.modes.type[mode]], KERNEL_NAMES[problem.modes.kernel[mode]]
        factor = float(problem.modes.load_factor[mode])
        cache = Cache(load_factor=factor) if factor else None
        assert found[piece] == _has_room(case, t, kind, kernel, cache, int(problem.pieces.width[piece]))


def _has_room(case: Case, t, kind: str, kernel: str, cache: Cache | None, width: int) -> bool:
    target_count = (case.cluster.world_size, case.cluster.hosts, 1)[sharding_type(kind).span]
    for target in range(target_count):
        ranks = sharding_type(kind).ranks((target,), case.cluster)
        alone = Placement(
            table=t.name, sharding_type=kind, compute_kernel=kernel, ranks=ranks, widths=(width,), cache=cache
        )
        if fits(case, (alone,)):
            return True
    return False


@pytest.mark.parametrize(("host_rows", "fits_"), [(4, False), (5, False), (6, True)])
def test_a_piece_of_the_world_fits_only_where_its_fullest_host_has_room(host_rows: int, fits_: bool) -> None:
    """10 rows in 4 blocks are 3 + 3 on the first host and 3 + 1 on the last."""
    case = Case(
        workload(table("a", 10, 8, 0.0), optimizer="sgd"),
        cluster(2, 2, ddr_bytes_per_host=host_rows * 8 * 4),
        Space(types=("row_wise",), kernels=("fused_uvm",)),
    )
    pieces = case.problem.pieces
    assert case.problem.fits_alone(pieces.mode, pieces.head, pieces.tail).tolist() == [fits_]
