"""Cost model `analytic`: one example by hand, and laws that hold whatever its constants are."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cases import LOOSE, Case, cluster, drawn, medium_case, random_placements, table, workload

from recsmith.clusters import Cluster
from recsmith.costs import price
from recsmith.errors import UsageError
from recsmith.plans import Placement, StepCost
from recsmith.problems import Space, footprint_of
from recsmith.sharding import KERNEL_NAMES, TYPE_NAMES
from recsmith.workloads import AccessProfile, Table

ANALYTIC = drawn(medium_case, models=("analytic",), counts=(2, 4), dims=(4, 20, 64, 192))
FEW = settings(max_examples=40)
INTRA, INTER = 1e-5, 3e-5  # latencies
LAUNCH = 1e-6
COUNTED = AccessProfile(reuse_bins=(0.0, 1.0, *[0.0] * 15), lookups=80, unique_rows=40)  # 40 rows, each read twice


def _cluster(local: int = 2, hosts: int = 1, **device) -> Cluster:
    made = cluster(local, hosts, ddr_bytes_per_host=2**40)
    fields = {"l2_bytes": 10**6, "l2_bandwidth": 4e12, "launch_s": LAUNCH} | device
    return replace(
        made,
        device=replace(made.device, **fields),
        links=replace(made.links, intra_host_latency_s=INTRA, inter_host_latency_s=INTER),
    )


def _case(*tables: Table, on: Cluster | None = None, space: Space | None = None, **fields) -> Case:
    return Case(
        workload(*tables, **fields), on or _cluster(), space or Space(kernels=KERNEL_NAMES), cost_model="analytic"
    )


def _placed(name: str, kind: str, ranks: tuple[int, ...], kernel: str = "fused") -> Placement:
    return Placement(table=name, sharding_type=kind, compute_kernel=kernel, ranks=ranks)


def _price(case: Case, *placements: Placement) -> StepCost:
    return price(case.evaluator, footprint_of(case.problem, placements))


def _terms(case: Case, kind: str, kernel: str = "fused", width: int | None = None, load_factor: float | None = None):
    """Terms of the first table's piece, the whole width by default."""
    mode = case.problem.find_mode(0, kind, kernel, load_factor)
    assert mode is not None
    return case.evaluator.terms(np.array([mode]), np.array([width or case.problem.tables[0].embedding_dim]))[0]


def _shared(case: Case, kind: str, kernel: str = "fused") -> tuple[float, float]:
    """What a group of this type costs every rank, forward and backward."""
    mode = case.problem.find_mode(0, kind, kernel)
    assert mode is not None
    compute, backward, forward_comm, backward_comm = case.evaluator.shared[case.evaluator.group[mode]].tolist()
    assert compute == backward == 0
    return forward_comm, backward_comm


# --- by hand ------------------------------------------------------------------------------------------------------


def test_a_table_on_one_of_two_devices_by_hand() -> None:
    """80 ids in 16 bags of 128 columns; 40 different rows of 512 bytes, which the cache holds; memory decides."""
    case = _case(table("a", 1000, 128, 5.0, access=COUNTED), batch_size=8)
    cost = _price(case, _placed("a", "table_wise", (0,)))
    forward = (80 * 8 + 16 * 8 + 16 * 512 + 40 * 512) / 0.75e12
    backward = (80 * 160 + 16 * 512 + 2 * 40 * (512 + 32)) / 0.5e12  # rowwise_adagrad: a sector of state
    sent = 16 * 128 * 4 * (1 / 2) / (3e11 * 0.75)
    busy, idle = cost.per_device
    assert busy.forward_compute_s == pytest.approx(2 * LAUNCH + forward, rel=1e-12)
    assert busy.backward_compute_s == pytest.approx(20 * LAUNCH + backward, rel=1e-12)
    assert busy.forward_comm_s == pytest.approx(INTRA + sent, rel=1e-12)
    assert busy.backward_comm_s == pytest.approx(INTRA + sent, rel=1e-12)
    assert (idle.forward_compute_s, idle.backward_compute_s) == (0, 0)
    assert (idle.forward_comm_s, idle.backward_comm_s) == (INTRA, INTRA)
    assert cost.total_s == pytest.approx(22 * LAUNCH + forward + backward + 2 * (INTRA + sent), rel=1e-12)
    assert idle.wait_s == pytest.approx(cost.total_s - 2 * INTRA, rel=1e-12)


def test_the_same_table_where_the_cache_is_slow() -> None:
    """Every id's row and gradient comes through the cache."""
    case = _case(table("a", 1000, 128, 5.0, access=COUNTED), on=_cluster(l2_bandwidth=1e11), batch_size=8)
    (busy, _) = _price(case, _placed("a", "table_wise", (0,))).per_device
    forward, backward = 80 * 8 + 16 * 8 + 16 * 512 + 80 * 512, 80 * 160 + 80 * 512 + 2 * 40 * (512 + 32)
    assert busy.forward_compute_s == pytest.approx(2 * LAUNCH + forward / 1e11, rel=1e-12)
    assert busy.backward_compute_s == pytest.approx(20 * LAUNCH + backward / 1e11, rel=1e-12)


def test_the_same_table_on_every_device() -> None:
    """40 ids in 8 bags on each; half as many lookups leave 30 of the rows; the gradient of the table is reduced."""
    case = _case(table("a", 1000, 128, 5.0, access=COUNTED), batch_size=8)
    left, right = _price(case, _placed("a", "data_parallel", (0, 1), "dense")).per_device
    unique = 40 * (1 - 0.5**2)
    assert left.forward_compute_s == pytest.approx(
        2 * LAUNCH + (40 * 8 + 8 * 8 + 8 * 512 + unique * 512) / 0.75e12, rel=1e-12
    )
    backward = (40 * 160 + 8 * 512 + 9.22 * 1000 * 512) / 0.5e12
    assert left.backward_compute_s == pytest.approx(20 * LAUNCH + backward, rel=1e-12)
    assert left.forward_comm_s == 0
    assert left.backward_comm_s == pytest.approx(INTRA + 2 * (1 / 2) * 1000 * 512 / (3e11 * 0.75), rel=1e-12)
    assert replace(left, rank=1) == right


def test_a_table_in_blocks_of_rows_by_hand() -> None:
    """Each of two devices has 40 of the ids, all 16 bags, and half of the 40 rows."""
    case = _case(table("a", 1000, 128, 5.0, access=COUNTED), batch_size=8)
    left, right = _price(case, _placed("a", "row_wise", (0, 1))).per_device
    forward = (40 * 8 + 16 * 8 + 16 * 512 + 20 * 512) / 0.75e12
    backward = (40 * 160 + 16 * 512 + 2 * 20 * (512 + 32)) / 0.5e12
    assert left.forward_compute_s == pytest.approx(2 * LAUNCH + forward, rel=1e-12)
    assert left.backward_compute_s == pytest.approx(20 * LAUNCH + backward, rel=1e-12)
    ring = 16 * 512 * (1 / 2) / (3e11 * 0.75)
    assert left.forward_comm_s == left.backward_comm_s == pytest.approx(INTRA + ring, rel=1e-12)
    assert replace(left, rank=1) == right


# --- kernels ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("width", "penalty"), [(4, 1.55), (8, 1.55), (32, 1.55), (36, 1.1), (64, 1.1), (68, 1.0), (128, 1.0)]
)
def test_narrow_rows_pay_a_penalty_on_whole_sectors(width: int, penalty: float) -> None:
    memory = _terms(_case(table("a", 1000, 128, 5.0, access=COUNTED), batch_size=8), "column_wise", width=width)[1]
    rows = memory * 0.75e12 - (80 * 8 + 16 * 8 + 16 * 4 * width)
    assert rows == pytest.approx(40 * penalty * 32 * -(-4 * width // 32), rel=1e-9)


@pytest.mark.parametrize(
    ("optimizer", "state"),
    [
        ("sgd", 0),
        ("rowwise_adagrad", 32),
        ("adagrad", 512),
        ("partial_rowwise_adam", 544),
        ("adam", 1024),
        ("lamb", 1024),
    ],
)
def test_optimizer_state_is_read_and_written_with_each_row(optimizer: str, state: int) -> None:
    case = _case(table("a", 1000, 128, 5.0, access=COUNTED), batch_size=8, optimizer=optimizer)
    bytes_ = 80 * 160 + 16 * 512 + 2 * 40 * (512 + state)
    assert _terms(case, "table_wise")[3] == pytest.approx(bytes_ / 0.5e12, rel=1e-12)


def test_launches_are_counted_once_per_group_and_rank() -> None:
    tables = [table(name, 1000, 128, 5.0, access=COUNTED) for name in "abc"]
    apart = [replace(t, collection=t.name) for t in tables]
    here = [_placed(name, "table_wise", (0,)) for name in "abc"]
    spread = [_placed(name, "table_wise", (rank,)) for name, rank in zip("abc", (0, 0, 1), strict=True)]
    for placements, fused, ranks in ((here, (1, 0), (3, 0)), (spread, (1, 1), (2, 1))):
        together, alone = (_price(_case(*each, batch_size=8), *placements) for each in (tables, apart))
        for one, other, groups, many in zip(together.per_device, alone.per_device, fused, ranks, strict=True):
            work = other.forward_compute_s - 2 * LAUNCH * many
            assert one.forward_compute_s == pytest.approx(work + 2 * LAUNCH * groups)
            work = other.backward_compute_s - 20 * LAUNCH * many
            assert one.backward_compute_s == pytest.approx(work + 20 * LAUNCH * groups)


def test_memory_and_cache_are_summed_over_a_group_before_the_slower_one_decides() -> None:
    """One table leans on memory, the other on the cache; together they cost less than each alone added up."""
    cold = table("a", 10**7, 128, 1.0, access=AccessProfile(zipf=0.0))
    hot = table("b", 10, 128, 100.0, access=AccessProfile(zipf=0.0))
    case = _case(cold, hot, on=_cluster(l2_bandwidth=1.1e12), batch_size=1000)
    terms = dict(
        zip("ab", (_terms(_case(t, on=case.cluster, batch_size=1000), "table_wise") for t in (cold, hot)), strict=True)
    )
    assert terms["a"][1] > terms["a"][2]
    assert terms["b"][1] < terms["b"][2]
    cost = _price(case, _placed("a", "table_wise", (0,)), _placed("b", "table_wise", (0,))).per_device[0]
    both = terms["a"] + terms["b"]
    assert cost.forward_compute_s == pytest.approx(2 * LAUNCH + max(both[1], both[2]), rel=1e-12)
    assert cost.forward_compute_s < 2 * LAUNCH + terms["a"][1] + terms["b"][2]


def test_tables_without_a_profile_are_read_as_their_default_says() -> None:
    """Not all rows alike, and not one row only."""
    unknown, even, one = (
        _terms(_case(table("a", 10**6, 64, 10.0, access=access), batch_size=1000), "table_wise")
        for access in (None, AccessProfile(zipf=0.0), AccessProfile(zipf=10.0))
    )
    assert one[3] < unknown[3] < even[3]


ZIPFS = [AccessProfile(zipf=zipf) for zipf in (0.0, 0.6, 1.05, 1.6)]
FACTORS = (0.01, 0.1, 0.2, 0.5, 1.0)


@pytest.mark.parametrize("access", [None, COUNTED, *ZIPFS])
@pytest.mark.parametrize("kind", ["table_wise", "row_wise"])
@pytest.mark.parametrize("optimizer", ["sgd", "rowwise_adagrad", "adagrad"])
def test_host_memory_is_slower_and_caches_in_between_the_larger_the_faster(
    access: AccessProfile | None, kind: str, optimizer: str
) -> None:
    space = Space(kernels=KERNEL_NAMES, cache_factors=FACTORS)
    case = _case(table("a", 10**5, 64, 10.0, access=access), space=space, batch_size=1000, optimizer=optimizer)
    fused, uvm = (_terms(case, kind, kernel) for kernel in ("fused", "fused_uvm"))
    caches = [_terms(case, kind, "fused_uvm_caching", load_factor=factor) for factor in reversed(FACTORS)]
    for term in (1, 2, 3, 4):
        assert fused[term] <= caches[0][term] * (1 + 1e-9)
        assert all(large[term] <= small[term] * (1 + 1e-9) for large, small in pairwise(caches))
    seconds = [np.array([terms[1] + terms[3], terms[2] + terms[4]]) for terms in (fused, *caches, uvm)]
    assert (seconds[0] < seconds[1]).all()  # ids are sorted and looked for
    assert all((less <= more * (1 + 1e-9)).all() for less, more in pairwise(seconds))
    assert all((terms[5:] == fused[5:]).all() for terms in (*caches, uvm))


def test_a_cached_table_on_one_of_two_devices_by_hand() -> None:
    """As above without repeats, and even: of 80 rows of 512 bytes 60 % come over the link for as many that go back."""
    space = Space(kernels=KERNEL_NAMES, cache_factors=(0.4,))
    even = table("a", 10**6, 128, 5.0, access=AccessProfile(zipf=0.0))
    case = _case(even, space=space, batch_size=8, optimizer="adagrad")
    unique = 80 * (1 - 80 / 2e6)  # of 10**6 rows read evenly
    missed = unique * 0.6
    _, memory, _, back, _, *_ = _terms(case, "table_wise", "fused_uvm_caching", load_factor=0.4)
    link = 2e10 * 0.5
    read = 80 * 8 + 16 * 8 + 16 * 512 + unique * 512
    search = 80 * 116 + unique * 2 * 256  # for the rows that are missing, then for the place of each id
    forward = (read + search + 2 * missed * 512) / 0.75e12 + 2 * missed * 512 / link
    backward = (80 * 160 + 16 * 512 + 2 * unique * 512) / 0.5e12 + 2 * unique * 512 / link
    assert memory == pytest.approx(forward, rel=1e-3)
    assert back == pytest.approx(backward, rel=1e-3)


def test_kernels_of_one_type_share_their_launches() -> None:
    """TorchRec runs tables on the device, in host memory and cached in one FBGEMM module."""
    case = _case(
        table("a", 1000, 16), table("b", 1000, 16), space=Space(kernels=KERNEL_NAMES, cache_factors=(0.1, 0.2))
    )
    modes = case.problem.modes
    of_type = [np.unique(modes.group[modes.type == kind]) for kind in np.unique(modes.type)]
    assert all(len(groups) == 1 for groups in of_type)


@pytest.mark.parametrize("kernel", ["fused_uvm", "fused_uvm_caching"])
def test_host_memory_needs_the_speed_of_its_link(kernel: str) -> None:
    on = _cluster(host_link_bandwidth=None)
    with pytest.raises(UsageError, match="host_link_bandwidth"):
        _ = _case(table("a", 100, 8), on=on, space=Space(kernels=("fused", kernel))).evaluator
    assert _case(table("a", 100, 8), on=on, space=Space()).evaluator.groups > 1


def test_a_device_that_says_nothing_of_caches_and_launches_is_priced() -> None:
    bare = _case(table("a", 1000, 128, 5.0), on=cluster(ddr_bytes_per_host=2**40), batch_size=8)
    (busy, _) = _price(bare, _placed("a", "table_wise", (0,))).per_device
    assert busy.forward_compute_s > 2e-6
    assert busy.forward_comm_s > 1e-5


# --- collectives --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("local", "hosts"), [(1, 1), (4, 1), (1, 3), (4, 3)])
def test_latencies_are_those_of_collectives_in_which_more_than_one_rank_takes_part(local: int, hosts: int) -> None:
    case = _case(table("a", 1000, 128), on=_cluster(local, hosts))
    host = INTRA if local > 1 else 0.0
    across = INTER if hosts > 1 else 0.0
    world = across or host
    for kind in ("table_wise", "column_wise", "table_column_wise", "row_wise"):
        assert _shared(case, kind) == (world, world)
    assert _shared(case, "table_row_wise") == pytest.approx((host + across, host + across))
    assert _shared(case, "data_parallel", "dense") == (0, world)
    if hosts > 1:
        assert _shared(case, "grid_shard") == pytest.approx((host + across, host + across))


def test_latencies_are_paid_once_for_each_group_in_use() -> None:
    tables = [table(name, 1000, 128) for name in "ab"]
    whole, split = (_placed("b", kind, (1,)) for kind in ("table_wise", "column_wise"))
    case = _case(*tables)
    for other, groups in ((whole, 1), (split, 2)):
        cost = _price(case, _placed("a", "table_wise", (0,)), other)
        sent = _terms(case, "table_wise")[5]
        assert [d.forward_comm_s for d in cost.per_device] == pytest.approx([groups * INTRA + sent] * 2, rel=1e-12)


def _carried(local: int, hosts: int, kind: str, kernel: str = "fused", **fields) -> tuple[float, float]:
    case = _case(table("a", 1000, 128, 5.0, access=COUNTED), on=_cluster(local, hosts), batch_size=8, **fields)
    forward, backward = _terms(case, kind, kernel, 64 if kind == "grid_shard" else None)[5:].tolist()
    return forward, backward


def test_what_collectives_carry_by_hand() -> None:
    """Three hosts of four: 96 bags of 512 bytes on every rank that takes part."""
    out, intra, inter = 96 * 512, 3e11 * 0.75, 2e10 * 0.94
    all_to_all = out * max(3 / 12 / intra, 8 / 12 / inter)
    ring = out * max(11 / 12 / intra, 11 / 12 / (4 * inter))
    on_host, across = out * 3 / 4 / intra, out * 2 / 3 / inter / 4
    for kind in ("table_wise", "column_wise", "table_column_wise"):
        assert _carried(4, 3, kind) == pytest.approx((all_to_all, all_to_all), rel=1e-12)
    assert _carried(4, 3, "row_wise") == pytest.approx((ring, ring), rel=1e-12)
    assert _carried(4, 3, "table_row_wise") == pytest.approx((on_host + across, on_host + across), rel=1e-12)
    half = (on_host + across) / 2
    assert _carried(4, 3, "grid_shard") == pytest.approx((half, half), rel=1e-12)
    reduced = 2 * 1000 * 512 * max(11 / 12 / intra, 11 / 12 / (4 * inter))
    assert _carried(4, 3, "data_parallel", "dense") == pytest.approx((0, reduced), rel=1e-12)


def test_rows_of_sequences_go_back_to_who_asked_however_they_are_laid() -> None:
    """480 ids of 512 bytes; in blocks of rows each of 12 ranks has its share of them."""
    made = table("a", 1000, 128, 5.0, access=COUNTED, pooling="none")
    case = _case(made, on=_cluster(4, 3), batch_size=8)
    whole = 480 * 512 * max(3 / 12 / (3e11 * 0.75), 8 / 12 / (2e10 * 0.94))
    assert _terms(case, "table_wise")[5:] == pytest.approx([whole, whole], rel=1e-12)
    assert _terms(case, "row_wise")[5:] == pytest.approx([whole / 12, whole / 12], rel=1e-12)
    assert _terms(case, "data_parallel", "dense")[5] == 0


@pytest.mark.parametrize(
    ("comm_dtype", "share"), [(None, 1), ("fp32", 1), ("fp16", 1 / 2), ("bf16", 1 / 2), ("int8", 1 / 4)]
)
@pytest.mark.parametrize("kind", ["table_wise", "row_wise", "table_row_wise", "grid_shard"])
def test_narrow_messages_carry_fewer_bytes(kind: str, comm_dtype, share: float) -> None:
    assert _carried(4, 3, kind, comm_dtype=comm_dtype) == pytest.approx([share * s for s in _carried(4, 3, kind)])


@pytest.mark.parametrize("kind", TYPE_NAMES)
def test_one_device_sends_nothing(kind: str) -> None:
    case = _case(table("a", 1000, 128, 5.0), on=_cluster(1))
    if kind == "grid_shard":
        return
    cost = _price(case, _placed("a", kind, (0,), "dense" if kind == "data_parallel" else "fused"))
    (only,) = cost.per_device
    assert only.forward_comm_s == only.backward_comm_s == 0
    assert cost.total_s == only.forward_compute_s + only.backward_compute_s


def test_a_plan_for_one_device_has_no_gap() -> None:
    assert _case(*(table(f"t{i}", 1000, 8) for i in range(3)), on=_cluster(1)).plan().plan.gap == pytest.approx(
        0, abs=1e-8
    )


# --- laws of the head ---------------------------------------------------------------------------------------------

EVALUATOR = _case(table("a", 100, 8)).evaluator
SUMS = st.lists(
    st.tuples(st.integers(1, 5), *[st.one_of(st.just(0.0), st.floats(1e-9, 1.0))] * 6), min_size=1, max_size=4
)


@given(SUMS, SUMS)
def test_the_head_is_convex_where_a_group_has_pieces(some, others) -> None:
    count = min(len(some), len(others))
    a, b = np.array(some[:count], dtype=float), np.array(others[:count], dtype=float)
    assert (EVALUATOR.head((a + b) / 2) <= (EVALUATOR.head(a) + EVALUATOR.head(b)) / 2 * (1 + 1e-12)).all()


@given(SUMS, SUMS)
def test_the_head_never_falls_where_pieces_are_added(some, others) -> None:
    count = min(len(some), len(others))
    a, b = np.array(some[:count], dtype=float), np.array(others[:count], dtype=float)
    assert (EVALUATOR.head(a + b) >= EVALUATOR.head(a)).all()
    assert (EVALUATOR.head(a + b) <= (EVALUATOR.head(a) + EVALUATOR.head(b)) * (1 + 1e-12)).all()  # launches are shared
    assert (EVALUATOR.head(a) >= 0).all()


@given(SUMS)
def test_a_rank_without_pieces_of_a_group_pays_nothing_for_it(some) -> None:
    sums = np.array(some, dtype=float)
    assert not EVALUATOR.head(np.zeros_like(sums)).any()


@given(SUMS)
def test_loads_and_compute_are_sums_of_the_head(some) -> None:
    sums = np.array([some, some[::-1]], dtype=float)
    parts = EVALUATOR.head(sums)
    loads = np.stack([parts[..., phase].sum(axis=-1) for phase in EVALUATOR.phases])
    np.testing.assert_allclose(EVALUATOR.loads(sums), loads, rtol=1e-12)
    np.testing.assert_allclose(EVALUATOR.compute(sums), parts[..., :2].sum(axis=-1), rtol=1e-12)
    assert EVALUATOR.loads(sums).shape == (2, 2, len(some))


# --- laws of the terms --------------------------------------------------------------------------------------------


def _all_terms(case: Case):
    """Terms of all pieces; the tables of both cases of a law are the same but for what the law changes."""
    pieces = case.problem.pieces
    return case.evaluator.terms(pieces.mode, pieces.width)


def _with_tables(case: Case, change) -> Case:
    return replace(case, workload=replace(case.workload, tables=tuple(change(t) for t in case.workload.tables)))


@FEW
@given(ANALYTIC)
def test_terms_are_finite_and_count_one_piece(case: Case) -> None:
    terms = _all_terms(case)
    assert np.isfinite(terms).all()
    assert (terms >= 0).all()
    assert (terms[:, 0] == 1).all()


@FEW
@given(ANALYTIC, st.sampled_from([1.01, 2.0, 50.0]))
def test_more_ids_are_never_cheaper(case: Case, factor: float) -> None:
    more = _with_tables(
        case,
        lambda t: replace(t, features=tuple(replace(f, pooling_factor=f.pooling_factor * factor) for f in t.features)),
    )
    assert (_all_terms(more) >= _all_terms(case) * (1 - 1e-12)).all()


@FEW
@given(ANALYTIC, st.sampled_from([2, 3, 100]))
def test_larger_batches_are_never_cheaper(case: Case, factor: int) -> None:
    more = replace(case, workload=case.workload.with_batch_size(factor * case.workload.batch_size))
    assert (_all_terms(more) >= _all_terms(case) * (1 - 1e-12)).all()


@FEW
@given(ANALYTIC, st.tuples(*[st.sampled_from([0.0, 0.3, 0.8, 1.0, 1.05, 1.5, 3.0])] * 2))
def test_more_reuse_is_never_dearer(case: Case, exponents: tuple[float, float]) -> None:
    flat, steep = (
        _all_terms(_with_tables(case, lambda t, z=zipf: replace(t, access=AccessProfile(zipf=z))))
        for zipf in sorted(exponents)
    )
    assert (steep <= flat * (1 + 1e-9)).all()


@FEW
@given(ANALYTIC, st.tuples(*[st.sampled_from([1, 100, 1000, 5000, 20_000, 100_000, 10**6, 10**8])] * 2))
def test_larger_caches_are_never_dearer(case: Case, sizes: tuple[int, int]) -> None:
    small, large = (
        _all_terms(replace(case, cluster=replace(case.cluster, device=replace(case.cluster.device, l2_bytes=size))))
        for size in sorted(sizes)
    )
    assert (large <= small * (1 + 1e-9)).all()


@pytest.mark.parametrize("zipf", [0.0, 0.8, 1.05])
def test_a_growing_cache_never_misses_more(zipf: float) -> None:
    """Also where it comes to hold rows that are read but once."""
    sizes = [0.5, 1, 2, 4, 6, 8, 10, 12, 15, 20, 30, 50, 100]
    forward = [
        _terms(
            _case(
                table("a", 100_000, 128, 10.0, access=AccessProfile(zipf=zipf)),
                on=_cluster(1, l2_bytes=int(size * 1e6)),
                batch_size=4096,
            ),
            "table_wise",
        )[1]
        for size in sizes
    ]
    assert forward == sorted(forward, reverse=True)
    assert forward[0] > forward[-1]


@FEW
@given(ANALYTIC)
def test_faster_devices_are_never_slower(case: Case) -> None:
    device, links = case.cluster.device, case.cluster.links
    faster = replace(
        case.cluster,
        device=replace(device, hbm_bandwidth=2 * device.hbm_bandwidth),
        links=replace(links, intra_host_bandwidth=2 * links.intra_host_bandwidth),
    )
    assert (_all_terms(replace(case, cluster=faster)) <= _all_terms(case)).all()


# --- with plans ---------------------------------------------------------------------------------------------------


def _planned(pick) -> tuple[Case, tuple[Placement, ...]]:
    case = medium_case(pick, LOOSE, models=("analytic",))
    return case, random_placements(pick, case)


@FEW
@given(drawn(_planned))
def test_memory_is_the_same_under_every_cost_model(planned) -> None:
    case, placements = planned
    others = [replace(case, cost_model=model) for model in ("analytic", "torchrec")]
    one, other = (_price(each, *placements) for each in others)
    assert [(d.hbm_bytes, d.hbm_capacity_bytes) for d in one.per_device] == [
        (d.hbm_bytes, d.hbm_capacity_bytes) for d in other.per_device
    ]


@FEW
@given(drawn(_planned))
def test_the_step_ends_after_the_slowest_of_each_phase(planned) -> None:
    case, placements = planned
    cost = _price(case, *placements)
    ready = max(d.forward_compute_s + d.backward_compute_s + d.backward_comm_s for d in cost.per_device)
    assert cost.total_s == pytest.approx(ready + max(d.forward_comm_s for d in cost.per_device), rel=1e-12)
    assert cost.total_s >= max(d.busy_s for d in cost.per_device) * (1 - 1e-12)
