"""Laws of the two memory accountings: what a shard weighs on its device and on its host."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import OFF_DISK

from recsmith import Constraints, Feature, Placement, Space, Table, Workload, load_cluster
from recsmith.problems import build_problem, footprint_of, memory_used
from recsmith.sharding import KERNEL_NAMES, SHARDING_TYPES, ShardingType
from recsmith.sharding.memory import ACCOUNTINGS, CACHE_LOAD_FACTOR, Bytes, Pieces

# fp32 values of optimizer state that FBGEMM keeps: (per weight, per row of a shard)
STATE = {
    "sgd": (0, 0),
    "adagrad": (1, 0),
    "rowwise_adagrad": (0, 1),
    "partial_rowwise_adam": (1, 1),
    "adam": (2, 0),
    "lamb": (2, 0),
}
PIPELINES = ("none", "sparse_dist", "prefetch_sparse_dist")
UVM = ("fused_uvm", "fused_uvm_caching")

every_accounting = pytest.mark.parametrize("accounting", sorted(ACCOUNTINGS))
every_optimizer = pytest.mark.parametrize("optimizer", sorted(STATE))
every_kernel = pytest.mark.parametrize("kernel", OFF_DISK)
row_counts = st.integers(1, 10**8)
dims = st.integers(1, 512).map(lambda steps: 4 * steps)
element_sizes = st.sampled_from([1, 2, 4])


def weigh(
    accounting: str = "real", optimizer: str = "sgd", pipeline: str = "none", kernel: str = "fused", **fields: Any
) -> tuple[int, int]:
    """(device, host) bytes of one shard, of the whole table and without lookups unless the fields say otherwise."""
    return weigh_pieces(accounting, {}, optimizer, pipeline, kernel, **fields)


def weigh_pieces(
    accounting: str,
    extra: dict[str, Any],
    optimizer: str = "sgd",
    pipeline: str = "none",
    kernel: str = "fused",
    **fields: Any,
) -> tuple[int, int]:
    """The same, with fields of `Pieces` that are not numbers."""
    shard: dict[str, Any] = {
        "rows": 100, "width": 16, "element_bytes": 4, "ids": 0.0, "bags": 0.0, "outputs": 0.0,
        "weighted": False, "int8": False, "data_parallel": False, "cache_load_factor": CACHE_LOAD_FACTOR,
        **fields, "kernel": KERNEL_NAMES.index(kernel),
    }  # fmt: skip
    shard = {"table_rows": shard["rows"], "table_dim": shard["width"], **shard}
    pieces = Pieces(**{name: np.array([value]) for name, value in shard.items()}, **extra)
    made: Bytes = ACCOUNTINGS[accounting](pieces, optimizer, pipeline)
    return int(made.device[0]), int(made.host[0])


# --- both ---------------------------------------------------------------------------------------------------------


@every_accounting
@every_kernel
@given(data=st.data())
def test_bytes_never_shrink_with_rows_width_ids_or_bags(accounting: str, kernel: str, data: st.DataObject) -> None:
    optimizer, pipeline = data.draw(st.sampled_from(sorted(STATE))), data.draw(st.sampled_from(PIPELINES))
    element = data.draw(element_sizes)
    table: dict[str, Any] = {"table_rows": 2 * 10**8, "table_dim": 4096, "element_bytes": element, "int8": element == 1}
    table |= {"weighted": data.draw(st.booleans())}
    amounts = st.floats(0, 1e7)
    small: dict[str, Any] = {
        "rows": data.draw(row_counts), "width": data.draw(dims),
        "ids": data.draw(amounts), "bags": data.draw(amounts), "outputs": data.draw(amounts),
    }  # fmt: skip
    grown = data.draw(st.sampled_from(sorted(small)))
    more = row_counts if grown == "rows" else dims if grown == "width" else amounts
    large = small | {grown: small[grown] + data.draw(more)}
    device, host = weigh(accounting, optimizer, pipeline, kernel, **table, **small)
    larger_device, larger_host = weigh(accounting, optimizer, pipeline, kernel, **table, **large)
    assert larger_device >= device
    assert larger_host >= host


@every_accounting
@every_optimizer
@pytest.mark.parametrize("kernel", UVM)
@given(rows=row_counts, width=dims, element=element_sizes)
def test_uvm_weights_and_state_live_on_the_host_but_for_the_state_of_rows(
    accounting: str, optimizer: str, kernel: str, rows: int, width: int, element: int
) -> None:
    shape: dict[str, Any] = {"rows": rows, "width": width, "element_bytes": element}
    whole, nothing = weigh(accounting, optimizer, **shape)
    device, host = weigh(accounting, optimizer, kernel=kernel, **shape)
    of_rows = 4 * rows * STATE[optimizer][1] if accounting == "real" else 0  # FBGEMM keeps it on the device
    assert nothing == 0
    assert host == whole - of_rows >= rows * width * element
    assert (device > of_rows) == (kernel == "fused_uvm_caching")


@every_accounting
@every_optimizer
@pytest.mark.parametrize("factor", [0.05, 0.2, 0.5, 1.0])
def test_a_cache_holds_its_share_of_the_rows_and_its_bookkeeping(
    accounting: str, optimizer: str, factor: float
) -> None:
    rows = 3_200_000  # each share of them is a number of whole sets
    shape: dict[str, Any] = {"rows": rows, "width": 128, "table_dim": 128}
    device, _ = weigh(accounting, optimizer, kernel="fused_uvm_caching", cache_load_factor=factor, **shape)
    cached = round(rows * factor)
    weights, bookkeeping = cached * 128 * 4, cached * 16 + rows * 4
    if accounting == "torchrec":
        state = weigh("torchrec", optimizer, rows=cached, width=128)[0] - weights
    else:
        state = 4 * rows * STATE[optimizer][1]
    assert device == pytest.approx(weights + bookkeeping + state, abs=2)


@every_accounting
@pytest.mark.parametrize("kernel", ["fused", *UVM])
@given(ids=st.floats(1, 1e6))
def test_deeper_pipelines_hold_more_ids_on_the_device(accounting: str, kernel: str, ids: float) -> None:
    sizes = [weigh(accounting, "adam", pipeline, kernel, ids=ids) for pipeline in PIPELINES]
    devices, hosts = zip(*sizes, strict=True)
    assert devices[0] < devices[1] < devices[2]
    assert len(set(hosts)) == 1


# --- real ---------------------------------------------------------------------------------------------------------


@every_optimizer
@given(rows=row_counts, width=dims, element=st.sampled_from([2, 4]))
def test_real_counts_weights_and_fp32_state(optimizer: str, rows: int, width: int, element: int) -> None:
    per_weight, per_row = STATE[optimizer]
    state = 4 * rows * (per_weight * width + per_row)
    assert weigh(optimizer=optimizer, rows=rows, width=width, element_bytes=element) == (
        rows * width * element + state,
        0,
    )


@every_optimizer
@given(rows=row_counts, widths=st.lists(dims, min_size=2, max_size=6))
def test_row_wise_state_is_counted_once_per_column_shard(optimizer: str, rows: int, widths: list[int]) -> None:
    whole, _ = weigh(optimizer=optimizer, rows=rows, width=sum(widths))
    parts = sum(weigh(optimizer=optimizer, rows=rows, width=width, table_dim=sum(widths))[0] for width in widths)
    assert parts - whole == 4 * rows * STATE[optimizer][1] * (len(widths) - 1)


@every_optimizer
@given(rows=row_counts, parts=st.integers(2, 6), width=dims)
def test_torchrec_shares_row_wise_state_between_column_shards(
    optimizer: str, rows: int, parts: int, width: int
) -> None:
    whole, _ = weigh("torchrec", optimizer, rows=rows, width=parts * width)
    part, _ = weigh("torchrec", optimizer, rows=rows, width=width, table_dim=parts * width)
    assert whole - 1 <= part * parts <= whole + 2 * parts  # rounded up: 3 rows of 468 columns have 12.000000000000002


@every_optimizer
@given(rows=row_counts, width=dims, element=element_sizes)
def test_data_parallel_counts_a_gradient_as_large_as_the_table(
    optimizer: str, rows: int, width: int, element: int
) -> None:
    shape: dict[str, Any] = {"rows": rows, "width": width, "element_bytes": element, "kernel": "dense"}
    gradient = weigh(optimizer=optimizer, data_parallel=True, **shape)[0] - weigh(optimizer=optimizer, **shape)[0]
    assert gradient == rows * width * element
    assert weigh("torchrec", optimizer, data_parallel=True, **shape) == weigh("torchrec", optimizer, **shape)


@given(rows=row_counts, factor=st.floats(1e-6, 1), ids=st.integers(0, 10**6))
def test_a_cache_grows_by_sets_of_32_rows_and_tells_where_each_id_is(rows: int, factor: float, ids: int) -> None:
    device, _ = weigh(kernel="fused_uvm_caching", rows=rows, width=16, cache_load_factor=factor, ids=float(ids))
    sets, rest = divmod(device - 4 * rows - ids * (8 + 36 + 4), 32 * (16 * 4 + 16))  # ids, their sort, their places
    assert rest == 0
    assert sets == max(1, math.ceil(math.floor(rows * factor) / 32))


@given(rows=row_counts, width=dims)
def test_int8_rows_carry_their_scale_and_bias(rows: int, width: int) -> None:
    assert weigh(rows=rows, width=width, element_bytes=1, int8=True)[0] == rows * (width + 8)


@given(ids=st.integers(1, 10**7), bags=st.integers(0, 10**6), width=dims, pipeline=st.sampled_from(PIPELINES))
def test_real_buffers_are_ids_offsets_outputs_and_the_sort(ids: int, bags: int, width: int, pipeline: str) -> None:
    depth = 1 + PIPELINES.index(pipeline)
    lookups = {"rows": 1, "width": width, "ids": float(ids), "bags": float(bags)}
    plain = weigh(pipeline=pipeline, **lookups)[0] - weigh(rows=1, width=width)[0]
    assert plain == depth * 8 * (ids + bags) + 4 * bags * width + 36 * ids
    weighted = weigh(pipeline=pipeline, weighted=True, **lookups)[0] - weigh(rows=1, width=width)[0]
    assert weighted - plain == depth * 4 * ids


# --- real, on CPU -------------------------------------------------------------------------------------------------


def on_cpu(**fields: Any) -> int:
    flags = {name: np.array([fields.pop(name)]) for name in ("sequence", "mean", "gathered") if name in fields}
    return weigh_pieces("real", {"on_cpu": True, **flags}, **fields)[0]


@given(ids=st.integers(1, 10**6), width=dims)
def test_cpu_sorts_in_less_than_cuda_and_more_with_weights(ids: int, width: int) -> None:
    lookups = {"rows": 1, "width": width, "ids": float(ids), "bags": 0.0}
    empty = 4 * width
    plain, mean, weighted = on_cpu(**lookups), on_cpu(mean=True, **lookups), on_cpu(weighted=True, **lookups)
    assert plain - empty == pytest.approx(ids * (8 + 16) + 8, abs=8)
    assert mean - plain == pytest.approx(20 * ids, abs=1)
    assert weighted - mean == pytest.approx((4 + 4) * ids, abs=1)
    assert on_cpu(data_parallel=True, **lookups) == 3 * empty + 8 * ids


@given(ids=st.integers(1, 10**6), rows=st.integers(1, 10**6), width=dims)
def test_cpu_keeps_a_vector_of_each_distinct_id_of_a_sequence(ids: int, rows: int, width: int) -> None:
    lookups = {"rows": rows, "width": width, "ids": float(ids), "bags": float(ids)}
    maps = on_cpu(sequence=True, **lookups) - 4 * rows * width - ids * (8 + 4 * width)
    assert 0 <= maps <= min(ids, rows) * (504 + 4 * width) + 1


@given(bags=st.integers(0, 10**6), width=dims)
def test_gloo_gathers_gradients_into_a_copy(bags: int, width: int) -> None:
    lookups = {"width": width, "bags": float(bags)}
    assert on_cpu(gathered=True, **lookups) - on_cpu(**lookups) == 4 * bags * width


@given(rows=row_counts, width=dims)
def test_cpu_holds_the_dense_gradient_in_fp32_beside_its_bucket(rows: int, width: int) -> None:
    shape: dict[str, Any] = {"rows": rows, "width": width, "kernel": "dense", "data_parallel": True}
    assert on_cpu(element_bytes=4, **shape) == 3 * 4 * rows * width  # weights, bucket, FBGEMM's gradient
    assert on_cpu(element_bytes=2, **shape) == (2 + 2 + 4 + 2) * rows * width  # and its cast to fp16


# --- a whole table ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", SHARDING_TYPES, ids=lambda kind: kind.name)
@every_optimizer
def test_the_shards_of_a_table_weigh_what_the_table_does(kind: ShardingType, optimizer: Any) -> None:
    unread = (Feature(name="f", pooling_factor=0.0, num_poolings=0.0),)
    table = Table(name="t", num_embeddings=1001, embedding_dim=64, features=unread)
    cluster = load_cluster("h100:4x2")
    workload = Workload(batch_size=8, optimizer=optimizer, tables=(table,))
    problem = build_problem(workload, cluster, Space(), Constraints(memory="real"))
    widths = (32, 32) if kind.splits_columns else ()
    targets = {"table_column_wise": (1, 2), "column_wise": (1, 6), "grid_shard": (0, 1)}.get(kind.name, (0,))
    placement = Placement(
        table="t", sharding_type=kind.name, compute_kernel=kind.kernels[0], widths=widths,
        ranks=kind.ranks(targets, cluster),
    )  # fmt: skip
    device, host = memory_used(problem, footprint_of(problem, (placement,)))
    per_weight, per_row = STATE[optimizer]
    state = 4 * 1001 * (64 * per_weight + per_row * max(len(widths), 1))
    if kind.name == "data_parallel":
        assert device.tolist() == [2 * table.weight_bytes + state] * 8
    else:
        assert device.sum() == table.weight_bytes + state
    assert host.tolist() == [0, 0]
    assert {int(rank) for rank in np.flatnonzero(device)} == set(placement.ranks)
