"""Which store holds the rows of a run's tables on a rank (protocol.py); the run names it as `rows`.

Checkpoints, export, initial weights and re-learned hash functions walk through a rank's shards by its store. Nothing in
this file needs torch.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from recsmith._components import make
from recsmith.training.seams import ROWS


def store_of(wanted: object, model: Any, optimizer: Any) -> Any:
    """The RowStore of a sharded model and its optimizer. wanted: a name or 'module:Class', with settings.

    Raises:
        UsageError: no store has this name, or it refuses the model.
    """
    return make(ROWS, wanted, model, optimizer, where="rows")


def fetched_ahead(batches: Iterable[Any], rows: Any) -> Iterator[Any]:
    """The batches, after the store has fetched the rows of each."""
    for batch in batches:
        rows.prefetch(batch)
        yield batch
