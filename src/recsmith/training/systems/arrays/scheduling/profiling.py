"""The step of equal members as a torch.fx graph, traced on fake tensors, and its costs for the scheduler.

n members of a sub-array, B samples, D dense columns, L labels
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call, vmap
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.node import map_arg
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from recsmith.errors import UsageError
from recsmith.prediction.activations.graph import GraphOperation, TrainingGraph
from recsmith.prediction.speeds import bytes_per_s, call_s, flops_per_s


@dataclass(frozen=True)
class LayerRates:
    """Speeds of a device. launch_s: seconds of a launch. flops: products and sums a second.

    bandwidth: bytes of memory a second. link: bytes a second to the host; None if activations are in host memory.
    """

    launch_s: float
    flops: float
    bandwidth: float
    link: float | None = None

    def seconds(self, flops: float, moved: float) -> float:
        """Seconds of an operation that computes `flops` and moves `moved` bytes; a view takes no time."""
        return self.launch_s + max(flops / self.flops, moved / self.bandwidth) if flops or moved else 0.0


# 132 multiprocessors x 128 lanes x 2 x 1.98 GHz, fp32 without TF32; launch, memory and PCIe as in clusters/catalogue
# and costs/analytic.py, with the share 0.68 of PCIe that kernels reach (docs/cost-models.md)
H100 = LayerRates(launch_s=3.8e-6, flops=6.69e13, bandwidth=3.35e12, link=0.68 * 64e9)


def cpu_rates() -> LayerRates:
    """Speeds of a CPU core, which all predictions of training use."""
    return LayerRates(launch_s=call_s(), flops=flops_per_s("cpu"), bandwidth=bytes_per_s())


@dataclass(frozen=True)
class TracedStep:
    """A traced step. inputs: weights of all members in turn, pooled vectors, dense features, gradient of logits.

    nodes: those of the graph's operations. results: nodes of the logits, the gradients of weights and of pooled
    vectors.
    """

    module: fx.GraphModule
    inputs: tuple[fx.Node, ...]
    nodes: tuple[fx.Node, ...]
    results: tuple[fx.Node, ...]
    graph: TrainingGraph


def logits_of(
    models: Sequence[nn.Module], given: Any, named: Mapping[str, Sequence[torch.Tensor]], pooled: Any,
    inputs: tuple[torch.Tensor, Any],
) -> torch.Tensor:  # fmt: skip
    """The logits of equal models (n, B, ...), computed as batched products if there are several.

    Args:
        models: n equal models.
        given: the stand-in for their pooled tables, or None.
        named: parameters of each model, by name.
        pooled: vectors (B, n, T * D); None if the models have no pooled tables.
        inputs: dense and sparse features.
    """

    def one(weights: dict[str, torch.Tensor], vectors: Any) -> torch.Tensor:
        if given is not None:
            given.pooled = vectors
        return functional_call(models[0], weights, inputs)

    if len(models) == 1:
        return one({name: each[0] for name, each in named.items()}, pooled if pooled is None else pooled[:, 0])[None]
    return vmap(one, in_dims=(0, 1))({name: torch.stack(list(each)) for name, each in named.items()}, pooled)


def traced(
    models: Sequence[nn.Module], given: Any, shapes: tuple[Sequence[int], Sequence[int], int], rates: LayerRates,
    device: torch.device,
) -> TracedStep:  # fmt: skip
    """Trace the step of equal models.

    Args:
        models: n equal models.
        given: the stand-in for their pooled tables.
        shapes: of pooled vectors, of dense features; number of labels.
        rates: speeds of the device.
        device: for which the step is traced.

    Raises:
        UsageError: a user's own model cannot be traced, or has an operation that cannot be repeated.
    """
    names = [name for name, _ in models[0].named_parameters()]

    def step(weights: list[torch.Tensor], pooled: torch.Tensor, dense: torch.Tensor, above: torch.Tensor) -> Any:
        leaves = [each.detach().requires_grad_() for each in (*weights, pooled)]
        named = {name: leaves[place : -1 : len(names)] for place, name in enumerate(names)}
        logits = logits_of(models, given, named, leaves[-1], (dense, None)).float().reshape(above.shape)
        return logits, *torch.autograd.grad(logits, leaves, above, materialize_grads=True)

    pooled, dense, labels = shapes
    try:
        with torch.enable_grad(), FakeTensorMode(allow_non_fake_inputs=True):
            sizes: list[Any] = [pooled, dense, (len(models), dense[0], labels)]
            weights = [torch.empty_like(each, device=device) for model in models for each in model.parameters()]
            others = [torch.empty(list(size), device=device) for size in sizes]
            made = make_fx(step, _allow_non_fake_inputs=True)(weights, *others)
    except Exception as error:  # a model of the user's may raise anything
        reason = str(error).partition("\n")[0]
        raise UsageError(
            f"array.layer_memory: the model's step cannot be traced ({reason}); leave layer_memory out"
        ) from None
    made.graph.eliminate_dead_code()
    made.recompile()
    return _described(made, rates)


def _described(module: fx.GraphModule, rates: LayerRates) -> TracedStep:
    nodes = tuple(node for node in module.graph.nodes if node.op == "call_function")
    inputs = tuple(node for node in module.graph.nodes if node.op == "placeholder")
    outputs: Any = next(node for node in module.graph.nodes if node.op == "output").args[0]
    results = tuple(outputs)
    number = {node: place for place, node in enumerate(nodes)}
    forward = number[results[0]] + 1
    storages: dict[int, int | None] = {
        each: None for node in module.graph.nodes if node.op in ("placeholder", "get_attr") for each in _memory(node)
    }
    operations: list[GraphOperation] = []
    for place, node in enumerate(nodes):
        _check_repeatable(node)
        made = {each: size for each, size in _memory(node).items() if each not in storages}
        storages |= dict.fromkeys(made, place)
        moved = sum(made.values()) and sum(made.values()) + sum(_nbytes(each) for each in node.all_input_nodes)
        operations.append(GraphOperation(
            inputs=tuple(sorted({number[each] for each in node.all_input_nodes if each in number})),
            storage=storages[next(iter(_memory(node)))], nbytes=sum(made.values()),
            seconds=rates.seconds(_flops(node), moved), forward=place < forward, repeats=not _draws(node),
        ))  # fmt: skip
    kept = frozenset(number[each] for each in results if each in number)
    return TracedStep(module, inputs, nodes, results, TrainingGraph(tuple(operations), kept))


def _tensors(node: fx.Node) -> list[torch.Tensor]:
    return [each for each in tree_leaves(node.meta.get("val")) if isinstance(each, torch.Tensor)]


def _memory(node: fx.Node) -> dict[int, int]:
    """Bytes of each storage that the result of a node uses."""
    found = [each.untyped_storage() for each in _tensors(node)]
    return {each._cdata: each.nbytes() for each in found}


def _nbytes(node: fx.Node) -> int:
    return sum(each.numel() * each.element_size() for each in _tensors(node))


def _flops(node: fx.Node) -> float:
    counted = flop_registry.get(getattr(node.target, "overloadpacket", None))
    if counted is None:
        return 0.0
    args, kwargs = map_arg((node.args, node.kwargs), lambda each: each.meta["val"])
    return float(counted(*args, **kwargs, out_val=node.meta["val"]))


def _draws(node: fx.Node) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def _check_repeatable(node: fx.Node) -> None:
    schema = getattr(node.target, "_schema", None)
    if schema is not None and schema.is_mutable:
        raise UsageError(
            f"array.layer_memory: the model changes a tensor in place ({schema.name}), which cannot be done once more; "
            "leave layer_memory out, or make a new tensor there"
        )
