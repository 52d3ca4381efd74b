"""What kernels take (sharding/kernel_limits.py), asked of FBGEMM and TorchRec themselves."""

import warnings
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.cases import cluster, table, workload

import recsmith
from recsmith import Table
from recsmith.plans import Cache, Placement
from recsmith.problems import Space, build_problem, fits, footprint_of, memory_taken, memory_used
from recsmith.problems.footprint import memory_parts
from recsmith.sharding import KERNEL_NAMES
from recsmith.sharding.kernel_limits import KernelLimits
from recsmith.sharding.memory import CACHE_SET, Pieces, device_parts
from recsmith.sharding.on_disk import ON_DISK
from recsmith.workloads.data_types import DATA_TYPES
from recsmith.workloads.optimizers import OPTIMIZERS

pytestmark = pytest.mark.usefixtures("torchrec")
CACHED = "fused_uvm_caching"


def _limits(kind: Any, optimizer: str, varying: bool = False) -> KernelLimits:
    return KernelLimits(kind, optimizer, frozenset({""} if varying else ()))


def _optimizer(name: str) -> Any:
    from fbgemm_gpu.split_embedding_configs import EmbOptimType

    return EmbOptimType[OPTIMIZERS[name].fbgemm_name]


def _trains(run: Callable[[], Any]) -> bool:
    """Whether a kernel is made and takes a step, and returns a row for each bag or, of sequences, each id."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of dense kernels, which have no autograd key
            run().sum().backward()
    except (AssertionError, NotImplementedError):
        return False
    return True


def test_fused_kernels_on_cpu_train_what_the_limits_say() -> None:
    import torch
    from fbgemm_gpu.split_embedding_configs import SparseType
    from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation, PoolingMode
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
        ComputeDevice,
        SplitTableBatchedEmbeddingBagsCodegen,
    )

    ids, offsets, asked = torch.tensor([1, 2, 3, 1]), torch.tensor([0, 2, 4]), 0
    for data_type, optimizer, pooling, varying in product(
        DATA_TYPES, OPTIMIZERS, ("sum", "mean", "none"), (False, True)
    ):
        if varying and pooling == "none":
            continue  # TorchRec pads sequences to one batch size before a kernel sees them
        precision = SparseType[DATA_TYPES[data_type].member]

        def run(
            precision: Any = precision, optimizer: str = optimizer, pooling: str = pooling, own: Any = varying
        ) -> Any:
            made = SplitTableBatchedEmbeddingBagsCodegen(
                [(10, 8, EmbeddingLocation.HOST, ComputeDevice.CPU)], weights_precision=precision,
                cache_precision=precision, optimizer=_optimizer(optimizer), pooling_mode=PoolingMode[pooling.upper()],
            )  # fmt: skip
            return made(ids, offsets, batch_size_per_feature_per_rank=[[2]] if own else None)

        t = table("a", 10, 8, data_type=data_type, pooling=pooling)
        refusal = _limits("cpu", optimizer, varying).refusal(t, "table_wise", "fused")
        assert _trains(run) == (refusal is None), (data_type, optimizer, pooling, varying, refusal)
        asked += 1
    assert asked == 4 * 6 * 5


def test_dense_kernels_on_cpu_train_what_the_limits_say() -> None:
    import torch
    from fbgemm_gpu.split_embedding_configs import SparseType
    from fbgemm_gpu.split_table_batched_embeddings_ops_common import PoolingMode
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import DenseTableBatchedEmbeddingBagsCodegen

    ids, offsets = torch.tensor([1, 2, 3, 1, 2]), torch.tensor([0, 2, 5])
    for data_type, pooling in product(DATA_TYPES, ("sum", "mean", "none")):

        def run(data_type: str = data_type, pooling: str = pooling) -> Any:
            made = DenseTableBatchedEmbeddingBagsCodegen(
                [(10, 8)], weights_precision=SparseType[DATA_TYPES[data_type].member], use_cpu=True,
                pooling_mode=PoolingMode[pooling.upper()],
            )  # fmt: skip
            out = made(ids, offsets)
            assert len(out) == (5 if pooling == "none" else 2)
            return out

        t = table("a", 10, 8, data_type=data_type, pooling=pooling)
        refusal = _limits("cpu", "sgd").refusal(t, "data_parallel", "dense")
        assert _trains(run) == (refusal is None), (data_type, pooling, refusal)


def test_copies_on_cpu_run_no_features_of_several_batch_sizes() -> None:
    """TorchRec wants one flat answer of such features; FBGEMM's kernel for CPU takes all for one batch."""
    import torch
    from fbgemm_gpu.split_table_batched_embeddings_ops_common import PoolingMode
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import DenseTableBatchedEmbeddingBagsCodegen

    made = DenseTableBatchedEmbeddingBagsCodegen([(10, 8), (10, 8)], use_cpu=True, pooling_mode=PoolingMode.SUM)
    answer = made(
        torch.tensor([1, 2, 3]), torch.tensor([0, 1, 2, 3]), feature_requires_grad=None,
        batch_size_per_feature_per_rank=[[1], [2]],
    )  # fmt: skip
    assert answer.shape != (3 * 8,)
    first, second = (table(name, 10, 8) for name in "ab")
    smaller = [replace(each, features=(replace(each.features[0], batch_size=2),)) for each in (first, second)]

    def refused(kind: str, *tables: Table) -> str:
        limits = KernelLimits.of(workload(*tables, batch_size=8), recsmith.load_cluster(f"{kind}:2"))
        return limits.refusal(tables[0], "data_parallel", "dense") or ""

    assert "data_parallel on cpu does not run features of several batch sizes" in refused("cpu", smaller[0], second)
    assert refused("cpu", first, second) == refused("cpu", *smaller) == refused("h100", smaller[0], second) == ""


@pytest.mark.parametrize("cached", [False, True])
def test_data_types_on_cuda_are_those_of_which_fbgemm_makes_a_module(
    monkeypatch: pytest.MonkeyPatch, cached: bool
) -> None:
    for data_type in DATA_TYPES:
        t = table("a", 100, 8, data_type=data_type)
        kernel, factor = (CACHED, 0.2) if cached else ("fused", 0.0)
        refusal = _limits("cuda", "sgd").refusal(t, "table_wise", kernel, factor)
        try:
            allocated(monkeypatch, [(100, 8)], 0.2, DATA_TYPES[data_type].member, cached=cached)
            assert refusal is None
        except AssertionError as error:
            assert "not supported" in str(error), error
            assert refusal is not None
            assert data_type in refusal


def test_batch_sizes_of_features_go_with_the_optimizers_that_fbgemm_asks_for() -> None:
    import torch
    from fbgemm_gpu.split_table_batched_embeddings_ops_common import PoolingMode
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import SplitTableBatchedEmbeddingBagsCodegen
    from fbgemm_gpu.tbe.ssd import SSDTableBatchedEmbeddingBags

    for optimizer, (kernel, module) in product(
        OPTIMIZERS, (("fused", SplitTableBatchedEmbeddingBagsCodegen), ("key_value", SSDTableBatchedEmbeddingBags))
    ):
        if kernel == "key_value" and optimizer not in ON_DISK["cuda"].optimizers:
            continue
        told: Any = SimpleNamespace(
            optimizer=_optimizer(optimizer), feature_dims=torch.tensor([8]), pooling_mode=PoolingMode.SUM,
            current_device=torch.device("cpu"),
        )  # fmt: skip
        refusal = _limits("cuda", optimizer, varying=True).refusal(table("a", 100, 8), "table_wise", kernel, 0.2)
        try:
            module._generate_vbe_metadata(told, torch.tensor([0, 1, 2]), [[2]])
            assert refusal is None, (optimizer, kernel)
        except AssertionError as error:
            assert "Variable batch size" in str(error), error
            assert refusal is not None, (optimizer, kernel)


def test_tables_on_disk_on_cuda_are_those_that_fbgemm_takes() -> None:
    from fbgemm_gpu.split_embedding_configs import SparseType
    from fbgemm_gpu.tbe.ssd import SSDTableBatchedEmbeddingBags

    for data_type, optimizer in product(DATA_TYPES, OPTIMIZERS):
        with pytest.raises((AssertionError, RuntimeError)) as raised:  # at the latest, for want of a GPU
            SSDTableBatchedEmbeddingBags(
                embedding_specs=[(100, 8)], feature_table_map=None, cache_sets=1, ssd_storage_directory="",
                weights_precision=SparseType[DATA_TYPES[data_type].member], optimizer=_optimizer(optimizer),
            )  # fmt: skip
        taken = "CUDA" in str(raised.value) or "NVIDIA" in str(raised.value)
        refusal = _limits("cuda", optimizer).refusal(
            table("a", 100, 8, data_type=data_type), "row_wise", "key_value", 0.2
        )
        assert taken == (refusal is None and optimizer in ON_DISK["cuda"].optimizers), (data_type, optimizer)


@pytest.mark.parametrize("width", [4, 64, 512])
@pytest.mark.parametrize("optimizer", ON_DISK["cuda"].optimizers)
def test_state_of_tables_on_disk_is_what_fbgemm_keeps_on_the_device(optimizer: str, width: int) -> None:
    splits = _optimizer(optimizer).ssd_state_splits([(1000, width)])
    fields: dict[str, Any] = {
        "rows": 1000, "width": width, "table_rows": 1000, "table_dim": width, "element_bytes": 2, "ids": 0.0,
        "bags": 0.0, "outputs": 0.0, "weighted": False, "int8": False, "data_parallel": False,
        "kernel": KERNEL_NAMES.index("key_value"), "cache_load_factor": 0.2,
    }  # fmt: skip
    columns: dict[str, Any] = {name: np.array([value]) for name, value in fields.items()}
    kept = device_parts("real", Pieces(**columns), optimizer, "none")
    assert int(kept["optimizer state"][0]) == sum(split.dev_size * dtype.itemsize for split, _, dtype in splits)
    assert int(kept["weights"][0]) == 0


def _sharded(name: str, rows: int, dim: int, kernel: str, factor: float) -> Any:
    from torchrec.distributed.embedding_types import EmbeddingComputeKernel, ShardedEmbeddingTable
    from torchrec.modules.embedding_configs import DataType, PoolingType

    return ShardedEmbeddingTable(
        num_embeddings=rows, embedding_dim=dim, name=name, embedding_names=[name], data_type=DataType.FP32,
        feature_names=[name], pooling=PoolingType.SUM, is_weighted=False, has_feature_processor=False, local_rows=rows,
        local_cols=dim, compute_kernel=EmbeddingComputeKernel(kernel), fused_params={"cache_load_factor": factor},
    )  # fmt: skip


def test_a_cache_of_tables_on_disk_is_what_torchrec_asks_for() -> None:
    """TorchRec drops the share that a plan gives such a cache, and keeps tables of several widths apart."""
    from torchrec.distributed.batched_embedding_kernel import _populate_ssd_tbe_params
    from torchrec.distributed.embedding_sharding import group_tables

    tables = [_sharded("a", 10_000, 16, "key_value", 0.7), _sharded("b", 777, 64, "key_value", 0.7)]
    modules = group_tables([tables])[0]
    assert [[each.name for each in module.embedding_tables] for module in modules] == [["a"], ["b"]]
    for module, made in zip(modules, tables, strict=True):
        sets = _populate_ssd_tbe_params(module)["cache_sets"]
        assert sets == max(1, int(0.2 * made.local_rows / CACHE_SET))
        work = workload(table(made.name, made.local_rows, made.local_cols, 0.0), optimizer="rowwise_adagrad")
        where = cluster(1, ssd_bytes_per_host=2**40)
        problem = build_problem(work, where, Space(kernels=("key_value",), cache_factors=(0.2,)))
        placed = Placement(table=made.name, sharding_type="table_wise", compute_kernel="key_value", ranks=(0,))
        counted = int(memory_parts(problem, footprint_of(problem, (placed,)))["cache"][0])
        bytes_of = [each * CACHE_SET * (made.local_cols * 4 + 16) for each in (sets, sets + 1)]
        assert counted in bytes_of


def allocated(
    monkeypatch: pytest.MonkeyPatch, specs: list[tuple[int, int]], factor: float, precision: str, cached: bool = True
) -> int:
    """Bytes of the buffers that FBGEMM's own code makes for the cache of tables (rows, columns), on the CPU."""
    import torch
    from fbgemm_gpu.split_embedding_configs import SparseType
    from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation, construct_cache_state
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
        CacheAlgorithm,
        SplitTableBatchedEmbeddingBagsCodegen,
    )

    made = SplitTableBatchedEmbeddingBagsCodegen.__new__(SplitTableBatchedEmbeddingBagsCodegen)
    torch.nn.Module.__init__(made)
    told: dict[str, Any] = {
        "current_device": torch.device("cpu"), "use_cpu": False, "max_D_cache": max(dim for _, dim in specs),
        "prefetch_pipeline": False, "weights_precision": SparseType[precision], "uuid": "", "log": lambda _: None,
        "_init_uvm_cache_stats": lambda: None, "_init_uvm_cache_counter": lambda *_, **__: None,
    }  # fmt: skip
    for name, value in told.items():
        object.__setattr__(made, name, value)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(total_memory=2**40))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 0)
    where = EmbeddingLocation.MANAGED_CACHING if cached else EmbeddingLocation.DEVICE
    state = construct_cache_state([rows for rows, _ in specs], [where] * len(specs), list(range(len(specs))))
    made._apply_cache_state(state, CacheAlgorithm.LRU, factor, 0, 0.0, SparseType[precision])
    names = ("lxu_cache_weights", "lxu_cache_state", "lxu_state", "cache_index_table_map")
    return sum(getattr(made, name).numel() * getattr(made, name).element_size() for name in names)


WIDTHS = {"narrow": (6400, 16), "middle": (3200, 64), "wide": (320, 512)}


@pytest.mark.parametrize("names", [("narrow",), ("narrow", "middle"), ("narrow", "wide"), ("narrow", "middle", "wide")])
def test_a_shared_cache_weighs_what_fbgemm_allocates(monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]) -> None:
    """Slots are as wide as the widest cached table of the rank, whatever else the workload has."""
    from torchrec.distributed.embedding_sharding import group_tables

    (module,) = group_tables([[_sharded(name, *WIDTHS[name], CACHED, 0.2) for name in names]])[0]
    assert len(module.embedding_tables) == len(names)  # in one module, without a prefetch pipeline
    work = workload(*(table(name, *shape, 0.0) for name, shape in WIDTHS.items()), optimizer="sgd")
    where = cluster(2, ddr_bytes_per_host=2**40)
    problem = build_problem(work, where, Space(kernels=("fused", CACHED), cache_factors=(0.2,)), needless=True)
    placed = tuple(
        Placement(
            table=name, sharding_type="table_wise", compute_kernel=CACHED if name in names else "fused", ranks=(0,),
            cache=Cache(load_factor=0.2) if name in names else None,
        )
        for name in sorted(WIDTHS)
    )  # fmt: skip
    footprint = footprint_of(problem, placed)
    told = int(memory_parts(problem, footprint)["cache"][0])
    assert told == allocated(monkeypatch, [WIDTHS[name] for name in names], 0.2, "FP32")
    assert memory_taken(problem, footprint)[0][0] == sum(part[0] for part in memory_parts(problem, footprint).values())
    assert (memory_used(problem, footprint)[0] >= memory_taken(problem, footprint)[0]).all() or "wide" in names
    assert fits(problem, footprint)


def test_prefetched_widths_have_caches_of_their_own() -> None:
    from torchrec.distributed.embedding_sharding import group_tables

    tables = [_sharded(name, *shape, CACHED, 0.2) for name, shape in WIDTHS.items()]
    for each in tables:
        each.fused_params["prefetch_pipeline"] = True
    assert [len(module.embedding_tables) for module in group_tables([tables])[0]] == [1, 1, 1]
    work = workload(*(table(name, *shape) for name, shape in WIDTHS.items()), pipeline="prefetch_sparse_dist")
    where = cluster(1, ddr_bytes_per_host=2**40)
    assert not build_problem(work, where, Space(kernels=("fused", CACHED))).memory_model.mixed


@pytest.mark.parametrize(("other", "pooling"), [("row_wise", "SUM"), ("table_wise", "SUM"), ("table_wise", "MEAN")])
def test_means_split_by_rows_make_torchrec_divide_tables_beside_them(other: str, pooling: str) -> None:
    """What TorchRec divides outputs by, (samples, columns): means by rows aside, 1 of sums by rows alone."""
    import torch
    from torchrec.distributed.embeddingbag import _create_mean_pooling_divisor

    by_rows = {"MEAN": ["a"], "SUM": ["b"]} if other == "row_wise" else {"MEAN": ["a"], "SUM": []}
    divided = _create_mean_pooling_divisor(
        lengths=torch.tensor([2, 3, 4, 5]), keys=["a", "b"], offsets=torch.tensor([0, 2, 5, 9, 14]), stride=2,
        stride_per_key=[2, 2], dim_per_key=torch.tensor([1, 1]), pooling_type_to_rs_features=by_rows,
        embedding_names=["a", "b"], embedding_dims=[1, 1], variable_batch_per_feature=False,
        kjt_inverse_order=torch.empty(0), kjt_key_indices={"a": 0, "b": 1}, kt_key_ordering=torch.tensor([0, 1]),
    )  # fmt: skip
    right = [1, 1] if other == "row_wise" else [4, 5]  # sums, and what is a mean by now, should be left as they are
    torch.testing.assert_close(divided, torch.tensor([[2.0, right[0]], [3.0, right[1]]]))

    means = table("a", 10, 8, pooling="mean")
    beside, alone = table("b", 10, 8, pooling=pooling.lower()), table("b", 10, 8, collection="x")
    for kind in ("row_wise", "table_row_wise", "grid_shard"):
        refusals = [
            KernelLimits.of(workload(means, each), cluster(2, 2)).refusal(means, kind, "fused")
            for each in (beside, alone)
        ]
        assert [bool(each) for each in refusals] == [True, kind == "grid_shard"], kind
    assert KernelLimits.of(workload(means, beside), cluster()).refusal(means, "column_wise", "fused") is None


def test_means_of_remapped_ids_on_cuda_are_split_by_rows_where_no_feature_is_read_by_sums_too() -> None:
    from recsmith.workloads import Dynamic

    means, sums = (table(name, 10, 8, pooling=how, dynamic=Dynamic()) for name, how in (("a", "mean"), ("b", "sum")))
    for twice, refused in ((False, False), (True, True)):
        other = replace(sums, features=means.features) if twice else sums
        limits = KernelLimits.of(workload(means, other), cluster())
        assert (limits.refusal(means, "row_wise", "fused") is not None) == refused
