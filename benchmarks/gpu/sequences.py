# pyright: basic
"""Sequences on a GPU: unpooled lookups with and without deduplicated ids, HSTU's attention, its dense layers, a step.

python benchmarks/gpu/sequences.py rows.jsonl --seconds 70               # on the GPU
python benchmarks/gpu/sequences.py rows.jsonl --device cpu --seconds 20 --shrink 64
python benchmarks/gpu/sequences.py --show rows.jsonl

HSTU's attention is silu(q k^T + bias) / N over the causal part of each sequence, without softmax (Zhai et al., ICML
2024, equation 2); its public PyTorch form pads sequences, and so does `padded` here, by FBGEMM's jagged operators.
`softmax` is PyTorch's scaled_dot_product_attention over the same padded sequences, whose fused kernels are what a fused
HSTU kernel is comparable with; `nested` gives it jagged tensors. Lengths of a batch are even between 1 and the longest.
A case measures forward and backward; `layers` are layer norm and the linear layer of u, v, q and k over all tokens.
"""

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fbgemm_gpu  # noqa: F401 - its operators
import timing
import torch
from fbgemm_gpu.split_embedding_configs import EmbOptimType, SparseType
from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation, PoolingMode
from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
    ComputeDevice,
    SplitTableBatchedEmbeddingBagsCodegen,
)
from torch import Tensor, nn
from torch.nn import functional

from recsmith.workloads.optimizers import OPTIMIZERS

Row = dict[str, Any]
ROWS = 4_000_000
SEQUENCE = 512  # ids of a sequence: FBGEMM gives the ids of one sequence to one warp, which takes them in turn
MOST_SCORES = 2**31  # elements of all attention scores of a case
jagged = torch.ops.fbgemm


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=Path, nargs="?")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=70.0)
    parser.add_argument("--shrink", type=int, default=1, help="so many times fewer ids and tokens, for a rehearsal")
    parser.add_argument("--show", type=Path)
    options = parser.parse_args()
    if options.show:
        print("\n".join(tables(options.show)))
        return
    torch.backends.cuda.matmul.allow_tf32 = False
    clock = timing.Clock(options.device)
    kinds = [list(each(clock, options.shrink)) for each in (lookups, attentions, layers, steps)]
    turns = [case for turn in range(max(map(len, kinds))) for kind in kinds for case in kind[turn : turn + 1]]
    timing.run(turns, options.rows, options.seconds, options.device)


Cases = Iterator[tuple[str, Callable[[], Row]]]


# --- lookups ---------------------------------------------------------------------------------------------------------


def lookups(clock: timing.Clock, shrink: int) -> Cases:
    """Unpooled lookups, the middle sizes first; repeated is the share of ids that another id of the batch repeats."""
    for count in (2**20, 2**17, 2**22):
        for dim in (128, 256, 64, 512):
            for repeated in (0.9, 0.5, 0.98, 0.0):
                for optimizer, data_type in (("rowwise_adagrad", "fp32"), ("sgd", "fp32"), ("rowwise_adagrad", "fp16")):
                    if (optimizer, data_type) != ("rowwise_adagrad", "fp32") and (dim, count) != (128, 2**20):
                        continue
                    words = (max(64, count // shrink), dim, repeated, optimizer, data_type)
                    yield "lookup/" + "/".join(map(str, words)), lambda w=words: lookup(clock, *w)


def lookup(clock: timing.Clock, count: int, dim: int, repeated: float, optimizer: str, data_type: str) -> Row:
    """Seconds without and with deduplicated ids: finding them, looking them up, and giving each id its row again."""
    generator = torch.Generator(clock.device).manual_seed(0)
    different = max(1, round(count * (1 - repeated)))
    rows = max(ROWS, different) if clock.gpu else max(10_000, different)
    chosen = torch.randint(0, rows, (different,), device=clock.device, generator=generator)
    ids = chosen[torch.randint(0, different, (count,), device=clock.device, generator=generator)]
    if not repeated:
        ids = chosen
    made = SplitTableBatchedEmbeddingBagsCodegen(
        [(rows, dim, EmbeddingLocation.DEVICE if clock.gpu else EmbeddingLocation.HOST,
          ComputeDevice.CUDA if clock.gpu else ComputeDevice.CPU)],
        optimizer=EmbOptimType[OPTIMIZERS[optimizer].fbgemm_name], pooling_mode=PoolingMode.NONE, device=clock.device,
        weights_precision=SparseType.FP32 if data_type == "fp32" else SparseType.FP16, learning_rate=0.01,
    )  # fmt: skip
    made.init_embedding_weights_uniform(-0.01, 0.01)
    offsets = _even_offsets(count, max(1, count // SEQUENCE), clock.device)
    plain = clock.both(lambda: made(ids, offsets))
    unique_s = clock.best(lambda: torch.unique(ids, return_inverse=True))
    unique, inverse = torch.unique(ids, return_inverse=True)
    few = _even_offsets(len(unique), len(offsets) - 1, clock.device)  # as TorchRec's deduplication spreads them
    alone = clock.both(lambda: made(unique, few))
    held = made(unique, few).detach().requires_grad_()
    spread = clock.both(lambda: held.index_select(0, inverse))
    return {
        "count": count, "sequences": len(offsets) - 1, "dim": dim, "rows": rows, "different": len(unique),
        "optimizer": optimizer, "data_type": data_type, **plain,
        "unique_s": unique_s, "unique_forward_s": alone["forward_s"],
        "unique_backward_s": alone["backward_s"], "expand_forward_s": spread["forward_s"],
        "expand_backward_s": spread["backward_s"],
        "fbgemm_unique_s": _fbgemm_unique(clock, ids, rows),
    }  # fmt: skip


def _even_offsets(ids: int, sequences: int, device: Any) -> Tensor:
    """Offsets of sequences that are as long as one another, but for one id."""
    return torch.arange(sequences + 1, device=device) * ids // sequences


def _fbgemm_unique(clock: timing.Clock, ids: Tensor, rows: int) -> float | None:
    """Seconds of the operator that TorchRec's own deduplication calls; None where FBGEMM has it not on this device."""
    sizes, offsets = torch.tensor([0, rows], device=ids.device), torch.tensor([0, 1], device=ids.device)
    bags = torch.tensor([0, len(ids)], device=ids.device)
    try:
        return clock.best(lambda: jagged.jagged_unique_indices(sizes, offsets, bags, ids))
    except (RuntimeError, NotImplementedError):
        return None


# --- attention -------------------------------------------------------------------------------------------------------


def attentions(clock: timing.Clock, shrink: int) -> Cases:
    for data_type in ("bf16", "fp32"):
        for longest, heads, dim in ((1024, 4, 64), (256, 4, 64), (4096, 4, 64), (512, 4, 64), (2048, 4, 64),
                                    (1024, 2, 64), (1024, 8, 64), (1024, 4, 32), (1024, 4, 128), (256, 8, 32),
                                    (4096, 2, 128), (8192, 4, 64)):  # fmt: skip
            for how in ("padded", "softmax", "nested", "bmm"):
                if data_type == "fp32" and how != "padded":
                    continue
                tokens = max(2 * 64, 131_072 // shrink)
                kept = max(16, longest // shrink) if shrink > 1 else longest
                batch = max(1, min(tokens * 2 // kept, MOST_SCORES // (heads * kept * kept)))
                words = (how, data_type, batch, kept, heads, dim)
                yield "attention/" + "/".join(map(str, words)), lambda w=words: attention(clock, *w)


def lengths_of(batch: int, longest: int, device: Any) -> Tensor:
    generator = torch.Generator(device).manual_seed(0)
    return torch.randint(1, longest + 1, (batch,), device=device, generator=generator)


def attention(clock: timing.Clock, how: str, data_type: str, batch: int, longest: int, heads: int, dim: int) -> Row:
    lengths = lengths_of(batch, longest, clock.device)
    offsets = jagged.asynchronous_complete_cumsum(lengths)
    tokens, kind = int(offsets[-1]), torch.bfloat16 if data_type == "bf16" else torch.float32
    parts = [torch.randn(tokens, heads * dim, device=clock.device, dtype=kind, requires_grad=True) for _ in range(3)]
    call = {"padded": padded, "softmax": softmax, "nested": nested, "bmm": by_products}[how]
    if clock.gpu:
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    times = clock.both(lambda: call(parts, offsets, longest, heads, dim), repetitions=4)
    return {
        "how": how, "data_type": data_type, "batch": batch, "longest": longest, "heads": heads, "dim": dim,
        "tokens": tokens, "pairs": int((lengths.double() ** 2).sum()), **times,
        "peak": torch.cuda.max_memory_allocated() - before if clock.gpu else None,
    }  # fmt: skip


def split_heads(values: Tensor, offsets: Tensor, longest: int, heads: int, dim: int) -> Tensor:
    """Jagged (tokens, heads * dim) -> padded (batch, heads, longest, dim)."""
    dense = jagged.jagged_to_padded_dense(values, [offsets], [longest], 0.0)
    return dense.view(-1, longest, heads, dim).transpose(1, 2)


def joined(values: Tensor, offsets: Tensor, tokens: int) -> Tensor:
    """Padded (batch, heads, longest, dim) -> jagged (tokens, heads * dim)."""
    batch, heads, longest, dim = values.shape
    return jagged.dense_to_jagged(values.transpose(1, 2).reshape(batch, longest, heads * dim), [offsets], tokens)[0]


def padded(parts: list[Tensor], offsets: Tensor, longest: int, heads: int, dim: int) -> Tensor:
    q, k, v = (split_heads(each, offsets, longest, heads, dim) for each in parts)
    scores = functional.silu(q @ k.transpose(-2, -1)) / longest
    scores = scores * torch.ones(longest, longest, device=q.device, dtype=q.dtype).tril()
    return joined(scores @ v, offsets, len(parts[0]))


def softmax(parts: list[Tensor], offsets: Tensor, longest: int, heads: int, dim: int) -> Tensor:
    q, k, v = (split_heads(each, offsets, longest, heads, dim) for each in parts)
    return joined(functional.scaled_dot_product_attention(q, k, v, is_causal=True), offsets, len(parts[0]))


def nested(parts: list[Tensor], offsets: Tensor, longest: int, heads: int, dim: int) -> Tensor:
    q, k, v = (
        torch.nested.nested_tensor_from_jagged(each.view(-1, heads, dim), offsets, max_seqlen=longest).transpose(1, 2)
        for each in parts
    )
    found = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    return found.transpose(1, 2).values().reshape(-1, heads * dim)


def by_products(parts: list[Tensor], offsets: Tensor, longest: int, *_: int) -> Tensor:
    """silu(k^T v) by FBGEMM's jagged products: attention over columns, linear in the length."""
    q, k, v = parts
    columns = jagged.jagged_jagged_bmm(k, v, offsets, longest)  # (batch, heads * dim, heads * dim)
    return jagged.jagged_dense_bmm(q, functional.silu(columns) / longest, offsets, longest)[0]


# --- layers and a step -----------------------------------------------------------------------------------------------


def layers(clock: timing.Clock, shrink: int) -> Cases:
    for data_type in ("bf16", "fp32"):
        for tokens in (131_072, 16_384, 524_288):
            for width, heads, dim in ((512, 4, 64), (256, 4, 64), (1024, 8, 64), (512, 8, 32)):
                for layer in ("norm", "uvqk", "output", "rowwise"):
                    words = (layer, data_type, max(64, tokens // shrink), width, heads, dim)
                    yield "layer/" + "/".join(map(str, words)), lambda w=words: layer_of(clock, *w)


def layer_of(clock: timing.Clock, layer: str, data_type: str, tokens: int, width: int, heads: int, dim: int) -> Row:
    """norm: layer norm of tokens; uvqk: its linear layer and silu; output: norm of attention, gate, linear, sum."""
    kind = torch.bfloat16 if data_type == "bf16" else torch.float32
    inputs = torch.randn(tokens, width, device=clock.device, dtype=kind, requires_grad=True)
    inner = heads * dim
    uvqk = nn.Linear(width, 4 * inner).to(clock.device, kind)
    out = nn.Linear(inner, width).to(clock.device, kind)
    norm = nn.LayerNorm(width).to(clock.device, kind)
    inner_norm = nn.LayerNorm(inner).to(clock.device, kind)
    mixed = torch.randn(tokens, inner, device=clock.device, dtype=kind, requires_grad=True)
    gate = torch.randn(tokens, inner, device=clock.device, dtype=kind, requires_grad=True)
    calls = {
        "norm": lambda: norm(inputs),
        "uvqk": lambda: functional.silu(uvqk(inputs)),
        "output": lambda: inputs + out(inner_norm(mixed) * gate),
        "rowwise": lambda: inputs * torch.sigmoid(inputs),
    }
    return {"layer": layer, "data_type": data_type, "tokens": tokens, "width": width, "heads": heads, "dim": dim,
            **clock.both(calls[layer])}  # fmt: skip


class Block(nn.Module):
    """One layer of HSTU over jagged sequences."""

    def __init__(self, width: int, heads: int, dim: int) -> None:
        super().__init__()
        self.heads, self.dim = heads, dim
        self.norm, self.inner = nn.LayerNorm(width), nn.LayerNorm(heads * dim)
        self.uvqk, self.out = nn.Linear(width, 4 * heads * dim), nn.Linear(heads * dim, width)

    def forward(self, x: Tensor, offsets: Tensor, longest: int) -> Tensor:
        """(tokens, width) -> (tokens, width)."""
        u, *parts = functional.silu(self.uvqk(self.norm(x))).chunk(4, dim=-1)
        mixed = padded([parts[1], parts[2], parts[0]], offsets, longest, self.heads, self.dim)
        return x + self.out(self.inner(mixed) * u)


def steps(clock: timing.Clock, shrink: int) -> Cases:
    for batch, longest, width, blocks in ((128, 512, 256, 3), (32, 2048, 256, 3), (128, 512, 512, 5),
                                          (512, 256, 256, 3), (128, 512, 256, 1)):  # fmt: skip
        for data_type in ("bf16", "fp32"):
            words = (data_type, max(2, batch // shrink), longest if shrink == 1 else 32, width, blocks)
            yield "step/" + "/".join(map(str, words)), lambda w=words: step(clock, *w)


def step(clock: timing.Clock, data_type: str, batch: int, longest: int, width: int, blocks: int) -> Row:
    """Whole steps of a small DLRM-v4: an unpooled lookup, layers of HSTU, a perceptron over the last token, SGD."""
    import time

    kind = torch.bfloat16 if data_type == "bf16" else torch.float32
    heads, dim = width // 64, 64
    rows = ROWS if clock.gpu else 10_000
    table = SplitTableBatchedEmbeddingBagsCodegen(
        [(rows, width, EmbeddingLocation.DEVICE if clock.gpu else EmbeddingLocation.HOST,
          ComputeDevice.CUDA if clock.gpu else ComputeDevice.CPU)],
        optimizer=EmbOptimType.EXACT_ROWWISE_ADAGRAD, pooling_mode=PoolingMode.NONE, device=clock.device,
        learning_rate=0.01,
    )  # fmt: skip
    table.init_embedding_weights_uniform(-0.01, 0.01)
    net = nn.ModuleList([Block(width, heads, dim) for _ in range(blocks)]).to(clock.device, kind)
    head = nn.Sequential(nn.Linear(width, 512), nn.ReLU(), nn.Linear(512, 1)).to(clock.device, kind)
    optimizer = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=0.001)
    batches = []
    for _ in range(4):
        lengths = torch.randint(1, longest + 1, (batch,), device=clock.device)
        offsets = jagged.asynchronous_complete_cumsum(lengths)
        ids = torch.randint(0, rows, (int(offsets[-1]),), device=clock.device)
        batches.append((ids, torch.tensor([0, len(ids)], device=clock.device), offsets))
    labels = torch.rand(batch, device=clock.device).round()

    def once(number: int) -> None:
        ids, bags, offsets = batches[number % len(batches)]
        optimizer.zero_grad()
        x = table(ids, bags).to(kind)
        for block in net:
            x = block(x, offsets, longest)
        last = head(x[offsets[1:] - 1]).float().squeeze(-1)
        functional.binary_cross_entropy_with_logits(last, labels).backward()
        optimizer.step()

    for number in range(4):
        once(number)
    if clock.gpu:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    begun, host = time.perf_counter(), time.thread_time()
    for number in range(12):
        once(number)
    queued_s, host_s = (time.perf_counter() - begun) / 12, (time.thread_time() - host) / 12
    if clock.gpu:
        torch.cuda.synchronize()
    step_s = (time.perf_counter() - begun) / 12
    device_s = min(clock.once(lambda n=number: once(n))[1] for number in range(4))
    return {"data_type": data_type, "batch": batch, "longest": longest, "width": width, "blocks": blocks,
            "tokens": [len(ids) for ids, *_ in batches], "step_s": step_s, "queued_s": queued_s, "host_s": host_s,
            "device_s": device_s, "peak": torch.cuda.max_memory_allocated() if clock.gpu else None}  # fmt: skip


# --- the tables ------------------------------------------------------------------------------------------------------


def tables(path: Path) -> Iterator[str]:
    rows = [json.loads(line) for line in path.open()]
    good = [row for row in rows if row["status"] == "ok"]
    yield f"{len(good):,} of {len(rows):,} cases\n"
    for row in rows:
        if row["status"] != "ok":
            yield f"failed: {row['case']}: {row.get('error')}: {row.get('message', '')[:150]}"
    yield ("\n| unpooled lookups: ids | columns | repeated | optimizer, type | plain: forward, ms | backward "
           "| deduplicated: unique | lookup | expand | backward | whole, of plain |\n|" + "---|" * 11)  # fmt: skip
    for row in good:
        if row["case"].startswith("lookup/"):
            yield lookup_line(row)
    yield ("\n| attention | type | batch | longest | heads, dim | tokens | forward, ms | backward | TFLOP/s "
           "| peak, MiB |\n|" + "---|" * 10)  # fmt: skip
    for row in good:
        if row["case"].startswith("attention/"):
            flops = 4 * row["pairs"] / 2 * row["heads"] * row["dim"]  # two products, the causal half
            yield (f"| {row['how']} | {row['data_type']} | {row['batch']} | {row['longest']:,} "
                   f"| {row['heads']}, {row['dim']} | {row['tokens']:,} "
                   f"| {row['forward_s'] * 1e3:.3f} | {row['backward_s'] * 1e3:.3f} "
                   f"| {flops / row['forward_s'] / 1e12:.1f} | {(row['peak'] or 0) / 2**20:,.0f} |")  # fmt: skip
    yield "\n| layer | type | tokens | width, heads, dim | forward, ms | backward |\n|" + "---|" * 6
    for row in good:
        if row["case"].startswith("layer/"):
            yield (f"| {row['layer']} | {row['data_type']} | {row['tokens']:,} "
                   f"| {row['width']}, {row['heads']}, {row['dim']} "
                   f"| {row['forward_s'] * 1e3:.3f} | {row['backward_s'] * 1e3:.3f} |")  # fmt: skip
    yield (
        "\n| step | type | batch | longest | width, blocks | tokens | step, ms | device | host | peak, MiB |\n|"
        + "---|" * 10
    )
    for row in good:
        if row["case"].startswith("step/"):
            tokens = sum(row["tokens"]) // len(row["tokens"])
            yield (f"| small DLRM-v4 | {row['data_type']} | {row['batch']} | {row['longest']:,} "
                   f"| {row['width']}, {row['blocks']} | {tokens:,} | {row['step_s'] * 1e3:.2f} "
                   f"| {row['device_s'] * 1e3:.2f} | {row['host_s'] * 1e3:.2f} "
                   f"| {(row['peak'] or 0) / 2**20:,.0f} |")  # fmt: skip


def lookup_line(row: Row) -> str:
    plain = row["forward_s"] + row["backward_s"]
    backward = row["unique_backward_s"] + row["expand_backward_s"]
    whole = row["unique_s"] + row["unique_forward_s"] + row["expand_forward_s"] + backward
    return (
        f"| {row['count']:,} | {row['dim']} | {1 - row['different'] / row['count']:.0%} | {row['optimizer']}, "
        f"{row['data_type']} "
        f"| {row['forward_s'] * 1e3:.3f} | {row['backward_s'] * 1e3:.3f} "
        f"| {row['unique_s'] * 1e3:.3f} | {row['unique_forward_s'] * 1e3:.3f} | {row['expand_forward_s'] * 1e3:.3f} "
        f"| {backward * 1e3:.3f} "
        f"| {whole / plain:.2f} |"
    )


if __name__ == "__main__":
    main()
