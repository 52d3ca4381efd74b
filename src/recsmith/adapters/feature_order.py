"""Keeps output features in the order of a collection's configs; TorchRec's sharded collections reorder them by plan.

A sharded collection concatenates features by sharding type and rank (`_create_output_dist` of embeddingbag.py), an
unsharded one in the order of its configs. So a model that reads `.values()` gets its columns in an order that depends
on the plan: trained under one plan, it computes something else under the next plan, and unsharded. Models that read
features by name are not affected.

B samples, D columns of a feature
"""

from collections.abc import Iterator
from functools import partial
from typing import Any, TypeVar

import torch
from torch import nn
from torchrec.distributed.types import Awaitable, ShardedModule
from torchrec.models.deepfm import SimpleDeepFMNN
from torchrec.models.dlrm import SparseArch
from torchrec.modules.embedding_modules import get_embedding_names_by_table
from torchrec.sparse.jagged_tensor import KeyedTensor

Model = TypeVar("Model", bound=nn.Module)
READ_BY_NAME = (SparseArch, SimpleDeepFMNN)  # models of TorchRec; other modules set `reads_by_name = True`
INNER = ("_embedding_bag_collection", "_embedding_module")  # inner collection of feature-processed, of remapping ones


def keep_feature_order(model: Model) -> Model:
    """Make every sharded collection of a model output its features in the order of its configs; returns the model.

    Call it once, after `DistributedModelParallel`. Nothing is copied if the features are in that order anyway, and
    nothing is changed inside TorchRec's own models, which read features by name.
    """
    for module in _read_in_order(model):
        names = _names(module)
        if names:
            module.register_forward_hook(partial(_hook, names))
    return model


def _read_in_order(module: nn.Module) -> Iterator[nn.Module]:
    """The outermost sharded modules outside modules that read features by name."""
    if isinstance(module, READ_BY_NAME) or getattr(module, "reads_by_name", False):
        return
    if isinstance(module, ShardedModule):
        yield module
        return
    for child in module.children():
        yield from _read_in_order(child)


def _names(module: Any) -> list[str]:
    """Output names of a sharded collection, in the order of the unsharded one; empty for other modules."""
    for name in INNER:
        module = getattr(module, name, module)
    configs = getattr(module, "_embedding_bag_configs", None) or getattr(module, "_embedding_configs", None) or []
    return [name for names in get_embedding_names_by_table(configs) for name in names]


def _hook(names: list[str], _: nn.Module, __: Any, output: Any) -> Any:
    """A forward hook that puts outputs in order; outputs still in flight from other ranks are reordered on arrival."""
    if isinstance(output, tuple):  # embeddings, and the ids that were remapped
        return _hook(names, _, __, output[0]), *output[1:]
    if isinstance(output, Awaitable):
        output.callbacks.append(partial(in_order, names))
        return output
    return in_order(names, output)


def in_order(names: list[str], output: Any) -> Any:
    """An output in the order of `names`: pooled vectors (B, sum of D), or sequences by feature name."""
    if isinstance(output, KeyedTensor):
        if output.keys() == names:
            return output
        found = output.to_dict()
        parts = [found[name] for name in names]
        return KeyedTensor(names, [each.shape[1] for each in parts], torch.cat(parts, dim=1), output.key_dim())
    return {name: output[name] for name in names}
