"""Which hidden units of a model can be left out together, found by tracing its code (torch.fx).

Units can be left out if one linear layer makes them, they pass only elementwise activations, and only linear layers
read them. If any other code reads them, such as a concatenation, a norm or a sum of two layers, all of them are kept.
"""

from collections import Counter
from collections.abc import Iterator
from operator import attrgetter
from typing import Any

import torch
import torch.nn.functional as fn
from torch import fx, nn
from torchrec import EmbeddingBagCollection, EmbeddingCollection
from torchrec.distributed.types import ShardedModule

from recsmith.training.systems.narrow.settings import Units

TABLES = (ShardedModule, EmbeddingBagCollection, EmbeddingCollection)
WORDS = ("relu", "relu6", "sigmoid", "tanh", "gelu", "silu", "elu", "selu", "leaky_relu", "softplus", "dropout", "mish")
FUNCTIONS = {getattr(room, word) for room in (torch, fn) for word in WORDS if hasattr(room, word)}
METHODS = ("relu", "relu_", "sigmoid", "sigmoid_", "tanh", "tanh_", "contiguous")
MODULES = (
    nn.ReLU, nn.ReLU6, nn.Sigmoid, nn.Tanh, nn.GELU, nn.SiLU, nn.ELU, nn.SELU, nn.LeakyReLU, nn.Softplus, nn.Dropout,
    nn.Mish, nn.Identity,
)  # fmt: skip


def units_of(model: nn.Module) -> list[Units]:
    """The hidden units of a model that can be left out, layer by layer; none in code that fx cannot trace."""
    owned = Counter(id(each) for _, each in model.named_parameters(remove_duplicate=False))
    return [each for prefix, part, graph in _graphs(model) for each in _in_graph(prefix, part, graph, owned)]


def _graphs(module: nn.Module, prefix: str = "") -> Iterator[tuple[str, nn.Module, fx.Graph]]:
    """(prefix of names, module, traced graph) of the outermost modules that can be traced."""
    if isinstance(module, TABLES) or not any(isinstance(each, nn.Linear) for each in module.modules()):
        return
    try:
        yield prefix, module, _Tracer().trace(module)
    except Exception:  # whatever the model's own code raises when it gets a symbol instead of a batch
        for name, child in module.named_children():
            yield from _graphs(child, f"{prefix}{name}.")


class _Tracer(fx.Tracer):
    """A tracer that treats tables and PyTorch's own modules as leaves."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Whether a module is a leaf, whose code is not traced."""
        return isinstance(m, TABLES) or super().is_leaf_module(m, module_qualified_name)


def _in_graph(prefix: str, module: nn.Module, graph: fx.Graph, owned: Counter[int]) -> Iterator[Units]:
    modules: dict[str, Any] = dict(module.named_modules(remove_duplicate=False))
    used = Counter(str(node.target) for node in graph.nodes if node.op == "call_module")
    apart = {str(node.target).rpartition(".")[0] for node in graph.nodes if node.op == "get_attr"}

    def alone(node: fx.Node) -> bool:
        name = str(node.target)
        layer = modules[name]
        return used[name] == 1 and name not in apart and all(owned[id(each)] == 1 for each in layer.parameters())

    for node in graph.nodes:
        readers = _readers(node, modules) if _linear(node, modules) else None
        if readers and all(map(alone, [node, *readers])):
            width = modules[str(node.target)].out_features
            yield Units(width, f"{prefix}{node.target}", tuple(f"{prefix}{each.target}" for each in readers))


def _linear(node: fx.Node, modules: dict[str, Any]) -> bool:
    """Whether a node calls PyTorch's nn.Linear, without hooks or parametrized weights."""
    layer = modules[str(node.target)] if node.op == "call_module" else None
    if type(layer) is not nn.Linear:
        return False
    return "weight" in layer._parameters and not layer._forward_pre_hooks and not layer._forward_hooks


def _readers(node: fx.Node, modules: dict[str, Any]) -> list[fx.Node] | None:
    """The calls of linear layers that read a node's output; None if anything else reads it."""
    found: list[fx.Node] = []
    for user in sorted(node.users, key=attrgetter("name")):
        if user.all_input_nodes != [node]:
            return None
        if _linear(user, modules):
            found.append(user)
        elif not _by_itself(user, modules) or (further := _readers(user, modules)) is None:
            return None
        else:
            found += further
    return found or None


def _by_itself(node: fx.Node, modules: dict[str, Any]) -> bool:
    """Whether a node is elementwise."""
    if node.op == "call_module":
        module = modules[str(node.target)]
        return isinstance(module, MODULES) or (isinstance(module, nn.PReLU) and module.num_parameters == 1)
    return (node.op == "call_function" and node.target in FUNCTIONS) or (
        node.op == "call_method" and node.target in METHODS
    )
