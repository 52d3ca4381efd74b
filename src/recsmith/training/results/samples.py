"""Samples for which a trained model is asked for predictions: which values they may hold; without torch."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from recsmith.data import Batch, DataSchema
from recsmith.data.domain import id_outside, wrong_values
from recsmith.errors import UsageError
from recsmith.training.job.card import ModelCard
from recsmith.training.run.tables import tables_of


def rows_of(card: ModelCard) -> dict[str, int]:
    """Number of ids of each feature of a model: the rows of its smallest table."""
    largest_first = sorted(tables_of(card.model, card.data), key=lambda table: -table.num_embeddings)
    return {name: table.num_embeddings for table in largest_first for name in table.features}


def check_samples(batch: Batch, schema: DataSchema, rows: Mapping[str, int], raw: Sequence[str] = ()) -> None:
    """Refuse values that a model was not trained on, by the same rule as for training data.

    rows: rows of each feature whose ids are table rows. raw: features whose ids are not bounded by a table.

    Raises:
        UsageError: an id is not a row of its table, or a dense value or weight is not a finite number.
    """
    for wrong, text in wrong_values(replace(batch, labels=np.zeros_like(batch.labels)), schema).values():
        raise UsageError(f"sample {int(wrong.argmax())} has {text}")
    for name, count in rows.items():
        odd = id_outside(batch.ids[name].values, count)
        if odd is not None:
            raise UsageError(
                f"feature '{name}' has id {odd}, and its table {count:,} rows; give whole numbers from 0 to "
                f"{count - 1:,}, as the data that the model was trained on has them"
            )
    for name in raw:
        odd = id_outside(batch.ids[name].values, 2**63 - 1)
        if odd is not None:
            raise UsageError(f"feature '{name}' has id {odd}; raw ids are whole numbers from 0 on, below 2^63")
