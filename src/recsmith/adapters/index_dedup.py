"""A CPU version of FBGEMM's operator that finds the distinct ids of a batch; FBGEMM 1.8 has it for CUDA only.

TorchRec's EmbeddingCollectionSharder(use_index_dedup=True) calls it before ids leave a rank, and afterwards copies each
row back to all its ids. Legend: F features, B samples, N ids, U distinct ids.
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
    """The sharders, with use_index_dedup in TorchRec's sharder of sequence tables if the workload asks for it.

    Sharders of other classes are returned unchanged.
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
    """Whether a sharder looks up equal ids once."""
    return bool(getattr(sharder, "_use_index_dedup", False))


@cache
def on_cpu() -> None:
    """Register the operator for CPU tensors, unless FBGEMM has done so itself."""
    if torch._C._dispatch_has_kernel_for_dispatch_key(NAME, "CPU"):
        return
    _library().impl(NAME.partition("::")[2], jagged_unique_indices, "CPU")


@cache
def _library() -> Any:
    """The library object that keeps the kernel registered as long as the object exists."""
    return torch.library.Library("fbgemm", "IMPL")


def jagged_unique_indices(
    hash_size_cumsum: torch.Tensor, hash_size_offsets: torch.Tensor, offsets: torch.Tensor, indices: torch.Tensor
) -> Found:
    """Lengths of bags (F B,), their offsets (F B + 1,), distinct ids (U,), position of each id among them (N,).

    The distinct ids of a table are spread evenly over the bags of all its features.

    Args:
        hash_size_cumsum: (F + 1,), the number of rows of all tables before a feature's table.
        hash_size_offsets: (F + 1,); the range from one element to the next is the features of a table at the table's
            first feature, and empty at its other features.
        offsets: (F B + 1,), where bags begin in `indices`.
        indices: (N,), the ids.
    """
    features = len(hash_size_cumsum) - 1
    samples = (len(offsets) - 1) // features
    counts = offsets[::samples].diff() if samples else offsets.new_zeros(features)
    linear = indices + hash_size_cumsum[:-1].repeat_interleave(counts)
    different, place = torch.unique(linear, return_inverse=True)
    ids = torch.empty_like(different).scatter_(0, place, indices)
    before = torch.searchsorted(different, hash_size_cumsum)  # distinct ids of all tables before each feature's
    lengths = torch.zeros(features, samples, dtype=offsets.dtype)
    for first, last in itertools.pairwise(hash_size_offsets.tolist()):
        if last > first and samples:
            lengths[first:last] = _spread(int(before[last] - before[first]), (last - first) * samples).view(-1, samples)
    lengths = lengths.flatten()
    return lengths, torch.cat([lengths.new_zeros(1), lengths.cumsum(0)]), ids, place


def _spread(ids: int, bags: int) -> torch.Tensor:
    """Lengths of `bags` bags that share `ids` ids evenly: the first bags hold one more."""
    return torch.full((bags,), ids // bags) + (torch.arange(bags) < ids % bags)
