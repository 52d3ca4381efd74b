"""UVM caches: what TorchRec fuses, what FBGEMM allocates, and load factors on their way to TorchRec and back."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from recsmith import Space
from recsmith.sharding import KERNEL_NAMES
from recsmith.sharding.memory import ACCOUNTINGS, Pieces

pytestmark = pytest.mark.usefixtures("torchrec")
CACHED = "fused_uvm_caching"


def _grouped(*kernels: tuple[str, float | None]) -> Any:
    """The FBGEMM modules of a rank with one table of each (kernel, load factor)."""
    from torchrec.distributed.embedding_sharding import group_tables
    from torchrec.distributed.embedding_types import EmbeddingComputeKernel, ShardedEmbeddingTable
    from torchrec.modules.embedding_configs import DataType, PoolingType

    tables = [
        ShardedEmbeddingTable(
            num_embeddings=100, embedding_dim=16, name=f"t{i}", embedding_names=[f"t{i}"], data_type=DataType.FP32,
            feature_names=[f"f{i}"], pooling=PoolingType.SUM, is_weighted=False, has_feature_processor=False,
            local_rows=100, local_cols=16, compute_kernel=EmbeddingComputeKernel(kernel),
            fused_params={} if factor is None else {"cache_load_factor": factor},
        )
        for i, (kernel, factor) in enumerate(kernels)
    ]  # fmt: skip
    return group_tables([tables])[0]


def test_tables_of_all_kernels_and_load_factors_run_in_one_module() -> None:
    (module,) = _grouped(("fused", None), ("fused_uvm", None), (CACHED, 0.1), (CACHED, 0.5))
    assert len(module.embedding_tables) == 4
    assert module.fused_params["cache_load_factor"] == pytest.approx(0.3)  # of all rows that are cached


def _allocated(monkeypatch: pytest.MonkeyPatch, rows: int, width: int, factor: float, half: bool) -> int:
    """Bytes of the buffers that FBGEMM's own code makes for a cache, on the CPU."""
    import torch
    from fbgemm_gpu.split_embedding_configs import SparseType
    from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation, construct_cache_state
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
        CacheAlgorithm,
        SplitTableBatchedEmbeddingBagsCodegen,
    )

    made = SplitTableBatchedEmbeddingBagsCodegen.__new__(SplitTableBatchedEmbeddingBagsCodegen)
    torch.nn.Module.__init__(made)
    precision = SparseType.FP16 if half else SparseType.FP32
    told: dict[str, Any] = {
        "current_device": torch.device("cpu"), "use_cpu": False, "max_D_cache": width, "prefetch_pipeline": False,
        "weights_precision": precision, "uuid": "", "log": lambda _: None, "_init_uvm_cache_stats": lambda: None,
        "_init_uvm_cache_counter": lambda *_, **__: None,
    }  # fmt: skip
    for name, value in told.items():
        object.__setattr__(made, name, value)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(total_memory=2**40))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 0)
    state = construct_cache_state([rows], [EmbeddingLocation.MANAGED_CACHING], [0])
    made._apply_cache_state(state, CacheAlgorithm.LRU, factor, 0, 0.0, precision)
    names = ("lxu_cache_weights", "lxu_cache_state", "lxu_state", "cache_index_table_map")
    return sum(getattr(made, name).numel() * getattr(made, name).element_size() for name in names)


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize(("rows", "factor"), [(1, 0.05), (1000, 0.2), (1000, 1.0), (99_999, 0.05), (12_345, 0.333)])
def test_the_real_accounting_of_a_cache_is_what_fbgemm_allocates(
    monkeypatch: pytest.MonkeyPatch, rows: int, factor: float, half: bool
) -> None:
    fields: dict[str, Any] = {
        "rows": rows, "width": 64, "table_rows": rows, "table_dim": 64, "element_bytes": 2 if half else 4, "ids": 0.0,
        "bags": 0.0, "outputs": 0.0, "weighted": False, "int8": False, "data_parallel": False,
        "kernel": KERNEL_NAMES.index(CACHED), "cache_load_factor": factor,
    }  # fmt: skip
    columns: dict[str, Any] = {name: np.array([value]) for name, value in fields.items()}
    pieces = Pieces(**columns)
    weighed = ACCOUNTINGS["real"](pieces, "sgd", "none")
    assert int(weighed.device[0]) == _allocated(monkeypatch, rows, 64, factor, half)


@pytest.mark.parametrize(("rowwise", "device", "host"), [(True, 100, 0), (False, 0, 1600)])
def test_row_wise_state_of_tables_in_host_memory_stays_on_the_device(rowwise: bool, device: int, host: int) -> None:
    from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import ComputeDevice, construct_split_state

    for location in (EmbeddingLocation.MANAGED, EmbeddingLocation.MANAGED_CACHING):
        specs = [(100, 16, location, ComputeDevice.CUDA)]
        split = construct_split_state(specs, rowwise=rowwise, cacheable=False)
        assert (split.dev_size, split.uvm_size) == (device, host)


def test_a_load_factor_reaches_the_sharding_plan_and_comes_back() -> None:
    from support.jobs import TwoCollections
    from torchrec.distributed.planner import ParameterConstraints
    from torchrec.distributed.types import CacheParams

    from recsmith.torchrec import RecSmithPlanner, from_sharding_plan, to_parameter_constraints

    wanted = {"t1": ParameterConstraints(cache_params=CacheParams(load_factor=0.3))}
    space = Space(kernels=("fused_uvm_caching", "dense"), types=("table_wise", "row_wise"), cache_factors=(0.1,))
    planner = RecSmithPlanner("h100:2", batch_size=16, constraints=wanted, space=space)
    made = planner.plan(TwoCollections())
    assert planner.result is not None
    plan = planner.result.plan
    factors = {placement.table: placement.load_factor for placement in plan.placements}
    assert factors == {table.name: 0.3 if table.name == "t1" else 0.1 for table in plan.workload.tables}
    assert made.plan["pooled"]["t1"].cache_params == CacheParams(load_factor=0.3)  # type: ignore[index]
    assert from_sharding_plan(made, plan.workload, plan.cluster) == plan.placements
    assert to_parameter_constraints(plan)["t1"].cache_params == CacheParams(load_factor=0.3)
