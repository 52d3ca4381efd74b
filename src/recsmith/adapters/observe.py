"""A model's workload with pooling factors, poolings and access profiles measured on its own data."""

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

    batches: any iterable, such as the DataLoader of training; at most `count` batches are taken, and an iterator is
        not asked for one more. A batch is a KeyedJaggedTensor or holds some: its members are searched in their order,
        then theirs, and no deeper (values of mappings, items of lists and tuples, fields or attributes of objects;
        properties are not called). Their keys are the features of the model's tables; further keys are ignored.
    batch_size: samples per device and step of the workload; the mean of the observed batches, rounded, by default.
        It does not change what is measured, which is per sample, except that access stays that of observed batches.
    optimizer: instead of the one attached to the model's parameters.

    A batch has as many samples as the largest stride of its KeyedJaggedTensors that the model reads. num_poolings is
    bags per sample (1 but with a variable stride per key, or where strides differ), pooling_factor is ids per bag.
    Weighted is what a weighted collection reads, and sequences whose ids carry weights.

    Access is counted at the local batch: reads of a row are counted within one batch, as kernels see one at a time.
    The bins are pooled over all rows of all batches, lookups and unique_rows are means per batch, rounded, at least 1.
    A table that no id reads has pooling factors 0 and no access profile.

    Raises:
        UsageError: no batch, no KeyedJaggedTensor in one, a feature that no batch has or that one has twice, ids
            outside their table, or a model that cannot be read (see read_workload).
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
