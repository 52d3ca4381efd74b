"""Tables on disk: who may stand there, what is refused by name, and how long a disk takes for a row."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.cases import cluster, table, workload
from support.systems import needs_systems

from recsmith.clusters import Cluster, Disk, load_cluster
from recsmith.errors import PlanMismatch, UsageError
from recsmith.plans import Cache, Placement, check_placements
from recsmith.plans.plan import CachePolicy
from recsmith.problems import Constraints, Space, build_problem
from recsmith.sharding import KERNEL_NAMES
from recsmith.sharding.memory import LOG_PART, Pieces, real_bytes
from recsmith.sharding.on_disk import disk_seconds, stays_in_memory
from recsmith.workloads import AccessProfile

SPACE = Space(kernels=("fused", "dense", "key_value"))
DISK = Disk(bandwidth=1e9, reads_per_s=1e5)


def with_disk(**fields: Any) -> Cluster:
    return cluster(**{"ssd_bytes_per_host": 2**40, "disk": DISK, **fields})


@pytest.mark.parametrize(
    ("made", "change", "said"),
    [
        (cluster(), {}, "keeps tables on disk; give the cluster ssd_bytes_per_host"),
        (with_disk(), {"optimizer": "sgd"}, "on cuda runs rowwise_adagrad, partial_rowwise_adam, adam, not sgd"),
        (with_disk(), {"memory": "torchrec"}, "with memory: torchrec, which counts no cache"),
        (with_disk(ddr_bytes_per_host=1), {"kernels": KERNEL_NAMES}, "a plan has one memory beneath its devices'"),
    ],
)
def test_what_nothing_runs_is_refused(made: Cluster, change: dict[str, str], said: str) -> None:
    tables = workload(table("a", 100, 8), optimizer=change.get("optimizer", "rowwise_adagrad"))
    with pytest.raises(UsageError, match=said):
        build_problem(
            tables, made, Space(kernels=change.get("kernels", SPACE.kernels)),  # type: ignore[arg-type]
            Constraints(memory=change.get("memory", "real")),  # type: ignore[arg-type]
        )  # fmt: skip


def test_tables_that_no_kernel_keeps_on_disk_stay_in_memory() -> None:
    tables = table("a", 100, 8), table("b", 100, 8, data_type="fp16"), table("c", 100, 8, pooling="none")
    on_cpu = replace(load_cluster("cpu:2"), ssd_bytes_per_host=2**40, disk=DISK)
    for where, kept in ((with_disk(), {"a", "b", "c"}), (on_cpu, {"a"})):
        problem = build_problem(workload(*tables), where, SPACE, needless=True)
        stored = problem.modes.table[problem.modes.kernel == KERNEL_NAMES.index("key_value")]
        assert {problem.tables[t].name for t in stored.tolist()} == kept
        assert (problem.host_capacity == 2**40).all()
    assert stays_in_memory(replace(tables[0], data_type="int8"), "cuda")


def test_a_disk_is_held_up_by_reads_or_by_bytes() -> None:
    row = np.array([512.0, 4096.0, 5000.0])
    assert disk_seconds(DISK, row, ranks=4) == pytest.approx([4e-5, 4e-5, 8e-5])  # accesses at 1e5 a second
    quick = replace(DISK, reads_per_s=1e7)
    assert disk_seconds(quick, row, ranks=1) == pytest.approx([4.096e-6, 4.096e-6, 8.192e-6])  # bytes at 1 GB/s


@pytest.mark.parametrize(
    ("field", "value"), [("bandwidth", 0.0), ("reads_per_s", 0.5), ("reads_per_s", float("nan")), ("access_bytes", 0)]
)
def test_wrong_figures_of_a_disk_are_named(field: str, value: float) -> None:
    with pytest.raises(UsageError, match=f"{field} of the disk is"):
        replace(DISK, **{field: value})


def test_a_cache_on_cpu_has_room_for_two_batches() -> None:
    """RecSmith's own cache ends a job whose batches do not fit, so no plan has one; a plan that does is priced."""
    even = table("a", 1000, 16, 4.0, access=AccessProfile(zipf=0.0))
    on_cpu = replace(load_cluster("cpu:1"), ssd_bytes_per_host=2**40, disk=DISK)
    space = replace(SPACE, cache_factors=(0.02, 0.05, 0.1, 0.5))  # 8 samples of 4 ids: 31.5 different rows
    found = [build_problem(workload(even), on_cpu, space, needless=priced).modes for priced in (False, True)]
    assert set(found[0].load_factor.tolist()) == {0.0, 0.1, 0.5}
    assert set(found[1].load_factor.tolist()) == {0.0, *space.cache_factors}
    small = replace(space, kernels=("key_value",), cache_factors=(0.02, 0.05))
    with pytest.raises(UsageError, match=r"no cache factor of \(0.02, 0.05\) has room for the rows of two batches"):
        build_problem(workload(even), on_cpu, small)


def test_only_caches_of_tables_on_disk_on_cpu_keep_the_rows_that_are_read_most() -> None:
    static, tables = replace(SPACE, cache_policy="static"), workload(table("a", 1000, 8), optimizer="rowwise_adagrad")
    with pytest.raises(
        UsageError, match=r"cache policy static is for tables on disk .* on cpu, not for key_value on cu"
    ):
        build_problem(tables, with_disk(), static)
    on_cpu = replace(load_cluster("cpu:1"), ssd_bytes_per_host=2**40, disk=DISK)
    modes = build_problem(tables, on_cpu, static).modes
    assert modes.static.tolist() == (modes.kernel == KERNEL_NAMES.index("key_value")).tolist()
    assert Space(cache_policy="static").cache_policy == "lru"  # without tables on disk there is none
    policies: tuple[tuple[str, CachePolicy], ...] = (("a", "lru"), ("b", "static"))
    placed = [
        Placement(table=name, sharding_type="table_wise", ranks=(0,), compute_kernel="key_value",
                  cache=Cache(load_factor=0.5, policy=policy))
        for name, policy in policies
    ]  # fmt: skip
    both = workload(table("a", 1000, 8), table("b", 1000, 8), optimizer="rowwise_adagrad")
    with pytest.raises(PlanMismatch, match="table 'a' has policy lru, and that of 'b' static; give all tables on disk"):
        check_placements(placed, both, on_cpu)
    with pytest.raises(PlanMismatch, match="table 'b': cache policy static is for tables on disk"):
        check_placements(placed[1:], workload(table("b", 1000, 8)), with_disk())


@needs_systems("tiers")
@pytest.mark.parametrize("profile", [0, 5])
@pytest.mark.parametrize(("rows", "factor"), [(1000, 0.1), (101, 0.5), (7, 0.01)])
def test_a_cache_on_cpu_weighs_what_it_allocates(rows: int, factor: float, profile: int) -> None:
    from recsmith.training.systems.tiers.cache import RowCache

    sizes = {"rows": rows, "width": 8, "table_rows": rows, "table_dim": 8, "element_bytes": 4, "ids": 0.0, "bags": 0.0,
             "outputs": 0.0, "weighted": False, "int8": False, "data_parallel": False, "cache_load_factor": factor,
             "kernel": KERNEL_NAMES.index("key_value"), "counted": profile > 0}  # fmt: skip
    pieces = Pieces(**{name: np.array([value]) for name, value in sizes.items()}, on_cpu=True)  # type: ignore[arg-type]
    slots = max(1, round(rows * factor))
    cache = RowCache("a", rows, slots, profile)
    arrays = (cache.slot_of, cache.row_of, cache.used, cache.changed, cache.free, cache.reads)
    told = sum(array.nbytes for array in arrays) + 4 * rows  # places in the log of the file
    bytes_ = real_bytes(pieces, "rowwise_adagrad", "none")
    assert bytes_.device.tolist() == [told + slots * (8 * 4 + 4)]  # rows with their state
    assert bytes_.host.tolist() == [(rows + max(1, rows // LOG_PART)) * (8 * 4 + 4)]
