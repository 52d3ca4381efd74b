"""FBGEMM's operator that finds the different ids of a batch, on CPU, where FBGEMM 1.8 has it for CUDA alone.

TorchRec's EmbeddingCollectionSharder(use_index_dedup=True) calls it before ids leave a rank, and afterwards gives each
id its row again. Legend: F features, T + 1 of them where tables begin, B samples, N ids, U different ones.
"""

import itertools
from functools import cache
from typing import Any

import torch
from torchrec.distributed.embedding import EmbeddingCollectionSharder

from recsmith.workloads import Workload

NAME = "fbgemm::jagged_unique_indices"
Found = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def deduplicating(sharders: list[Any], workload: Workload) -> list[Any]:
    """The sharders with use_index_dedup as the workload says, in the place of the stock sharder of sequences.

    Sharders of one's own are left as they are.
    """
    if workload.index_dedup != "on":
        return sharders
    on_cpu()
    return [
        EmbeddingCollectionSharder(each.fused_params, each.qcomm_codecs_registry, use_index_dedup=True)
        if type(each) is EmbeddingCollectionSharder
        else each
        for each in sharders
    ]


def deduplicates(sharder: Any) -> bool:
    """Whether a sharder looks equal ids up once."""
    return bool(getattr(sharder, "_use_index_dedup", False))


@cache
def on_cpu() -> None:
    """Have CPU tensors deduplicated, too; nothing where FBGEMM does so itself."""
    if torch._C._dispatch_has_kernel_for_dispatch_key(NAME, "CPU"):
        return
    _library().impl(NAME.partition("::")[2], jagged_unique_indices, "CPU")


@cache
def _library() -> Any:
    """What keeps the kernel registered: it lasts as long as this object."""
    return torch.library.Library("fbgemm", "IMPL")


def jagged_unique_indices(
    hash_size_cumsum: torch.Tensor, hash_size_offsets: torch.Tensor, offsets: torch.Tensor, indices: torch.Tensor
) -> Found:
    """(lengths (F B,), offsets (F B + 1,), different ids (U,), the place of each id among them (N,)).

    hash_size_cumsum (F + 1,): rows before those of a feature's table. hash_size_offsets (F + 1,): a table's first
    feature begins at its own number and ends behind its last one; others are empty. offsets (F B + 1,): of bags.
    Features of a table share its different ids, which are spread evenly over its bags.
    """
    features = len(hash_size_cumsum) - 1
    samples = (len(offsets) - 1) // features
    counts = offsets[::samples].diff() if samples else offsets.new_zeros(features)
    linear = indices + hash_size_cumsum[:-1].repeat_interleave(counts)
    different, place = torch.unique(linear, return_inverse=True)
    ids = torch.empty_like(different).scatter_(0, place, indices)
    before = torch.searchsorted(different, hash_size_cumsum)  # different ids of tables before each feature
    lengths = torch.zeros(features, samples, dtype=offsets.dtype)
    for first, last in itertools.pairwise(hash_size_offsets.tolist()):
        if last > first and samples:
            lengths[first:last] = _spread(int(before[last] - before[first]), (last - first) * samples).view(-1, samples)
    lengths = lengths.flatten()
    return lengths, torch.cat([lengths.new_zeros(1), lengths.cumsum(0)]), ids, place


def _spread(ids: int, bags: int) -> torch.Tensor:
    """Lengths of bags that share ids evenly: the first ones hold one more."""
    return torch.full((bags,), ids // bags) + (torch.arange(bags) < ids % bags)
