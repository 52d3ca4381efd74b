"""What TorchRec's DMPCollection cannot synchronise or run is refused, or not in the space of a 2D job."""

from typing import Any

import pytest
from support.cases import cluster, table, workload

from recsmith.clusters import sharding_group
from recsmith.errors import PlanMismatch, UsageError
from recsmith.plans import Placement, check_placements
from recsmith.problems import Space, build_problem
from recsmith.sharding import TYPE_NAMES

JOB = cluster(4, 2, ddr_bytes_per_host=2**40)
GROUP = sharding_group(JOB, 4)


@pytest.mark.parametrize(
    ("work", "space", "message"),
    [
        ({"optimizer": "adam"}, {}, "optimizer adam in a 2D job: .* take sgd, adagrad, rowwise_adagrad"),
        ({}, {"kernels": ("fused", "fused_uvm_caching")}, "kernel fused_uvm_caching in a 2D job: .* replicas drift"),
        ({"data_type": "int8"}, {}, "table 'a' is int8 in a 2D job"),
    ],
)
def test_what_sync_would_break_is_refused(work: dict[str, Any], space: dict[str, Any], message: str) -> None:
    data_type = {name: work.pop(name) for name in ("data_type",) if name in work}
    made = workload(table("a", 1000, 16, **data_type), **work)
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
