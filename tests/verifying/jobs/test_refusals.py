"""What of a plan this machine trains, and what it refuses."""

from dataclasses import replace

import pytest
from support.build import cluster, placed, plan_of, table, workload
from support.plans import two_tables

from recsmith.errors import UsageError
from recsmith.verifying.jobs import refusals
from recsmith.verifying.jobs.refusals import check_memory, check_plan, runnable
from recsmith.workloads import Feature


def test_poolings_become_one_bag_of_the_batch_that_is_asked_for():
    feature = Feature(name="f", pooling_factor=3.0, num_poolings=2.0, batch_size=7)
    made = plan_of(
        workload(table("a", features=(feature,)), pipeline="sparse_dist"), cluster(), placed("a", "table_wise", [0])
    )
    trained = runnable(made, 32).workload
    assert (trained.batch_size, trained.pipeline) == (32, "none")
    assert trained.tables[0].features == (Feature(name="f", pooling_factor=6.0),)
    assert runnable(made, None).workload.batch_size == made.workload.batch_size


def test_more_memory_than_the_machine_has_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(refusals, "proc_bytes", lambda file, field: 2**29)
    with pytest.raises(UsageError, match=r"the plan's 2 ranks need .* which has 512 MiB available"):
        check_memory([2**20, 2**20])
    check_memory([2**20])


def test_tables_in_host_memory_need_a_gpu():
    made = plan_of(workload(table("a")), cluster(), placed("a", "table_wise", [0], kernel="fused_uvm"))
    with pytest.raises(UsageError, match="uses fused_uvm, which needs a GPU"):
        check_plan(made)


def test_a_sequence_cannot_be_data_parallel_on_cpu():
    made = two_tables(pooling="none")
    copies = tuple(
        replace(each, sharding_type="data_parallel", compute_kernel="dense", ranks=(0, 1), widths=())
        for each in made.placements
    )
    with pytest.raises(UsageError, match="data_parallel sequence"):
        check_plan(replace(made, placements=copies))
