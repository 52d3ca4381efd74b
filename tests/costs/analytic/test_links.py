"""Collectives: latencies, and what they carry by hand."""

import pytest
from support.analytic import COUNTED, INTER, INTRA, case_of, cluster_of, placed, priced, shared_by, terms_of
from support.cases import table

from recsmith.sharding import TYPE_NAMES


@pytest.mark.parametrize(("local", "hosts"), [(1, 1), (4, 1), (1, 3), (4, 3)])
def test_latencies_are_those_of_collectives_in_which_more_than_one_rank_takes_part(local: int, hosts: int) -> None:
    case = case_of(table("a", 1000, 128), on=cluster_of(local, hosts))
    host = INTRA if local > 1 else 0.0
    across = INTER if hosts > 1 else 0.0
    world = across or host
    for kind in ("table_wise", "column_wise", "table_column_wise", "row_wise"):
        assert shared_by(case, kind) == (world, world)
    assert shared_by(case, "table_row_wise") == pytest.approx((host + across, host + across))
    assert shared_by(case, "data_parallel", "dense") == (0, world)
    if hosts > 1:
        assert shared_by(case, "grid_shard") == pytest.approx((host + across, host + across))


def test_latencies_are_paid_once_for_each_group_in_use() -> None:
    tables = [table(name, 1000, 128) for name in "ab"]
    whole, split = (placed("b", kind, (1,)) for kind in ("table_wise", "column_wise"))
    case = case_of(*tables)
    for other, groups in ((whole, 1), (split, 2)):
        cost = priced(case, placed("a", "table_wise", (0,)), other)
        sent = terms_of(case, "table_wise")[5]
        assert [d.forward_comm_s for d in cost.per_device] == pytest.approx([groups * INTRA + sent] * 2, rel=1e-12)


def _carried(local: int, hosts: int, kind: str, kernel: str = "fused", **fields) -> tuple[float, float]:
    case = case_of(table("a", 1000, 128, 5.0, access=COUNTED), on=cluster_of(local, hosts), batch_size=8, **fields)
    forward, backward = terms_of(case, kind, kernel, 64 if kind == "grid_shard" else None)[5:].tolist()
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
    case = case_of(made, on=cluster_of(4, 3), batch_size=8)
    whole = 480 * 512 * max(3 / 12 / (3e11 * 0.75), 8 / 12 / (2e10 * 0.94))
    assert terms_of(case, "table_wise")[5:] == pytest.approx([whole, whole], rel=1e-12)
    assert terms_of(case, "row_wise")[5:] == pytest.approx([whole / 12, whole / 12], rel=1e-12)
    assert terms_of(case, "data_parallel", "dense")[5] == 0


@pytest.mark.parametrize(
    ("comm_dtype", "share"), [(None, 1), ("fp32", 1), ("fp16", 1 / 2), ("bf16", 1 / 2), ("int8", 1 / 4)]
)
@pytest.mark.parametrize("kind", ["table_wise", "row_wise", "table_row_wise", "grid_shard"])
def test_narrow_messages_carry_fewer_bytes(kind: str, comm_dtype, share: float) -> None:
    assert _carried(4, 3, kind, comm_dtype=comm_dtype) == pytest.approx([share * s for s in _carried(4, 3, kind)])


def test_the_backward_type_of_messages_is_that_of_the_workload_where_it_differs() -> None:
    whole = _carried(4, 3, "table_wise")
    for forward, backward, shares in ((None, "fp16", (1, 1 / 2)), ("int8", "fp32", (1 / 4, 1))):
        narrow = _carried(4, 3, "table_wise", comm_dtype=forward, backward_comm_dtype=backward)
        assert narrow == pytest.approx([share * s for share, s in zip(shares, whole, strict=True)])


def test_one_device_has_every_type_but_grid_shard() -> None:
    """Grids need columns on more than one host."""
    case = case_of(table("a", 1000, 128, 5.0), on=cluster_of(1))
    found = {TYPE_NAMES[kind] for kind in case.problem.modes.type.tolist()}
    assert found == set(TYPE_NAMES) - {"grid_shard"}


@pytest.mark.parametrize("kind", [kind for kind in TYPE_NAMES if kind != "grid_shard"])
def test_one_device_sends_nothing(kind: str) -> None:
    case = case_of(table("a", 1000, 128, 5.0), on=cluster_of(1))
    cost = priced(case, placed("a", kind, (0,), "dense" if kind == "data_parallel" else "fused"))
    (only,) = cost.per_device
    assert only.forward_comm_s == only.backward_comm_s == 0
    assert cost.total_s == only.forward_compute_s + only.backward_compute_s


def test_a_plan_for_one_device_has_no_gap() -> None:
    assert case_of(*(table(f"t{i}", 1000, 8) for i in range(3)), on=cluster_of(1)).plan().plan.gap == pytest.approx(
        0, abs=1e-8
    )
