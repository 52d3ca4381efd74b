"""Who holds the rows of a run's tables on a rank: a store (protocol.py), which the run names as `rows`.

Checkpoints, export, the first weights and hashes that are learned again walk shards through a store. Nothing in this
file needs torch.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from recsmith._components import make
from recsmith.training.seams import ROWS


def store_of(wanted: object, model: Any, optimizer: Any) -> Any:
    """The RowStore of a sharded model and its optimizer. wanted: a name or 'module:Class', with settings.

    Raises:
        UsageError: nothing is called so, or it refuses the model.
    """
    return make(ROWS, wanted, model, optimizer, where="rows")


def fetched_ahead(batches: Iterable[Any], rows: Any) -> Iterator[Any]:
    """The batches, each with its rows fetched by the store before anybody trains on it."""
    for batch in batches:
        rows.prefetch(batch)
        yield batch
