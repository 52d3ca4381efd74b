"""A model that was exported to ONNX, scored by onnxruntime on CPU; without torch.

B samples, L labels
"""

from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from recsmith._install import ONNX
from recsmith.data import Batch, JaggedIds
from recsmith.data.columns.rows import RawRowReader, Rows
from recsmith.data.deduplication import expanded
from recsmith.errors import CorruptFile, MissingExtra, UsageError
from recsmith.files import Source, source_text
from recsmith.training.job.card import ONNX_FILE, ModelCard, read_card
from recsmith.training.results.samples import check_samples, rows_of


class OnnxPredictor:
    """A trained model that predicts probabilities of samples, or of raw rows, as `load_model`'s does."""

    def __init__(self, session: Any, card: ModelCard) -> None:
        self.session, self.card, self.schema, self.rows = session, card, card.data, rows_of(card)
        self.inputs = [each.name for each in session.get_inputs()]

    def predict(self, batch: Batch) -> np.ndarray:
        """Predictions (B, L) for a batch, whose labels are ignored: probabilities; for labels that are numbers, values.

        Raises:
            UsageError: an id is not a row of its table, or a dense value or weight is not a finite number.
        """
        check_samples(batch, self.schema, self.rows)
        return self.session.run(None, onnx_inputs(batch, self.inputs))[0]

    def predict_rows(self, rows: Rows) -> np.ndarray:
        """Probabilities (B, L) of raw rows, which have the columns of the model's data.

        Raises:
            UsageError: a column is missing, or the model does not know a value.
        """
        return self.predict(self.row_reader.batch(rows))

    @cached_property
    def row_reader(self) -> RawRowReader:
        """Makes batches from raw rows."""
        return RawRowReader(self.schema)


def load_onnx(folder: Source) -> OnnxPredictor:
    """The model that `recsmith export --for onnx` wrote to a folder.

    Raises:
        UsageError: the folder holds no such model.
        CorruptFile: its file is damaged.
        MissingExtra: onnxruntime is not installed.
    """
    path = Path(source_text(folder, "the folder of a model"))
    if not (path / ONNX_FILE).exists():
        raise UsageError(f"'{path}' holds no {ONNX_FILE}; make one by `recsmith export RUN --for onnx -o DIR`")
    if find_spec("onnxruntime") is None:
        raise MissingExtra(f"a model for ONNX needs onnxruntime: {ONNX}")
    onnxruntime: Any = import_module("onnxruntime")
    try:
        session = onnxruntime.InferenceSession(str(path / ONNX_FILE), providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has its own exception types
        raise CorruptFile(f"'{path / ONNX_FILE}' cannot be loaded ({error}); export the model again") from None
    return OnnxPredictor(session, read_card(path))


def onnx_inputs(batch: Batch, names: list[str]) -> dict[str, np.ndarray]:
    """The inputs of an ONNX model for a batch: `dense`, `ids.FEATURE` and `weights.FEATURE`, padded."""
    whole, made = expanded(batch), dict[str, np.ndarray]()
    for key in names:
        kind, _, name = key.partition(".")
        if kind == "dense":
            made[key] = whole.dense.astype(np.float32)
            continue
        bags = whole.ids[name]
        if kind == "ids":
            made[key] = padded(bags, bags.values.astype(np.int64), -1)
        else:
            weights = np.ones(len(bags.values), np.float32) if bags.weights is None else bags.weights
            made[key] = padded(bags, weights.astype(np.float32), 0)
    return made


def padded(bags: JaggedIds, values: npt.NDArray[Any], fill: int) -> npt.NDArray[Any]:
    """The values of each sample's ids as a row (B, n), padded with `fill`; n is 1 or more."""
    lengths = bags.lengths
    made = np.full((len(lengths), max(1, int(lengths.max(initial=0)))), fill, values.dtype)
    made[np.arange(made.shape[1]) < lengths[:, None]] = values
    return made
