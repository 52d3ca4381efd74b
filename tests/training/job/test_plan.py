"""What `plan: auto` chooses on a CPU: whole tables under the learned model, and splits where memory asks for them."""

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from recsmith.errors import Infeasible, UsageError
from recsmith.plans import Placement, Plan
from recsmith.training import Run, RunData, RunModel, RunOptimizers, SparseOptimizer
from recsmith.training.job.run_step import planned_as_run
from recsmith.workloads.optimizers import CPU_OPTIMIZERS

pytestmark = [
    pytest.mark.skipif(find_spec("torchrec") is None, reason="needs TorchRec"),
    pytest.mark.usefixtures("torchrec"),
]
SIZES = {"large": 20_000, "a": 300, "b": 4000, "c": 50}
DIM, ROW_BYTES = 32, 33 * 4  # under row-wise Adagrad: weights, and one number of state


def a_run(folder: Path, **words: Any) -> Run:
    features = [{"name": name, "num_embeddings": size} for name, size in SIZES.items()]
    data = {"format": "generator", "seed": 1, "dense": 2, "features": features, "num_samples": 500}
    model = RunModel(embedding_dim=DIM, bottom=(8,), top=(8,))
    return Run(data=RunData(train=data, batch_size=64), model=model, output=str(folder), plan="auto", **words)


def planned(folder: Path, **words: Any) -> Plan:
    from recsmith.training.job.models import unsharded
    from recsmith.training.job.plan import plan_here

    return plan_here(unsharded(a_run(folder, **words)), ranks=2, ranks_per_host=2)


@pytest.mark.parametrize("optimizer", CPU_OPTIMIZERS)
def test_tables_stay_whole_on_a_cpu(tmp_path: Path, optimizer: Any) -> None:
    plan = planned(tmp_path, optimizers=RunOptimizers(sparse=SparseOptimizer(name=optimizer)))
    assert plan.cost_model == "neural:cpu"
    assert {placement.sharding_type for placement in plan.placements} <= {"table_wise", "data_parallel"}
    assert plan.cluster.links.intra_host_bandwidth < 10e9  # gloo's; TorchRec names 600 GiB/s


def test_an_optimizer_that_no_cpu_has_is_told_before_a_search(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"optimizers\.sparse\.name: adam needs ranks on GPUs"):
        planned(tmp_path, optimizers=RunOptimizers(sparse=SparseOptimizer(name="adam")))


def test_a_table_larger_than_a_rank_is_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of_a_rank = SIZES["large"] * ROW_BYTES * 0.8
    monkeypatch.setattr("recsmith.jobs.local_cluster.free_bytes", lambda: int(2 * of_a_rank / 0.8))
    plan = planned(tmp_path)
    large = next(placement for placement in plan.placements if placement.table == "large")
    assert large.sharding_type not in ("table_wise", "data_parallel")
    assert set(large.ranks) == {0, 1}


def test_a_plan_is_the_same_while_free_memory_changes_a_little(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dry run and its job find other numbers of free bytes, and must tell one plan."""
    digests = set[str]()
    for moved in (0, 1, 2**20, 2**26):
        monkeypatch.setattr("recsmith.jobs.local_cluster.free_bytes", lambda moved=moved: 12 * 2**30 + moved)
        digests.add(planned(tmp_path).digest)
    assert len(digests) == 1


def test_tables_larger_than_all_ranks_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recsmith.jobs.local_cluster.free_bytes", lambda: SIZES["large"] * ROW_BYTES)
    with pytest.raises(Infeasible, match="fit"):
        planned(tmp_path)


def test_what_the_run_will_do_is_priced_and_not_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bound takes longer than all else that a small job prepares, and nobody reads it."""
    plan = planned(tmp_path)
    monkeypatch.setattr("recsmith.planning.simulate.lower_bound", None)
    own = planned_as_run(a_run(tmp_path, seed=1), plan)
    assert own.cost == plan.cost
    assert own.gap is None


def test_state_that_no_plan_of_the_run_can_keep_is_told_by_its_table(tmp_path: Path) -> None:
    from recsmith.training.job.plan_rules import plan_limits

    copied = replace(planned(tmp_path), placements=tuple(
        Placement(table=name, sharding_type="data_parallel", compute_kernel="dense", ranks=(0, 1)) for name in SIZES
    ))  # fmt: skip
    run = a_run(tmp_path, optimizers=RunOptimizers(sparse=SparseOptimizer(name="adam")))  # which no copy has
    assert plan_limits(a_run(tmp_path), copied, sequences=(), device="cpu").rules
    with pytest.raises(UsageError, match="has table 'large' as data_parallel, and the run needs table_wise or"):
        plan_limits(run, copied, sequences=(), device="cuda")
