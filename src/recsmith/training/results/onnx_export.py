"""A trained model as an ONNX file: it maps dense values and padded ids to scores.

    dense            (B, D) fp32, if the model has dense columns
    ids.FEATURE      (B, n) int64: the ids of each sample, -1 in empty places; n may differ between features
    weights.FEATURE  (B, n) fp32, for features whose ids have weights
    scores           (B, L) fp32: probabilities; values for labels that the model predicts directly

Tables are pooled by gathering their rows, which all runtimes support, instead of FBGEMM's kernels.

B samples, D dense columns, L labels, n ids of the longest bag
"""

import logging
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torchrec import EmbeddingBagCollection, EmbeddingCollection
from torchrec.modules.embedding_configs import PoolingType
from torchrec.sparse.jagged_tensor import KeyedTensor

from recsmith._install import ONNX
from recsmith.errors import MissingExtra, UsageError
from recsmith.training.results.quantised_tables import own_tables
from recsmith.training.results.serving import Predictor
from recsmith.training.tables.plain import outputs_of

OPSET = 18
OPERATOR = re.compile(r"op='([\w.]+)'|\b((?:aten|fbgemm|prims|torchrec)[.:]+\w+)")
JAGGED = "fbgemm::asynchronous_complete_cumsum"  # TorchRec's JaggedTensor computes offsets with it
Padded = Mapping[str, tuple[torch.Tensor, torch.Tensor]]  # ids and weights of each feature (B, n)


class PaddedTables(nn.Module):
    """Pooled tables whose input is padded ids instead of a KeyedJaggedTensor."""

    def __init__(self, collection: EmbeddingBagCollection) -> None:
        super().__init__()
        self.embedding_bags: Any = collection.embedding_bags
        self.configs = collection.embedding_bag_configs()
        self.outputs = outputs_of(self.configs)

    def embedding_bag_configs(self) -> list[Any]:
        """The configs of the collection."""
        return self.configs

    def forward(self, features: Padded) -> KeyedTensor:
        """Pooled vectors (B, sum of columns)."""
        vectors = [self._pooled(each.config, *features[each.feature]) for each in self.outputs]
        names, widths = [each.name for each in self.outputs], [each.config.embedding_dim for each in self.outputs]
        return KeyedTensor(names, widths, torch.cat(vectors, dim=1))

    def _pooled(self, config: Any, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        rows = self.embedding_bags[config.name].weight[ids.clamp(min=0)]  # (B, n, columns)
        pooled = (rows.float() * weights[:, :, None]).sum(dim=1)
        if config.pooling == PoolingType.SUM:
            return pooled
        return pooled / (ids >= 0).sum(dim=1, keepdim=True).clamp(min=1)


class ScoredPadded(nn.Module):
    """Scores of padded inputs. names: names of the features. weighted: features with weights. dense: columns."""

    def __init__(self, predictor: Predictor) -> None:
        super().__init__()
        schema = predictor.schema
        self.model, self.labels = predictor.task.model, schema.labels
        self.dense, self.names = len(schema.dense), predictor.features.names
        self.weighted = {each.name for each in schema.features if each.weighted}
        self.register_buffer("chances", torch.tensor([name not in predictor.numbers for name in schema.labels]))

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        """Scores (B, L). inputs: in the order of `inputs()`."""
        given = dict(zip(self.inputs(), inputs, strict=True))
        ids = [given[f"ids.{name}"] for name in self.names]
        count = ids[0].shape[0]
        dense = given["dense"] if self.dense else ids[0].new_ones((count, 1), dtype=torch.float32)
        features = {name: (each, self._weights(name, each, given)) for name, each in zip(self.names, ids, strict=True)}
        said: Any = self.model(dense, features)
        if isinstance(said, Mapping):
            said = torch.stack([said[name].reshape(-1) for name in self.labels], dim=1)
        logits = said.float().reshape(-1, len(self.labels))
        return torch.where(self.chances, logits.sigmoid(), logits)  # type: ignore[arg-type]

    def _weights(self, name: str, ids: torch.Tensor, given: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """The weight of each place: 0 in an empty place."""
        there = (ids >= 0).float()
        return there * given[f"weights.{name}"] if name in self.weighted else there

    def inputs(self) -> list[str]:
        """Names of the inputs."""
        weights = [f"weights.{name}" for name in self.names if name in self.weighted]
        return [*(["dense"] if self.dense else []), *(f"ids.{name}" for name in self.names), *weights]


def export_onnx(predictor: Predictor, file: Path) -> None:
    """Write a model's ONNX file; this replaces the tables of the given model.

    Raises:
        MissingExtra: onnx or onnxscript is not installed.
        UsageError: ONNX lacks an operator of the model, or its code cannot be traced; the operator is named.
    """
    check_exportable(predictor)
    for path, module in list(predictor.task.named_modules()):
        if isinstance(module, EmbeddingBagCollection):
            parent, _, name = path.rpartition(".")
            setattr(predictor.task.get_submodule(parent), name, PaddedTables(module))
    scored = ScoredPadded(predictor).eval()
    examples, sizes = _examples(scored)
    try:
        with warnings.catch_warnings(), _quiet():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                scored, tuple(examples), str(file), input_names=scored.inputs(), output_names=["scores"],
                dynamic_shapes=(tuple(sizes),), opset_version=OPSET, dynamo=True, verbose=False,
                external_data=_bytes(predictor) > 2**30, optimize=True,
            )  # fmt: skip
    except ModuleNotFoundError as error:
        raise MissingExtra(f"an export for ONNX needs {error.name}: {ONNX}") from None
    except (torch.onnx.errors.OnnxExporterError, torch._dynamo.exc.TorchDynamoException, RuntimeError) as error:  # pyright: ignore
        raise UsageError(_refused(predictor, error)) from None


@contextmanager
def _quiet() -> Iterator[None]:
    """Within this context, the exporter does not warn about packages that no model here needs."""
    log = logging.getLogger("torch.onnx")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


def check_exportable(predictor: Predictor) -> None:
    """UsageError if a model's form cannot be expressed in ONNX, whatever its layers are."""
    model, tables = predictor.card.model, [type(each) for each in predictor.task.modules()]
    if predictor.card.tables != "fp32" or model.precision != "fp32":
        said = f"tables in {predictor.card.tables}" if predictor.card.tables != "fp32" else "model.precision: bf16"
        raise UsageError(f"the model has {said}, and an export for ONNX computes in fp32; export it for torch")
    if (key := own_tables(predictor.card)) is not None:
        raise UsageError(f"the model has model.{key}, whose lookups ONNX cannot have; export it for torch")
    if EmbeddingCollection in tables:
        raise UsageError(
            f"model {model.name} reads tables whose rows are not pooled, through {JAGGED}, an operator that ONNX "
            "lacks; export it for torch"
        )


def _examples(scored: ScoredPadded) -> tuple[list[torch.Tensor], list[dict[int, Any]]]:
    """Inputs with which the model is traced, and which of their sizes may vary."""
    batch, made, sizes = torch.export.Dim("batch", min=1), list[torch.Tensor](), list[dict[int, Any]]()
    long = {name: torch.export.Dim(f"n{at}", min=1) for at, name in enumerate(scored.names)}
    for key in scored.inputs():
        kind, _, name = key.partition(".")
        count = 3 + list(long).index(name) if name else scored.dense
        values = torch.zeros(2, count, dtype=torch.int64 if kind == "ids" else torch.float32)
        made.append(values)
        sizes.append({0: batch, 1: long[name]} if name else {0: batch})
    return made, sizes


def _bytes(predictor: Predictor) -> int:
    return sum(each.nbytes for each in predictor.task.parameters())


def _refused(predictor: Predictor, error: BaseException) -> str:
    """Why a model cannot be expressed in ONNX: the operator, if the exporter names one."""
    chain: list[str] = []
    cause: BaseException | None = error
    while cause is not None:
        chain.append(str(cause))
        cause = cause.__cause__ or cause.__context__
    found: Sequence[re.Match[str]] = [match for text in reversed(chain) for match in OPERATOR.finditer(text)]
    name = next(((match[1] or match[2]).replace(".", "::", 1) for match in found), None)
    why = (
        f"operator {name}, which ONNX lacks" if name else f"code that cannot be followed ({chain[-1].splitlines()[0]})"
    )
    return f"model {predictor.card.model.name} has {why}; export it for torch, or leave the operator out"
