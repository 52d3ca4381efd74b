"""Measures a model's workload on its own data: pooling factors, poolings and access profiles."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from torch import nn
from torchrec.distributed.sharding_plan import get_default_sharders
from torchrec.distributed.types import ModuleSharder
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from recsmith.adapters.access_counts import AccessCounts
from recsmith.adapters.workload import read_workload
from recsmith.errors import UsageError
from recsmith.workloads import Workload


def observe(
    batches: Iterable[Any],
    model: nn.Module,
    sharders: Sequence[ModuleSharder[nn.Module]] | None = None,
    *,
    batch_size: int | None = None,
    count: int = 50,
    optimizer: str | None = None,
) -> Workload:
    """The workload of a model with pooling factors, poolings and access profiles measured on its own data.

    workload = observe(train_loader, model)
    recsmith.save_workload(workload, "tables.json")     # then: recsmith plan tables.json --cluster h100:8

    Args:
        batches: any iterable, such as the DataLoader of training; at most `count` batches are taken, and an iterator is
            not asked for one more. A batch is a KeyedJaggedTensor or contains some. Its members are searched in their
            order, then the members of these, and no deeper (values of mappings, items of lists and tuples, fields or
            attributes of objects; properties are not called). Keys are the features of the model's tables; further
            keys are ignored.
        model: the model, before it is sharded.
        sharders: the sharders of the job; TorchRec's defaults by default.
        batch_size: samples per device and step of the workload; by default the mean of the observed batches, rounded.
            It does not change the measured numbers, which are per sample; the access profile is that of the observed
            batches in any case.
        count: the most batches that are observed.
        optimizer: replaces the one attached to the model's parameters.

    The number of samples in a batch is the largest stride of those of its KeyedJaggedTensors that the model reads.
    num_poolings is bags per sample (1 unless strides vary per key or differ), pooling_factor is ids per bag. Features
    are weighted if a weighted collection reads them, or if they are sequences whose ids carry weights.

    Access is counted at the local batch: reads of a row are counted within one batch, as kernels see one at a time.
    The bins are pooled over all rows of all batches; lookups and unique_rows are means per batch, rounded, at least 1.
    A table that no id reads has pooling factors 0 and no access profile.

    Raises:
        UsageError: there is no batch, a batch holds no KeyedJaggedTensor, a feature is in no batch or twice in one, ids
            are outside their table, or the model cannot be read (see read_workload).
    """
    if count < 1:
        raise UsageError(f"count is {count}; observe at least 1 batch")
    planned = 1 if batch_size is None else batch_size
    workload = read_workload(model, sharders or get_default_sharders(), batch_size=planned, optimizer=optimizer)
    counts = AccessCounts(workload.tables)
    for batch in islice(_iterate(batches), count):
        counts.add(batch)
    counts.check()
    size = max(1, round(counts.samples / counts.batches)) if batch_size is None else batch_size
    tables = tuple(counts.measured(table) for table in workload.tables)
    return replace(workload, batch_size=size, tables=tables, source=f"observed: {counts.batches} batches")


def _iterate(batches: Iterable[Any]) -> Iterator[Any]:
    if isinstance(batches, KeyedJaggedTensor):
        raise UsageError("batches is one KeyedJaggedTensor; give an iterable of batches, such as [batch]")
    try:
        return iter(batches)
    except TypeError:
        raise UsageError(
            f"batches is a {type(batches).__name__}, which cannot be iterated; give a DataLoader or a list of batches"
        ) from None
