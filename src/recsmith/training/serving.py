"""A trained model in one process, to predict with: tables unsharded, on CPU.

B samples
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file

from recsmith.data import Batch, DataSchema, JaggedIds
from recsmith.errors import CorruptFile, UsageError
from recsmith.files import Source, decode, source_text
from recsmith.training.batches import as_tensors
from recsmith.training.card import exported_model, read_card
from recsmith.training.export import WEIGHTS
from recsmith.training.models import Task, build_task
from recsmith.training.tables.plain import features_of, vectors_of


class Predictor:
    """A trained model: probabilities of samples. schema: which features and dense columns a sample has."""

    def __init__(self, task: Task, schema: DataSchema) -> None:
        self.task, self.schema = task.eval(), schema
        self.features = features_of(task)

    def predict(self, batch: Batch) -> np.ndarray:
        """Probabilities (B, L) of the samples of a batch, whose labels do not matter."""
        with torch.no_grad():
            _, (_, logits, _, _) = self.task(as_tensors(batch, self.features))
        return logits.sigmoid().numpy()

    def table(self, name: str) -> np.ndarray:
        """The vectors of all ids of a table (rows, columns), whatever it is stored as.

        Raises:
            UsageError: there is no such table.
        """
        return vectors_of(self.task, name).numpy()

    def __call__(
        self, ids: Mapping[str, Sequence[Sequence[int]]], dense: Sequence[Sequence[float]] | None = None
    ) -> np.ndarray:
        """Probabilities (B, L) of samples. ids: by feature, a list for each sample. dense: a row for each sample."""
        return self.predict(_batch_of(self.schema, ids, dense))


def _batch_of(
    schema: DataSchema, ids: Mapping[str, Sequence[Sequence[int]]], dense: Sequence[Sequence[float]] | None
) -> Batch:
    """Samples given as lists; UsageError where a feature or a dense column is missing or too much."""
    if set(ids) != set(schema.feature_names):
        odd = min(set(ids) ^ set(schema.feature_names))
        raise UsageError(f"feature '{odd}' is {'not known' if odd in ids else 'missing'}; give ids of every feature")
    count = len(next(iter(ids.values())))
    values = np.asarray([[] for _ in range(count)] if dense is None else dense, np.float32)
    if values.shape != (count, len(schema.dense)) or any(len(bags) != count for bags in ids.values()):
        raise UsageError(
            f"there are {count} samples of one feature; give as many of each, and of {len(schema.dense)} dense columns"
        )
    return Batch(
        dense=values,
        ids={name: _jagged(bags) for name, bags in ids.items()},
        labels=np.zeros((count, len(schema.labels)), np.float32),
        label_names=schema.labels,
        sample_ids=np.arange(count),
    )


def _jagged(bags: Sequence[Sequence[int]]) -> JaggedIds:
    values = np.array([row for bag in bags for row in bag], np.int64)
    return JaggedIds(values=values, lengths=np.array([len(bag) for bag in bags], np.int32))


def load_model(folder: Source) -> Predictor:
    """The model that a run left in `<output>/model`.

    Raises:
        UsageError: the folder cannot be read.
        CorruptFile: card and weights do not belong together.
    """
    path = Path(source_text(folder, "the folder of a model"))
    card = read_card(path)
    schema, model = decode(DataSchema, card["data"], str(path)), exported_model(card, path)
    task = build_task(model, schema, card["seed"], tables_on="cpu")
    try:
        task.load_state_dict(load_file(path / WEIGHTS))
    except (RuntimeError, OSError) as error:
        raise CorruptFile(
            f"'{path / WEIGHTS}' does not hold the model of its card: {str(error).splitlines()[0]}"
        ) from None
    return Predictor(task, schema)
