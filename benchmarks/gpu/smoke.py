# pyright: basic
"""Whether the packed FBGEMM works on a device: a step of each kind of kernel that a small pack holds, beside PyTorch.

python benchmarks/gpu/smoke.py --device cuda     # 20 s; exit code 1 where a kernel is missing or wrong
"""

import argparse
import time

import timing
import torch
from fbgemm_gpu.split_embedding_configs import EmbOptimType, SparseType
from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation, PoolingMode
from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
    ComputeDevice,
    DenseTableBatchedEmbeddingBagsCodegen,
    SplitTableBatchedEmbeddingBagsCodegen,
)

from recsmith.workloads.optimizers import OPTIMIZERS

ROWS, DIM, BAGS, IDS = 500, 32, 64, 4


def main() -> None:
    parser = argparse.ArgumentParser(description="Whether FBGEMM works.")
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    device = torch.device(options.device)
    if device.type == "cuda":
        free, whole = torch.cuda.mem_get_info()
        print(
            torch.cuda.get_device_name(),
            torch.cuda.get_device_properties(0),
            f"{free / 2**30:.1f} of {whole / 2**30:.1f} GiB free",
        )
    wrong = 0
    for optimizer in ("sgd", "rowwise_adagrad", "adagrad", *(("adam",) if device.type == "cuda" else ())):
        for pooling in (PoolingMode.SUM, PoolingMode.NONE):
            for kind in (SparseType.FP32, SparseType.FP16):
                for place in ("DEVICE", "MANAGED", "MANAGED_CACHING") if device.type == "cuda" else ("HOST",):
                    wrong += not checked(device, optimizer, pooling, kind, place)
    wrong += not dense(device)
    print(f"{wrong} wrong", flush=True)
    raise SystemExit(wrong > 0)


def checked(device: torch.device, optimizer: str, pooling: PoolingMode, kind: SparseType, place: str) -> bool:
    """Whether outputs and gradients' effect on SGD's weights are PyTorch's; others are run, and must be finite."""
    begun, words = time.perf_counter(), f"{optimizer} {pooling.name} {kind.value} {place}"
    try:
        made = SplitTableBatchedEmbeddingBagsCodegen(
            [(ROWS, DIM, EmbeddingLocation[place], ComputeDevice.CUDA if device.type == "cuda" else ComputeDevice.CPU)],
            optimizer=EmbOptimType[OPTIMIZERS[optimizer].fbgemm_name], weights_precision=kind, pooling_mode=pooling,
            learning_rate=0.1, device=device, stochastic_rounding=False,
        )  # fmt: skip
        made.init_embedding_weights_uniform(-1, 1)
        if place == "MANAGED_CACHING":
            made.flush()
        before = made.split_embedding_weights()[0].float().clone()
        ids = torch.randint(0, ROWS, (BAGS * IDS,), device=device)
        offsets = torch.arange(0, BAGS * IDS + 1, IDS, device=device)
        output = made(ids, offsets)
        rows = before.to(device)[ids]
        wanted = rows.view(BAGS, IDS, DIM).sum(1) if pooling == PoolingMode.SUM else rows
        near = torch.allclose(output.float(), wanted, atol=1e-2)
        output.backward(torch.ones_like(output))
        if place == "MANAGED_CACHING":
            made.flush()
        after = made.split_embedding_weights()[0].float()
        if optimizer == "sgd":
            counts = torch.bincount(ids, minlength=ROWS).to(before.device)
            near &= torch.allclose(after, before - 0.1 * counts[:, None], atol=1e-2)
        near &= bool(after.isfinite().all()) and not torch.equal(after, before)
    except Exception as error:  # it is told
        print(f"{words}: {type(error).__name__}: {str(error).strip()[:200]}", flush=True)
        if any(each in str(error) for each in timing.BROKEN):
            raise SystemExit(1) from None
        return (optimizer, kind) == ("adam", SparseType.FP16)  # which FBGEMM refuses
    print(f"{words}: {'right' if near else 'WRONG'}, {time.perf_counter() - begun:.2f} s", flush=True)
    return near


def dense(device: torch.device) -> bool:
    """Whether the kernel of data_parallel tables gives PyTorch's gradient."""
    made = DenseTableBatchedEmbeddingBagsCodegen([(ROWS, DIM)], use_cpu=device.type == "cpu")
    ids = torch.randint(0, ROWS, (BAGS * IDS,), device=device)
    output = made(ids, torch.arange(0, BAGS * IDS + 1, IDS, device=device))
    output.backward(torch.ones_like(output))
    counts = torch.bincount(ids, minlength=ROWS).float()
    gradient = made.weights.grad
    near = gradient is not None and torch.allclose(gradient.view(ROWS, DIM), counts[:, None].expand(ROWS, DIM))
    print(f"dense: {'right' if near else 'WRONG'}", flush=True)
    return near


if __name__ == "__main__":
    main()
