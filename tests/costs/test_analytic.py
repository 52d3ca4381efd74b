"""Cost model `analytic`: one example by hand, and laws that hold whatever its constants are."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.analytic import (
    ANALYTIC,
    COUNTED,
    FEW,
    INTRA,
    LAUNCH,
    case_of,
    cluster_of,
    placed,
    priced,
    terms_of,
)
from support.cases import LOOSE, Case, drawn, medium_case, random_placements, table

from recsmith.plans import Placement
from recsmith.workloads import AccessProfile


def test_a_table_on_one_of_two_devices_by_hand() -> None:
    """80 ids in 16 bags of 128 columns; 40 different rows of 512 bytes, which the cache holds; memory decides."""
    case = case_of(table("a", 1000, 128, 5.0, access=COUNTED), batch_size=8)
    cost = priced(case, placed("a", "table_wise", (0,)))
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
    case = case_of(table("a", 1000, 128, 5.0, access=COUNTED), on=cluster_of(l2_bandwidth=1e11), batch_size=8)
    (busy, _) = priced(case, placed("a", "table_wise", (0,))).per_device
    forward, backward = 80 * 8 + 16 * 8 + 16 * 512 + 80 * 512, 80 * 160 + 80 * 512 + 2 * 40 * (512 + 32)
    assert busy.forward_compute_s == pytest.approx(2 * LAUNCH + forward / 1e11, rel=1e-12)
    assert busy.backward_compute_s == pytest.approx(20 * LAUNCH + backward / 1e11, rel=1e-12)


def test_the_same_table_on_every_device() -> None:
    """40 ids in 8 bags on each; half as many lookups leave 30 of the rows; the gradient of the table is reduced."""
    case = case_of(table("a", 1000, 128, 5.0, access=COUNTED), batch_size=8)
    left, right = priced(case, placed("a", "data_parallel", (0, 1), "dense")).per_device
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
    case = case_of(table("a", 1000, 128, 5.0, access=COUNTED), batch_size=8)
    left, right = priced(case, placed("a", "row_wise", (0, 1))).per_device
    forward = (40 * 8 + 16 * 8 + 16 * 512 + 20 * 512) / 0.75e12
    backward = (40 * 160 + 16 * 512 + 2 * 20 * (512 + 32)) / 0.5e12
    assert left.forward_compute_s == pytest.approx(2 * LAUNCH + forward, rel=1e-12)
    assert left.backward_compute_s == pytest.approx(20 * LAUNCH + backward, rel=1e-12)
    ring = 16 * 512 * (1 / 2) / (3e11 * 0.75)
    assert left.forward_comm_s == left.backward_comm_s == pytest.approx(INTRA + ring, rel=1e-12)
    assert replace(left, rank=1) == right


EVALUATOR = case_of(table("a", 100, 8)).evaluator
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
    loads = np.stack([parts[..., phase].sum(axis=-1) for phase in EVALUATOR.step_rule.phases])
    np.testing.assert_allclose(EVALUATOR.loads(sums), loads, rtol=1e-12)
    np.testing.assert_allclose(EVALUATOR.compute(sums), parts[..., :2].sum(axis=-1), rtol=1e-12)
    assert EVALUATOR.loads(sums).shape == (2, 2, len(some))


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
    # a batch of a feature's own that is no longer the job's leaves other kernels
    case = _with_tables(case, lambda t: replace(t, features=tuple(replace(f, batch_size=None) for f in t.features)))
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
        terms_of(
            case_of(
                table("a", 100_000, 128, 10.0, access=AccessProfile(zipf=zipf)),
                on=cluster_of(1, l2_bytes=int(size * 1e6)),
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


def _planned(pick) -> tuple[Case, tuple[Placement, ...]]:
    case = medium_case(pick, LOOSE, models=("analytic",))
    return case, random_placements(pick, case)


@FEW
@given(drawn(_planned))
def test_memory_is_the_same_under_every_cost_model(planned) -> None:
    case, placements = planned
    others = [replace(case, cost_model=model) for model in ("analytic", "torchrec")]
    one, other = (priced(each, *placements) for each in others)
    assert [(d.hbm_bytes, d.hbm_capacity_bytes) for d in one.per_device] == [
        (d.hbm_bytes, d.hbm_capacity_bytes) for d in other.per_device
    ]


@FEW
@given(drawn(_planned))
def test_the_step_ends_after_the_slowest_of_each_phase(planned) -> None:
    case, placements = planned
    cost = priced(case, *placements)
    ready = max(d.forward_compute_s + d.backward_compute_s + d.backward_comm_s for d in cost.per_device)
    assert cost.total_s == pytest.approx(ready + max(d.forward_comm_s for d in cost.per_device), rel=1e-12)
    assert cost.total_s >= max(d.busy_s for d in cost.per_device) * (1 - 1e-12)
