"""One rule of what kernels take, for searches and for placements that are read."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from support.cases import cluster, table, workload

from recsmith import plan, price, replan, simulate
from recsmith.clusters import Cluster, Disk, load_cluster
from recsmith.errors import PlanMismatch, UsageError
from recsmith.plans import Cache, Placement, check_placements
from recsmith.problems import Constraints, Space, TableRule, build_problem, footprint_of
from recsmith.problems.footprint import problem_holding
from recsmith.sharding import CACHED_KERNELS, HOST_KERNELS, KERNEL_NAMES, KEY_VALUE, SHARDING_TYPES
from recsmith.sharding.kernel_limits import KernelLimits, varying_collections
from recsmith.sharding.on_disk import ON_DISK
from recsmith.workloads import Feature, Table
from recsmith.workloads.data_types import DATA_TYPES
from recsmith.workloads.optimizers import OPTIMIZERS

CUDA = cluster(2, 2, ddr_bytes_per_host=2**40, ssd_bytes_per_host=2**40, disk=Disk(bandwidth=1e9, reads_per_s=1e5))
CPU = replace(load_cluster("cpu:2x2"), ssd_bytes_per_host=2**40, disk=Disk(bandwidth=1e9, reads_per_s=1e5))


def own_batch(name: str, **fields: Any) -> Table:
    """A table whose feature has three samples, in place of the job's eight."""
    feature = Feature(name=name, pooling_factor=2.0, batch_size=3)
    return Table(name=name, num_embeddings=64, embedding_dim=16, features=(feature,), **fields)


@pytest.mark.parametrize("where", [CUDA, CPU], ids=["cuda", "cpu"])
def test_searches_and_readers_keep_one_rule(where: Cluster) -> None:
    """Every kernel, data type, optimizer, pooling and batch size: what is searched is what a plan file may hold."""
    asked = refused = 0
    for data_type, optimizer, pooling, varying in product(DATA_TYPES, OPTIMIZERS, ("sum", "none"), (False, True)):
        made = own_batch("a") if varying else table("a", 64, 16)
        t = replace(made, data_type=data_type, pooling=pooling)  # type: ignore[arg-type]
        work = workload(t, optimizer=optimizer)
        limits = KernelLimits.of(work, where)
        for kernel in KERNEL_NAMES:
            if kernel == KEY_VALUE.name and optimizer not in ON_DISK[where.device.kind].optimizers:
                continue
            if kernel in HOST_KERNELS and where is CPU:
                continue  # it has no other memory beneath its own
            space = Space(kernels=(kernel,), cache_factors=(0.2, 0.9))
            try:
                problem = build_problem(work, where, space, needless=True)
            except UsageError as error:
                problem, said = None, str(error)
            for kind, factor in product(SHARDING_TYPES, (0.2, 0.9)):
                if kernel not in kind.kernels or kind.refusal(t, where):
                    continue
                cache = Cache(load_factor=factor) if kernel in CACHED_KERNELS else None
                widths = (8, 8) if kind.splits_columns else ()
                targets = (0, 1) if kind.splits_columns else (0,)
                placed = Placement(
                    table="a", sharding_type=kind.name, compute_kernel=kernel, ranks=kind.ranks(targets, where),
                    widths=widths, cache=cache,
                )  # fmt: skip
                refusal = limits.refusal(t, kind.name, kernel, factor if cache else 0.0)
                found = None if problem is None else problem.find_mode(0, kind.name, kernel, factor if cache else None)
                assert (found is None) == (refusal is not None), (data_type, optimizer, kernel, kind.name, refusal)
                if refusal is None:
                    check_placements((placed,), work, where)
                else:
                    refused += 1
                    with pytest.raises(PlanMismatch) as raised:
                        check_placements((placed,), work, where)
                    assert refusal in str(raised.value)
                    if problem is None:
                        assert "has no legal placement" in said
                asked += 1
    assert asked > 500
    assert refused > 300


def test_a_collection_with_one_varying_feature_varies_as_a_whole() -> None:
    tables = (
        own_batch("a", collection="x"), table("b", 64, 16, collection="x"), table("c", 64, 16, collection="y"),
        replace(own_batch("d", collection="z"), features=(Feature(name="d", pooling_factor=1, batch_size=8),)),
    )  # fmt: skip
    work = workload(*tables)
    assert varying_collections(work) == {"x"}
    problem = build_problem(work, CUDA, Space(types=("table_wise", "grid_shard")))
    grid = problem.modes.type == [kind.name for kind in SHARDING_TYPES].index("grid_shard")
    assert {problem.tables[t].name for t in problem.modes.table[grid].tolist()} == {"c", "d"}


@pytest.mark.parametrize(
    ("change", "optimizer", "where", "said"),
    [
        ({"data_type": "int8"}, "sgd", "h100:2", "FBGEMM trains tables in fp32 or fp16, not int8; take one of them"),
        ({"data_type": "bf16"}, "sgd", "cpu:2", "FBGEMM trains tables in fp32 or fp16, not bf16; take one of them"),
        ({"data_type": "fp16"}, "adam", "h100:2", "fused adam on cuda trains tables in fp32, not fp16"),
        ({}, "lamb", "cpu:2", "fused kernels on cpu train with sgd, adagrad, rowwise_adagrad, not lamb"),
    ],
)
def test_plan_simulate_and_price_refuse_with_the_same_words(
    change: dict[str, Any], optimizer: Any, where: str, said: str
) -> None:
    fine = workload(table("a", 64, 16), optimizer="sgd")
    odd = workload(table("a", 64, 16, **change), optimizer=optimizer)
    made = plan(fine, where, space=Space(types=("table_wise",)), iterations=1).plan
    with pytest.raises(UsageError, match=said):
        plan(odd, where, space=Space(types=("table_wise",)))
    with pytest.raises(PlanMismatch, match=said):
        price(odd, where, made.placements)
    with pytest.raises(UsageError, match=said):
        simulate(replace(made, workload=odd, digest=""))


def test_grid_shard_is_left_out_where_batch_sizes_differ() -> None:
    """meta-pytorch/torchrec#4456: the first step of such a job ends in an IndexError in TorchRec 1.8."""
    work = workload(own_batch("a"), table("b", 64, 16))
    with pytest.raises(UsageError, match="grid_shard does not run features with a batch_size of their own"):
        build_problem(work, CUDA, Space(types=("grid_shard",)))
    kinds = {SHARDING_TYPES[kind].name for kind in build_problem(work, CUDA).modes.type.tolist()}
    assert kinds == {kind.name for kind in SHARDING_TYPES} - {"grid_shard"}


def test_means_are_split_by_rows_where_all_tables_of_their_collection_are() -> None:
    """As `tests/jobs/test_exactness.py` trains them; one beside them that is not would be divided, too."""
    work = workload(table("a", 64, 16, pooling="mean"), table("b", 64, 16), table("c", 64, 16, collection="other"))
    rules = tuple(TableRule(tables=name, sharding_types=("row_wise", "table_row_wise")) for name in "ab")
    found = plan(work, CPU, constraints=Constraints(rules=rules)).plan
    assert {each.sharding_type for each in found.placements if each.table in "ab"} <= {"row_wise", "table_row_wise"}
    by_hand = [
        Placement(table=name, sharding_type="row_wise", compute_kernel="fused", ranks=tuple(range(CPU.world_size)))
        for name in "abc"
    ]
    check_placements(by_hand, work, CPU)
    problem = problem_holding(build_problem(work, CPU), by_hand)
    assert len(footprint_of(problem, tuple(by_hand)).mode) == 3
    given = simulate(price(work, CPU, by_hand))
    assert given.gap is not None
    assert given.gap >= 0
    assert replan(given, max_moved="1GiB").result.plan.placements
    beside = replace(by_hand[1], sharding_type="table_wise", ranks=(0,))
    with pytest.raises(PlanMismatch, match="split all tables of the collection by rows, or give"):
        check_placements([by_hand[0], beside, by_hand[2]], work, CPU)
    first, second, third = work.tables
    twice = replace(work, tables=(first, replace(second, features=first.features), third))
    with pytest.raises(PlanMismatch, match="its numbers of ids"):
        check_placements(by_hand, twice, CPU)
