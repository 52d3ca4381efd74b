"""Tables of an exported model in fp16, or in int8 by row: written in blocks, and looked up by TorchRec's own modules.

int8 is FBGEMM's format: q = round((w - bias) / scale) of each weight in a byte, followed by scale and bias of the row
as two fp16, so that a row of D columns takes D + 4 bytes. A model with such tables has TorchRec's quantised collections
instead of its own, whose kernel (IntNBitTableBatchedEmbeddingBagsCodegen) pools in fp32 on CPU.

R rows, D columns
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn
from torchrec import EmbeddingBagCollection, EmbeddingCollection
from torchrec.modules.embedding_configs import DataType
from torchrec.modules.embedding_modules import get_embedding_names_by_table
from torchrec.quant.embedding_modules import EmbeddingBagCollection as QuantBags
from torchrec.quant.embedding_modules import EmbeddingCollection as QuantSequences

from recsmith.adapters.chunk_bytes import BLOCK
from recsmith.adapters.feature_order import in_order
from recsmith.errors import UsageError
from recsmith.training.job.card import ModelCard, StoredTables
from recsmith.training.job.export import WEIGHTS, arrays_of, as_array, make_tensor_file, opened_file, tensors_in
from recsmith.training.stores.protocol import WholeTensor
from recsmith.training.tables.protocol import table_of

Narrow = Literal["fp16", "int8"]
SCALE_AND_BIAS = 4  # bytes of scale and bias at the end of a row
KINDS = {"fp16": DataType.FP16, "int8": DataType.INT8}


def own_tables(card: ModelCard) -> str | None:
    """The key of a model because of which its tables are not plain TorchRec tables; None if they are."""
    return next((key for key in ("compression", "table_module", "dynamic") if getattr(card.model, key, None)), None)


def check_quantised(card: ModelCard) -> None:
    """UsageError if a model's tables are not plain TorchRec tables."""
    if (key := own_tables(card)) is not None:
        raise UsageError(
            f"the model has model.{key}, and --tables stores plain tables of TorchRec; export it with --tables fp32"
        )


def stored_shapes(weights: Mapping[str, WholeTensor], tables: StoredTables) -> dict[str, WholeTensor]:
    """Types and shapes in a weights file with tables stored in this type. weights: of the model in fp32."""
    return {name: _stored(whole, tables) if table_of(name) else whole for name, whole in weights.items()}


def _stored(whole: WholeTensor, tables: StoredTables) -> WholeTensor:
    rows, columns = whole.shape
    if tables == "fp16":
        return WholeTensor(torch.float16, (rows, columns))
    return WholeTensor(torch.uint8, (rows, columns + SCALE_AND_BIAS)) if tables == "int8" else whole


def write_quantised(model: Path, folder: Path, tables: Narrow) -> None:
    """Write the weights of an exported model into another folder in blocks, with its tables in fewer bits."""
    with opened_file(model / WEIGHTS) as opened:
        there = tensors_in(opened)
        made = stored_shapes(there, tables)
        make_tensor_file(folder / WEIGHTS, made)
        arrays = arrays_of(folder / WEIGHTS)
        for name, whole in there.items():
            if table_of(name) is None or not whole.shape[0]:
                arrays[name][...] = as_array(opened.get_tensor(name))
                continue
            rows, entry = max(1, BLOCK // (4 * max(1, whole.shape[1]))), opened.get_slice(name)
            for first in range(0, whole.shape[0], rows):
                block = entry[first : first + rows].float()
                arrays[name][first : first + rows] = quantised(block, tables).numpy()


def quantised(weights: torch.Tensor, tables: Narrow) -> torch.Tensor:
    """Rows (R, D) as fp16 (R, D), or as bytes followed by scale and bias (R, D + 4)."""
    if tables == "fp16":
        return weights.half()
    return torch.ops.fbgemm.FloatOrHalfToFusedNBitRowwiseQuantizedSBHalf(weights, 8)


def dequantised(stored: torch.Tensor) -> torch.Tensor:
    """The fp32 weights (R, D) of stored rows."""
    if stored.dtype != torch.uint8:
        return stored.float()
    scale_and_bias = stored[:, -SCALE_AND_BIAS:].contiguous().view(torch.float16).float()
    return stored[:, :-SCALE_AND_BIAS].float() * scale_and_bias[:, :1] + scale_and_bias[:, 1:]


def use_quantised(model: nn.Module, stored: Mapping[str, torch.Tensor], tables: Narrow) -> None:
    """Replace a model's collections by TorchRec's quantised ones. stored: rows by parameter name."""
    for path, module in list(model.named_modules()):
        if isinstance(module, EmbeddingBagCollection | EmbeddingCollection):
            parent, _, name = path.rpartition(".")
            mine = {table_of(key) or "": rows for key, rows in stored.items() if key.startswith(f"{path}.")}
            setattr(model.get_submodule(parent), name, _collection(module, mine, tables))


def _collection(module: Any, stored: Mapping[str, torch.Tensor], tables: Narrow) -> nn.Module:
    """TorchRec's quantised form of a collection whose own weights have no memory. stored: rows by table."""
    weights = {name: _taken_apart(rows) for name, rows in stored.items()}
    words: dict[str, Any] = {
        "device": torch.device("cpu"), "output_dtype": torch.float, "table_name_to_quantized_weights": weights,
        "row_alignment": 1,
    }  # fmt: skip
    pooled = isinstance(module, EmbeddingBagCollection)
    configs: list[Any] = module.embedding_bag_configs() if pooled else module.embedding_configs()
    for config in configs:
        config.data_type = KINDS[tables]
    made = QuantBags(configs, module.is_weighted(), **words) if pooled else QuantSequences(configs, **words)
    names = [name for names in get_embedding_names_by_table(configs) for name in names]
    made.register_forward_hook(lambda _, __, found: in_order(names, found))  # TorchRec's order is by pooling
    return made


def _taken_apart(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Rows as FBGEMM's inference kernel expects them: bytes, and scales with biases."""
    if rows.dtype == torch.uint8:
        return rows[:, :-SCALE_AND_BIAS].contiguous(), rows[:, -SCALE_AND_BIAS:].contiguous()
    return rows.view(torch.uint8), None
