"""Features in the order of a collection's configs, whatever the plan: TorchRec's sharded collections give another one.

A sharded collection lays features side by side by sharding type and rank (`_create_output_dist` of embeddingbag.py),
the unsharded one by its configs. So a model that reads `.values()` has its columns in the order of the plan: trained
under one plan, it is another model under the next, and unsharded. Those that read features by their names are not
concerned.

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
READ_BY_NAME = (SparseArch, SimpleDeepFMNN)  # of torchrec.models; others say so: `reads_by_name = True`
INNER = ("_embedding_bag_collection", "_embedding_module")  # of collections around one: of processors, of remapped ids


def keep_feature_order(model: Model) -> Model:
    """Have every sharded collection of a model give its features in the order of its configs; the model itself.

    Once, after `DistributedModelParallel`. Where features come in that order anyway nothing is copied, and nothing is
    changed inside of TorchRec's own models, which read features by their names.
    """
    for module in _read_in_order(model):
        names = _names(module)
        if names:
            module.register_forward_hook(partial(_hook, names))
    return model


def _read_in_order(module: nn.Module) -> Iterator[nn.Module]:
    """The outermost sharded modules that nobody reads by names alone."""
    if isinstance(module, READ_BY_NAME) or getattr(module, "reads_by_name", False):
        return
    if isinstance(module, ShardedModule):
        yield module
        return
    for child in module.children():
        yield from _read_in_order(child)


def _names(module: Any) -> list[str]:
    """Names of what a sharded collection gives, in the order of the unsharded one; empty of other modules."""
    for name in INNER:
        module = getattr(module, name, module)
    configs = getattr(module, "_embedding_bag_configs", None) or getattr(module, "_embedding_configs", None) or []
    return [name for names in get_embedding_names_by_table(configs) for name in names]


def _hook(names: list[str], _: nn.Module, __: Any, output: Any) -> Any:
    """A forward hook; what is on its way from other ranks is put in order when it has come."""
    if isinstance(output, tuple):  # with the ids that they were remapped to
        return _hook(names, _, __, output[0]), *output[1:]
    if isinstance(output, Awaitable):
        output.callbacks.append(partial(in_order, names))
        return output
    return in_order(names, output)


def in_order(names: list[str], output: Any) -> Any:
    """Pooled vectors (B, sum of D), or sequences by their names."""
    if isinstance(output, KeyedTensor):
        if output.keys() == names:
            return output
        found = output.to_dict()
        parts = [found[name] for name in names]
        return KeyedTensor(names, [each.shape[1] for each in parts], torch.cat(parts, dim=1), output.key_dim())
    return {name: output[name] for name in names}
