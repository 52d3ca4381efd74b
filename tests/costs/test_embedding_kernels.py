"""Embedding kernels: penalties, optimizer state, host memory and its caches by hand."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from support.analytic import (
    COUNTED,
    LAUNCH,
    case_of,
    cluster_of,
    placed,
    priced,
    terms_of,
)
from support.cases import OFF_DISK, cluster, table

from recsmith.errors import UsageError
from recsmith.problems import Space
from recsmith.workloads import AccessProfile


@pytest.mark.parametrize(
    ("width", "penalty"), [(4, 1.55), (8, 1.55), (32, 1.55), (36, 1.1), (64, 1.1), (68, 1.0), (128, 1.0)]
)
def test_narrow_rows_pay_a_penalty_on_whole_sectors(width: int, penalty: float) -> None:
    memory = terms_of(case_of(table("a", 1000, 128, 5.0, access=COUNTED), batch_size=8), "column_wise", width=width)[1]
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
    case = case_of(table("a", 1000, 128, 5.0, access=COUNTED), batch_size=8, optimizer=optimizer)
    bytes_ = 80 * 160 + 16 * 512 + 2 * 40 * (512 + state)
    assert terms_of(case, "table_wise")[3] == pytest.approx(bytes_ / 0.5e12, rel=1e-12)


def test_launches_are_counted_once_per_group_and_rank() -> None:
    tables = [table(name, 1000, 128, 5.0, access=COUNTED) for name in "abc"]
    apart = [replace(t, collection=t.name) for t in tables]
    here = [placed(name, "table_wise", (0,)) for name in "abc"]
    spread = [placed(name, "table_wise", (rank,)) for name, rank in zip("abc", (0, 0, 1), strict=True)]
    for placements, fused, ranks in ((here, (1, 0), (3, 0)), (spread, (1, 1), (2, 1))):
        together, alone = (priced(case_of(*each, batch_size=8), *placements) for each in (tables, apart))
        for one, other, groups, many in zip(together.per_device, alone.per_device, fused, ranks, strict=True):
            work = other.forward_compute_s - 2 * LAUNCH * many
            assert one.forward_compute_s == pytest.approx(work + 2 * LAUNCH * groups)
            work = other.backward_compute_s - 20 * LAUNCH * many
            assert one.backward_compute_s == pytest.approx(work + 20 * LAUNCH * groups)


def test_memory_and_cache_are_summed_over_a_group_before_the_slower_one_decides() -> None:
    """One table leans on memory, the other on the cache; together they cost less than each alone added up."""
    cold = table("a", 10**7, 128, 1.0, access=AccessProfile(zipf=0.0))
    hot = table("b", 10, 128, 100.0, access=AccessProfile(zipf=0.0))
    case = case_of(cold, hot, on=cluster_of(l2_bandwidth=1.1e12), batch_size=1000)
    alone = (case_of(each, on=case.cluster, batch_size=1000) for each in (cold, hot))
    terms = dict(zip("ab", (terms_of(each, "table_wise") for each in alone), strict=True))
    assert terms["a"][1] > terms["a"][2]
    assert terms["b"][1] < terms["b"][2]
    cost = priced(case, placed("a", "table_wise", (0,)), placed("b", "table_wise", (0,))).per_device[0]
    both = terms["a"] + terms["b"]
    assert cost.forward_compute_s == pytest.approx(2 * LAUNCH + max(both[1], both[2]), rel=1e-12)
    assert cost.forward_compute_s < 2 * LAUNCH + terms["a"][1] + terms["b"][2]


def test_tables_without_a_profile_are_read_as_their_default_says() -> None:
    """Not all rows alike, and not one row only."""
    unknown, even, one = (
        terms_of(case_of(table("a", 10**6, 64, 10.0, access=access), batch_size=1000), "table_wise")
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
    space = Space(kernels=OFF_DISK, cache_factors=FACTORS)
    case = case_of(table("a", 10**5, 64, 10.0, access=access), space=space, batch_size=1000, optimizer=optimizer)
    fused, uvm = (terms_of(case, kind, kernel) for kernel in ("fused", "fused_uvm"))
    caches = [terms_of(case, kind, "fused_uvm_caching", load_factor=factor) for factor in reversed(FACTORS)]
    for term in (1, 2, 3, 4):
        assert fused[term] <= caches[0][term] * (1 + 1e-9)
        assert all(large[term] <= small[term] * (1 + 1e-9) for large, small in pairwise(caches))
    seconds = [np.array([terms[1] + terms[3], terms[2] + terms[4]]) for terms in (fused, *caches, uvm)]
    assert (seconds[0] < seconds[1]).all()  # ids are sorted and looked for
    assert all((less <= more * (1 + 1e-9)).all() for less, more in pairwise(seconds[:-1]))
    assert (seconds[0] < seconds[-1]).all()
    if access in ZIPFS[1:3]:  # of even reads a small cache holds little, and of very uneven ones a few rows serve most
        assert all((cached < seconds[-1]).all() for cached in seconds[1:-1])
    assert all((terms[5:] == fused[5:]).all() for terms in (*caches, uvm))


def test_a_cached_table_on_one_of_two_devices_by_hand() -> None:
    """As above without repeats, and even: of 80 rows of 512 bytes 60 % come over the link for as many that go back."""
    space = Space(kernels=OFF_DISK, cache_factors=(0.4,))
    even = table("a", 10**6, 128, 5.0, access=AccessProfile(zipf=0.0))
    case = case_of(even, space=space, batch_size=8, optimizer="adagrad")
    unique = 80 * (1 - 80 / 2e6)  # of 10**6 rows read evenly
    missed = unique * 0.6
    _, memory, _, back, _, *_ = terms_of(case, "table_wise", "fused_uvm_caching", load_factor=0.4)
    link = 2e10 * 0.68  # each way at once
    read = 80 * 8 + 16 * 8 + 16 * 512 + unique * 512
    search = 80 * 116 + unique * 2 * 256  # for the rows that are missing, then for the place of each id
    forward = (read + search + 2 * missed * 512) / 0.75e12 + missed * 512 / link + 80 * 1.1e-9
    backward = (80 * 160 + 16 * 512 + 2 * unique * 512) / 0.5e12 + unique * 512 / link
    assert memory == pytest.approx(forward, rel=1e-3)
    assert back == pytest.approx(backward, rel=1e-3)


def test_kernels_of_one_type_share_their_launches() -> None:
    """TorchRec runs tables on the device, in host memory and cached in one FBGEMM module."""
    case = case_of(table("a", 1000, 16), table("b", 1000, 16), space=Space(kernels=OFF_DISK, cache_factors=(0.1, 0.2)))
    modes = case.problem.modes
    of_type = [np.unique(modes.group[modes.type == kind]) for kind in np.unique(modes.type)]
    assert all(len(groups) == 1 for groups in of_type)


@pytest.mark.parametrize("kernel", ["fused_uvm", "fused_uvm_caching"])
def test_host_memory_needs_the_speed_of_its_link(kernel: str) -> None:
    on = cluster_of(host_link_bandwidth=None)
    with pytest.raises(UsageError, match="host_link_bandwidth"):
        _ = case_of(table("a", 100, 8), on=on, space=Space(kernels=("fused", kernel))).evaluator
    assert case_of(table("a", 100, 8), on=on, space=Space()).evaluator.groups > 1


def test_a_device_that_says_nothing_of_caches_and_launches_is_priced() -> None:
    bare = case_of(table("a", 1000, 128, 5.0), on=cluster(ddr_bytes_per_host=2**40), batch_size=8)
    (busy, _) = priced(bare, placed("a", "table_wise", (0,))).per_device
    assert busy.forward_compute_s > 2e-6
    assert busy.forward_comm_s > 1e-5
