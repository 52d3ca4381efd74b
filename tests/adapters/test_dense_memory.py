"""The estimate of what a model needs beside its tables, held against PyTorch's own tensors."""

import weakref
from dataclasses import replace
from typing import Any

import pytest

from recsmith.errors import UsageError

pytestmark = pytest.mark.usefixtures("torchrec")
LAYER = 4 * (300 * 200 + 200)  # bytes of Linear(300, 200)


def _model(device: str = "meta") -> Any:
    """Layers, of which one is frozen, a buffer, a collection that is planned and one that has no sharder."""
    import torch
    from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, EmbeddingCollection, EmbeddingConfig

    where = torch.device(device)
    model = torch.nn.Module()
    model.tables = EmbeddingBagCollection(
        tables=[EmbeddingBagConfig(name="t", embedding_dim=8, num_embeddings=100, feature_names=["f"])], device=where
    )
    model.kept = EmbeddingCollection(
        tables=[EmbeddingConfig(name="s", embedding_dim=8, num_embeddings=50, feature_names=["g"])], device=where
    )
    model.layer, model.frozen = torch.nn.Linear(300, 200, device=where), torch.nn.Linear(300, 200, device=where)
    model.frozen.requires_grad_(False)
    model.register_buffer("counts", torch.zeros(7, dtype=torch.int64, device=where))
    return model


def _estimate(optimizer: str = "adam", *, model: Any = None, world_size: int = 2, on_cpu: bool = True) -> Any:
    from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder

    from recsmith.adapters.dense_memory import dense_memory
    from recsmith.adapters.embedding_collections import collections
    from recsmith.torchrec import read_workload

    model = model or _model()
    sharders: Any = [EmbeddingBagCollectionSharder()]
    workload = read_workload(model, sharders, batch_size=10)
    found = collections(model, sharders)
    return dense_memory(model, found, workload, optimizer=optimizer, world_size=world_size, on_cpu=on_cpu)


@pytest.mark.parametrize("device", ["meta", "cpu"])
def test_what_is_not_planned_is_counted_with_gradient_and_state(device: str) -> None:
    found = _estimate("adagrad", model=_model(device))
    rest = 50 * 8 * 4  # of the collection that no sharder shards
    assert found.parameters == 2 * LAYER + rest + 7 * 8
    assert found.gradients == found.state == LAYER + rest
    assert found.batch == 10 * (8 + 16) + 3 * 10 * 8 * 4
    assert found.total == found.parameters + found.gradients + found.state + found.batch + found.extra


def test_one_rank_alone_sends_nothing() -> None:
    assert _estimate(world_size=1).batch == 10 * 8 * 4


def test_the_largest_gradient_counts_where_a_step_takes_less() -> None:
    assert _estimate("sgd").extra == 4 * 300 * 200
    assert _estimate("adam", on_cpu=False).extra == LAYER + 50 * 8 * 4 - _estimate().batch


SHAPES = ((3, 5), (40, 10), (30, 10), (2, 2))


def _torch_optimizer(name: str, foreach: bool) -> Any:
    import torch

    parameters = [torch.nn.Parameter(torch.ones(shape)) for shape in SHAPES]
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    classes = {"adam": "Adam", "adamw": "AdamW", "adagrad": "Adagrad", "rmsprop": "RMSprop"}
    more = {"momentum": 0.9} if name == "sgd_momentum" else {}
    return getattr(torch.optim, classes.get(name, "SGD"))(parameters, lr=0.1, foreach=foreach, **more)


def _peak(step: Any) -> int:
    """The most bytes that tensors made within a step take at once, tensors of one number left out."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    sizes = {"now": 0, "peak": 0}

    def forget(size: int) -> None:
        sizes["now"] -= size

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            given = {id(leaf) for leaf in tree_leaves((args, kwargs))}
            made = func(*args, **(kwargs or {}))
            for tensor in tree_leaves(made):
                if isinstance(tensor, torch.Tensor) and tensor.numel() > 1 and id(tensor) not in given:
                    size = tensor.numel() * tensor.element_size()
                    sizes["now"] += size
                    weakref.finalize(tensor, forget, size)
            sizes["peak"] = max(sizes["peak"], sizes["now"])
            return made

    with Watch():
        step()
    return sizes["peak"]


@pytest.mark.parametrize("name", ["sgd", "sgd_momentum", "adagrad", "rmsprop", "adam", "adamw"])
def test_optimizers_keep_and_take_what_torchs_own_do(name: str) -> None:
    from recsmith.adapters.dense_memory import DENSE_OPTIMIZERS, _step

    kept, sizes = DENSE_OPTIMIZERS[name], [4 * rows * columns for rows, columns in SHAPES]
    for foreach in (False, True):
        optimizer = _torch_optimizer(name, foreach)
        optimizer.step()  # states are made in the first
        state = [value for each in optimizer.state.values() for value in each.values()]
        held = sum(value.numel() * 4 for value in state if value is not None and value.ndim)
        assert held == kept.states * sum(sizes)
        assert _peak(optimizer.step) == _step(kept, sizes, on_cpu=not foreach)


def test_the_optimizers_are_all_tested() -> None:
    from recsmith.adapters.dense_memory import ASSUMED_OPTIMIZER, DENSE_OPTIMIZERS

    assert set(DENSE_OPTIMIZERS) == {"sgd", "sgd_momentum", "adagrad", "rmsprop", "adam", "adamw"}
    assert DENSE_OPTIMIZERS[ASSUMED_OPTIMIZER].states == max(each.states for each in DENSE_OPTIMIZERS.values())


def test_an_optimizer_that_is_not_known_is_refused() -> None:
    from recsmith.torchrec import RecSmithPlanner

    with pytest.raises(UsageError, match="dense_optimizer is 'adm'; did you mean 'adam'"):
        RecSmithPlanner("h100:2", dense_optimizer="adm")


def test_a_lazy_module_is_refused() -> None:
    import torch

    model = _model()
    model.lazy = torch.nn.LazyLinear(3)
    with pytest.raises(UsageError, match=r"'lazy\.weight' has no shape yet"):
        _estimate(model=model)


def test_every_part_is_in_the_total_and_in_the_words() -> None:
    found = _estimate()
    for part in ("parameters", "gradients", "state", "batch", "extra"):
        assert replace(found, **{part: getattr(found, part) + 2**40}).total == found.total + 2**40
    assert found.describe().count(", ") == 4
