# pyright: basic
"""Tables in host memory behind a GPU: what FBGEMM refuses, what it takes of memory, and how long steps take.

python benchmarks/gpu/host_memory.py rows.jsonl --seconds 60              # on the GPU
python benchmarks/gpu/host_memory.py rows.jsonl --device cpu --seconds 20 # a rehearsal: most fail there
python benchmarks/gpu/host_memory.py --show rows.jsonl

First all kernels x data types x optimizers, each constructed and, with those optimizers whose kernels pack.sh keeps,
trained by a step: what is refused says so in FBGEMM's own words. Then groups of tables of one and of mixed widths under
fused, fused_uvm and fused_uvm_caching: bytes of each buffer, of the device by the allocator and by cudaMemGetInfo, and
seconds of prefetch, forward and backward at several shares of ids that a cache holds. At most 8 GiB of managed memory.
"""

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import timing
import torch
from fbgemm_gpu.split_embedding_configs import EmbOptimType, SparseType
from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation, PoolingMode
from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
    ComputeDevice,
    SplitTableBatchedEmbeddingBagsCodegen,
)

from recsmith.hardware import Case
from recsmith.hardware.lookups import draw_lookups, uniform_pool
from recsmith.sharding.base import KERNELS
from recsmith.sharding.memory import Pieces, device_parts, real_bytes, real_parts
from recsmith.workloads import AccessProfile, Feature, Table, Workload
from recsmith.workloads.optimizers import OPTIMIZERS

Row = dict[str, Any]
LOCATIONS = {"fused": EmbeddingLocation.DEVICE, "fused_uvm": EmbeddingLocation.MANAGED,
             "fused_uvm_caching": EmbeddingLocation.MANAGED_CACHING}  # fmt: skip
TYPES = {"fp32": SparseType.FP32, "fp16": SparseType.FP16, "bf16": SparseType.BF16, "int8": SparseType.INT8}
STEPPED = ("sgd", "rowwise_adagrad", "adagrad", "adam")  # whose kernels a pack of few kernels holds
GROUPS = {  # rows and columns of the tables of a group, 2 GiB in fp32
    "even": [(1_000_000, 64)] * 8,
    "mixed": [(4_000_000, 8), (4_000_000, 16), (2_000_000, 64), (1_000_000, 128), (500_000, 256)],
    "wide": [(8_000_000, 4), (1_000_000, 512)],
}
BATCH, POOLING = 8192, 10.0  # of every table
BATCHES, TIMED, COUNTED = 8, 4, 2  # batches with ids of their own: two warm up, some are timed, the last ones counted
LEAST_BYTES = 2**22  # of what is compared with plans
SHARES = (0.02, 0.2, 0.5)  # of rows that a cache holds
ZIPFS = (0.0, 0.8, 1.2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=Path, nargs="?")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--shrink", type=int, default=1, help="so many times fewer rows and bags, for a rehearsal")
    parser.add_argument("--show", type=Path)
    options = parser.parse_args()
    if options.show:
        print("\n".join(tables(options.show)))
        return
    clock = timing.Clock(options.device)
    timing.run(every_case(clock, options.shrink), options.rows, options.seconds, options.device)


def every_case(clock: timing.Clock, shrink: int) -> Iterator[tuple[str, Callable[[], Row]]]:
    for data_type in TYPES:
        for kernel in LOCATIONS:
            for optimizer in OPTIMIZERS:
                yield f"refused/{kernel}/{data_type}/{optimizer}", (
                    lambda k=kernel, t=data_type, o=optimizer: refused(clock, k, t, o))  # fmt: skip
    pool = uniform_pool(2**22, clock.device)
    for words in groups():
        name = "/".join(map(str, words))
        yield f"group/{name}", lambda words=words: group(clock, pool, shrink, *words)


def groups() -> Iterator[tuple[str, str, str, str, float, float]]:
    """(tables, kernel, data type, optimizer, share of rows that a cache holds, zipf), the most telling ones first."""
    for kernel, share in (("fused_uvm_caching", 0.2), ("fused_uvm", 0.0), ("fused", 0.0)):
        for optimizer in STEPPED:
            for tables_ in GROUPS:
                yield tables_, kernel, "fp32", optimizer, share, 0.8
    for share in SHARES:
        for zipf in ZIPFS:
            for tables_ in ("even", "mixed"):
                yield tables_, "fused_uvm_caching", "fp32", "rowwise_adagrad", share, zipf
    for kernel, share in (("fused_uvm_caching", 0.2), ("fused_uvm", 0.0), ("fused", 0.0)):
        for optimizer in ("rowwise_adagrad", "sgd"):
            for tables_ in GROUPS:
                yield tables_, kernel, "fp16", optimizer, share, 0.8
    for zipf in ZIPFS:
        yield "even", "fused_uvm", "fp32", "rowwise_adagrad", 0.0, zipf
        yield "mixed", "fused_uvm", "fp32", "rowwise_adagrad", 0.0, zipf


def module_of(
    clock: timing.Clock, specs: list[tuple[int, int]], kernel: str, data_type: str, optimizer: str, **more: Any
) -> Any:  # fmt: skip
    """FBGEMM's tables of a kernel, as TorchRec makes them; on a CPU in its memory, whatever the kernel."""
    where = LOCATIONS[kernel] if clock.gpu else EmbeddingLocation.HOST
    compute = ComputeDevice.CUDA if clock.gpu else ComputeDevice.CPU
    if not clock.gpu and kernel != "fused":
        raise RuntimeError("a CPU has no managed memory")
    return SplitTableBatchedEmbeddingBagsCodegen(
        [(rows, dim, where, compute) for rows, dim in specs], optimizer=EmbOptimType[OPTIMIZERS[optimizer].fbgemm_name],
        weights_precision=TYPES[data_type], pooling_mode=PoolingMode.SUM, device=clock.device, learning_rate=0.01,
        **more,
    )  # fmt: skip


def refused(clock: timing.Clock, kernel: str, data_type: str, optimizer: str) -> Row:
    """How far two small tables come."""
    made = module_of(clock, [(1000, 16), (100, 16)], kernel, data_type, optimizer)
    if optimizer not in STEPPED:
        return {"reached": "constructed"}
    ids = torch.randint(0, 100, (256,), device=clock.device)
    offsets = torch.arange(0, 257, 2, device=clock.device)
    reached = "constructed"
    try:
        output = made(ids, offsets)
        reached = "forward"
        output.backward(torch.ones_like(output))
        if clock.gpu:
            torch.cuda.synchronize()
        reached = "trained"
    except Exception as error:  # the row tells it
        if any(each in str(error) for each in timing.BROKEN):
            raise
        return {"reached": reached, "error": type(error).__name__, "message": str(error).strip()[:600]}
    return {"reached": reached}


def memory_now(clock: timing.Clock) -> Row:
    if not clock.gpu:
        return {}
    torch.cuda.synchronize()
    free, whole = torch.cuda.mem_get_info()
    return {"allocated": torch.cuda.memory_allocated(), "reserved": torch.cuda.memory_reserved(), "used": whole - free}


def group(
    clock: timing.Clock, pool: Any, shrink: int, tables_: str, kernel: str, data_type: str, optimizer: str,
    share: float, zipf: float,
) -> Row:  # fmt: skip
    specs = [(max(100, rows // shrink), dim) for rows, dim in GROUPS[tables_]]
    batch = max(16, BATCH // shrink)
    drawn = [lookups_of(specs, batch, zipf, number, pool) for number in range(BATCHES)]
    caching = kernel == "fused_uvm_caching"
    more = {"cache_load_factor": share, "gather_uvm_cache_stats": True} if caching else {}
    if clock.gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    before = memory_now(clock)
    made = module_of(clock, specs, kernel, data_type, optimizer, **more)
    built = memory_now(clock)
    gradient = torch.full((batch, sum(dim for _, dim in specs)), 0.01, device=clock.device)
    times = []
    for number, (ids, offsets, _) in enumerate(drawn):
        if caching and number in (0, BATCHES - COUNTED):  # FBGEMM counts hits of the last batches, beside its time
            made.gather_uvm_cache_stats = number > 0
            if number:
                made.reset_uvm_cache_stats()
        prefetch_s = clock.once(lambda i=ids, o=offsets: made.prefetch(i, o))[1] if caching else 0.0
        output, forward_s = clock.once(lambda i=ids, o=offsets: made(i, o))
        backward_s = clock.once(lambda out=output: out.backward(gradient))[1]
        times.append((prefetch_s, forward_s, backward_s))
        del output
    stepped = memory_now(clock)
    buffers = {name: {"bytes": each.numel() * each.element_size(), "shape": list(each.shape)}
               for name, each in [*made.named_buffers(), *made.named_parameters()] if each.numel() > 1000}  # fmt: skip
    middle = [sorted(column)[len(column) // 2] for column in zip(*times[-TIMED - COUNTED : -COUNTED], strict=True)]
    return {
        "tables": specs, "kernel": kernel, "data_type": data_type, "optimizer": optimizer, "share": share, "zipf": zipf,
        "batch": batch, "pooling": POOLING, "prefetch_s": middle[0], "forward_s": middle[1], "backward_s": middle[2],
        "times": times, "ids": sum(len(ids) for ids, _, _ in drawn[:1]), "unique": [unique for *_, unique in drawn],
        "cache": made.get_uvm_cache_stats().tolist() if caching else None,
        "before": before, "built": built, "stepped": stepped,
        "peak": torch.cuda.max_memory_allocated() if clock.gpu else None, "buffers": buffers,
    }  # fmt: skip


def lookups_of(specs: list[tuple[int, int]], batch: int, zipf: float, number: int, pool: Any) -> tuple[Any, Any, int]:
    tables_ = tuple(
        Table(name=f"t{i}", num_embeddings=rows, embedding_dim=dim, access=AccessProfile(zipf=zipf),
              features=(Feature(name=f"t{i}", pooling_factor=POOLING),)) for i, (rows, dim) in enumerate(specs)
    )  # fmt: skip
    case = Case(seed=86, number=number, workload=Workload(batch_size=batch, optimizer="sgd", tables=tables_))
    found = draw_lookups(case, pool)
    return found.ids, found.offsets, sum(found.unique_rows)


# --- the tables ------------------------------------------------------------------------------------------------------


def tables(path: Path) -> Iterator[str]:
    rows = [json.loads(line) for line in path.open()]
    yield from refusals([row for row in rows if row["case"].startswith("refused/")])
    yield from of_groups([row for row in rows if row["case"].startswith("group/")])


def refusals(rows: list[Row]) -> Iterator[str]:
    """What each kernel and type train, and in which words the others are refused."""
    yield "| kernel | data type | " + " | ".join(OPTIMIZERS) + " |\n|---|---|" + "---|" * len(OPTIMIZERS)
    notes: list[str] = []
    found = {row["case"]: row for row in rows}
    for kernel in LOCATIONS:
        for data_type in TYPES:
            cells = []
            for optimizer in OPTIMIZERS:
                row = found.get(f"refused/{kernel}/{data_type}/{optimizer}", {})
                message = row.get("message", "").splitlines()
                if message and message[0] not in notes:
                    notes.append(message[0])
                where = row.get("reached", "refused" if row else "-")
                cells.append(f"{where} ({notes.index(message[0]) + 1})" if message else where)
            yield f"| {kernel} | {data_type} | {' | '.join(cells)} |"
    yield from (f"\n{number}. {note}" for number, note in enumerate(notes, 1))


def of_groups(rows: list[Row]) -> Iterator[str]:
    """Bytes taken beside those planned, and seconds of a step."""
    yield ("\n| tables | kernel | type | optimizer | cache, zipf | hits | device, MiB: taken, planned | of a step "
           "| managed, MiB | prefetch, ms | forward | backward |\n|" + "---|" * 12)  # fmt: skip
    far: dict[str, list[float]] = {"at rest": [], "of a step": [], "managed": []}
    for row in rows:
        if row["status"] != "ok":
            yield f"| {row['case']} | failed: {row.get('message', '')[:100]} |"
            continue
        managed = sum(each["bytes"] for name, each in row["buffers"].items() if name.endswith("_uvm"))
        taken = row["built"].get("allocated", 0) - row["before"].get("allocated", 0)
        gradient = row["batch"] * sum(dim for _, dim in row["tables"]) * 4  # that group() makes before the first step
        step = (row["peak"] or 0) - row["built"].get("allocated", 0) - gradient
        pairs = {"at rest": taken, "of a step": step, "managed": managed}
        planned = planned_of(row)
        for name, found in pairs.items():
            if found > LEAST_BYTES:
                far[name].append(planned[name] / found - 1)
        cells = [f"{found / 2**20:,.0f}, {planned[name] / 2**20:,.0f}" for name, found in pairs.items()]
        yield (f"| {row['case'].split('/')[1]} | {row['kernel']} | {row['data_type']} | {row['optimizer']} "
               f"| {row['share']:g}, {row['zipf']:g} | {hit_share(row)} | {' | '.join(cells)} "
               f"| {row['prefetch_s'] * 1e3:.2f} "
               f"| {row['forward_s'] * 1e3:.2f} | {row['backward_s'] * 1e3:.2f} |")  # fmt: skip

    yield "\n| device and managed bytes: planned over taken | groups | least | most |\n|---|---|---|---|"
    for name, values in far.items():
        if values:
            yield f"| {name} | {len(values)} | {min(values):+.1%} | {max(values):+.1%} |"


def planned_of(row: Row) -> dict[str, int]:
    """Bytes that the accounting `real` plans for a group, whose tables share one cache where they have one."""
    rows, width = np.array(row["tables"], dtype=np.int64).T
    like: Any = np.ones_like(rows)
    ids = like * (row["ids"] / len(rows))
    never = np.zeros(len(rows), dtype=bool)
    kernel = next(each.number for each in KERNELS if each.name == row["kernel"])
    pieces = Pieces(
        rows=rows, width=width, table_rows=rows, table_dim=width, ids=ids, bags=like * float(row["batch"]),
        element_bytes=like * {"fp32": 4, "fp16": 2}[row["data_type"]], outputs=like * float(row["batch"]),
        weighted=never, int8=never, data_parallel=never, kernel=like * kernel,
        cache_load_factor=like * float(row["share"]), slot_width=like * width.max(),
    )  # fmt: skip
    parts = {name: int(sum(each)) for name, each in device_parts("real", pieces, row["optimizer"], "none").items()}
    outputs = int(real_parts(pieces, row["optimizer"], "none").outputs.sum())
    return {
        "at rest": parts["weights"] + parts["optimizer state"] + parts["cache"],
        "of a step": outputs + parts["sorting"],  # the ids of all batches were there before
        "managed": int(real_bytes(pieces, row["optimizer"], "none").host.sum()),
    }


def hit_share(row: Row) -> str:
    """Share of different rows that the cache held, of FBGEMM's counts: calls, ids, different ids, missed ones."""
    if not row["cache"] or not row["cache"][2]:
        return ""
    _, _, unique, missed, *_ = row["cache"]
    return f"{1 - missed / unique:.0%}"


if __name__ == "__main__":
    main()
