"""A trained model in one process, for predictions: tables are unsharded, on CPU.

B samples
"""

import logging
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from recsmith._process import memory_held, memory_limit
from recsmith.data import Batch, DataSchema, JaggedIds
from recsmith.data.columns.rows import RawRowReader, Rows
from recsmith.errors import UsageError
from recsmith.files import Source, source_text
from recsmith.training.batches import as_tensors
from recsmith.training.job.card import CARD, ONNX_FILE, ModelCard, found_model, read_card, weights_digest
from recsmith.training.job.export import WEIGHTS, opened_weights
from recsmith.training.job.models import Task, build_task
from recsmith.training.losses.settings import number_tasks
from recsmith.training.results.quantised_tables import dequantised, stored_shapes, use_quantised
from recsmith.training.results.samples import check_samples, rows_of
from recsmith.training.seams.registry import systems, use_systems_of
from recsmith.training.stores.protocol import WholeTensor
from recsmith.training.tables.features import Features
from recsmith.training.tables.plain import features_of, vectors_of
from recsmith.training.tables.protocol import table_of
from recsmith.units import format_size


class Predictor:
    """A trained model that predicts probabilities. schema: which features and dense columns a sample has.

    stored: rows of tables that are stored in fewer bits, by parameter name.
    """

    def __init__(
        self, task: Task, card: ModelCard, features: Features, stored: Mapping[str, torch.Tensor] | None = None
    ) -> None:
        self.card, self.stored = card, {table_of(name): rows for name, rows in (stored or {}).items()}
        self.task, self.schema, self.features = task.eval(), card.data, features
        raw = self.features.raw  # ids that are not bounded by a table
        self.rows = {name: count for name, count in rows_of(card).items() if name not in raw}

    def predict(self, batch: Batch) -> np.ndarray:
        """Predictions (B, L) for a batch, whose labels are ignored: probabilities; for labels that are numbers, values.

        Raises:
            UsageError: an id is not a row of its table, or a dense value or weight is not a finite number.
        """
        self.check(batch)
        with torch.no_grad():
            _, (_, logits, _, _) = self.task(as_tensors(batch, self.features))
        chances = torch.tensor([name not in self.numbers for name in self.schema.labels])
        return torch.where(chances, logits.sigmoid(), logits).numpy()

    @cached_property
    def numbers(self) -> tuple[str, ...]:
        """Labels whose value the model predicts directly."""
        return number_tasks(self.card.model.tasks, self.schema)

    def check(self, batch: Batch) -> None:
        """Refuse values that the model was not trained on, by the same rule as for training data.

        Raises:
            UsageError: an id is not a row of its table, or a dense value or weight is not a finite number.
        """
        check_samples(batch, self.schema, self.rows, tuple(self.features.raw))

    def predict_rows(self, rows: Rows) -> np.ndarray:
        """Probabilities (B, L) of raw rows, which have the columns of the model's data.

        Args:
            rows: a list of dicts, a mapping of columns (lists or NumPy arrays), or a table of pyarrow, pandas, polars.

        Raises:
            UsageError: a column is missing, the model does not know a value, or it was trained on ids.
        """
        return self.predict(self.row_reader.batch(rows))

    @cached_property
    def row_reader(self) -> RawRowReader:
        """Makes batches from raw rows; UsageError if the model was trained on ids."""
        return RawRowReader(self.schema)

    def table(self, name: str) -> np.ndarray:
        """The vectors of all ids of a table (rows, columns) in fp32, however it is stored.

        Raises:
            UsageError: there is no such table.
        """
        rows = self.stored.get(name)
        return (vectors_of(self.task, name) if rows is None else dequantised(rows)).numpy()

    def __call__(
        self,
        ids: Mapping[str, Sequence[Sequence[int]]],
        dense: Sequence[Sequence[float]] | None = None,
        weights: Mapping[str, Sequence[Sequence[float]]] | None = None,
    ) -> np.ndarray:
        """Probabilities (B, L) of samples.

        Args:
            ids: by feature, a list for each sample.
            dense: a row for each sample.
            weights: by feature whose ids have weights, a list for each sample: one weight for each of its ids.

        Raises:
            UsageError: features, samples or weights are missing or too many, or the model does not know a value.
        """
        return self.predict(_batch_of(self.schema, ids, dense, weights or {}))


def _batch_of(schema: DataSchema, ids: Mapping[str, Any], dense: Any, weights: Mapping[str, Any]) -> Batch:
    """A batch of samples given as lists."""
    weighted = [feature.name for feature in schema.features if feature.weighted]
    for what, given, known in (("ids", ids, schema.feature_names), ("weights", weights, weighted)):
        if set(given) != set(known):
            odd = min(set(given) ^ set(known))
            state = "missing" if odd in known else "not known" if what == "ids" else "given"
            raise UsageError(f"{what} of feature '{odd}' are {state}; give {what} of {', '.join(known) or 'none'}")
    count = len(next(iter(ids.values())))
    columns = _numbers([[] for _ in range(count)] if dense is None else dense, "dense")
    if columns.shape != (count, len(schema.dense)) or any(len(bags) != count for bags in ids.values()):
        raise UsageError(
            f"there are {count} samples of one feature; give as many of each, and of {len(schema.dense)} dense columns"
        )
    return Batch(
        dense=columns,
        ids={name: _bags(name, bags, weights.get(name)) for name, bags in ids.items()},
        labels=np.zeros((count, len(schema.labels)), np.float32),
        label_names=schema.labels,
        sample_ids=np.arange(count),
    )


def _bags(name: str, bags: Sequence[Sequence[int]], weights: Sequence[Sequence[float]] | None) -> JaggedIds:
    """The ids of a feature, and their weights."""
    try:
        values, lengths = [each for bag in bags for each in bag], np.array([len(bag) for bag in bags], np.int32)
    except TypeError:
        raise UsageError(f"feature '{name}' is {bags!r:.60}; give a list of ids for each sample") from None
    odd = next((each for each in values if not isinstance(each, int | np.integer)), None)
    if odd is not None:
        raise UsageError(f"feature '{name}' has id {odd!r}; ids are whole numbers, rows of their tables")
    kept = np.array(values, np.int64 if all(-(2**63) <= each < 2**63 for each in values) else object)
    if weights is None:
        return JaggedIds(values=kept, lengths=lengths)
    if [len(each) for each in weights] != lengths.tolist():
        raise UsageError(f"feature '{name}' has weights for other numbers of ids than its samples have; give one an id")
    flat = _numbers([each for bag in weights for each in bag], f"weights of '{name}'")
    return JaggedIds(values=kept, lengths=lengths, weights=flat)


def _numbers(values: Any, what: str) -> np.ndarray:
    try:
        return np.asarray(values, np.float32)
    except (TypeError, ValueError):
        raise UsageError(
            f"{what} are not numbers in rows of one length; give a list of numbers for each sample"
        ) from None


def _check_memory(weights: Path) -> None:
    """Refuse weights that exceed this process's memory limit; without a limit, the system reports it."""
    limit, held, size = memory_limit(), memory_held(), weights.stat().st_size if weights.exists() else 0
    if limit is not None and held + size > limit:
        raise UsageError(
            f"'{weights}' has {format_size(size)}, all of which a loaded model has in memory, beside the "
            f"{format_size(held)} that the processes under this memory limit hold, and the limit is "
            f"{format_size(limit)}; raise it, export with --tables int8, or score by `recsmith evaluate`, which leaves "
            "tables on disk where the run does"
        )


def load_model(folder: Source) -> Predictor:
    """The model of a run, or of a folder that holds one, such as an export.

    Raises:
        UsageError: the folder holds no model, a system that its card names is not installed, or its weights exceed what
            is left of this process's memory limit.
        CorruptFile: card and weights do not belong together, or are damaged.
    """
    logging.getLogger("torch.fx._symbolic_trace").setLevel(logging.ERROR)  # it warns about how TorchRec uses it
    path = Path(source_text(folder, "the folder of a model"))
    if (path / ONNX_FILE).exists():
        raise UsageError(f"'{path}' holds a model for ONNX; load it by recsmith.training.load_onnx")
    path = found_model(path)
    card = read_card(path)
    use_systems_of(card, str(path / CARD))
    _check_memory(path / WEIGHTS)
    weights_digest(path)
    task = build_task(card.model, card.data, card.seed, tables_on="cpu" if card.tables == "fp32" else "meta")
    features, whole = features_of(task), {
        name: WholeTensor(value.dtype, tuple(value.shape)) for name, value in task.state_dict().items()
    }  # fmt: skip
    expected = stored_shapes(whole, card.tables)
    with opened_weights(path / WEIGHTS, expected) as opened:
        weights = {name: opened.get_tensor(name) for name in expected}
    stored = {} if card.tables == "fp32" else {name: each for name, each in weights.items() if table_of(name)}
    if card.tables != "fp32":
        use_quantised(task, stored, card.tables)
    task.load_state_dict({name: each for name, each in weights.items() if name not in stored}, strict=not stored)
    for system in systems():
        system.before_serving(task, card)
    return Predictor(task, card, features, stored)
