"""Optimizers of tables are what their noun says, for torch, TorchRec and FBGEMM; dense ones keep a contract."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torchrec")

import torch
from torchrec.optim.keyed import KeyedOptimizerWrapper

from recsmith.errors import UsageError
from recsmith.training import SparseOptimizer
from recsmith.training.optimizers.building import sparse_arguments, table_class
from recsmith.training.optimizers.dense import dense_class
from recsmith.workloads.optimizers import OPTIMIZERS, Optimizer

EXAMPLES = Path(__file__).parents[3] / "examples"
pytestmark = pytest.mark.usefixtures("torchrec")


@pytest.fixture(autouse=True)
def examples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Examples are on the path."""
    monkeypatch.syspath_prepend(EXAMPLES)


def squares(parameters: list[torch.nn.Parameter]) -> float:
    """The sum of squares."""
    return sum(float((parameter.detach() ** 2).sum()) for parameter in parameters)


def stepped(made: torch.optim.Optimizer, parameters: list[torch.nn.Parameter], steps: int) -> None:
    """Steps towards zero of the sum of squares."""
    for _ in range(steps):
        made.zero_grad()
        sum((parameter**2).sum() for parameter in parameters).backward()  # type: ignore[union-attr]
        made.step()


@pytest.mark.parametrize("name", ["adam", "SGD", "adamw", "own_optimizer:SignDescent"])
def test_every_dense_optimizer_keeps_the_contract(name: str) -> None:
    torch.manual_seed(0)
    parameters = [torch.nn.Parameter(torch.randn(3, 2)), torch.nn.Parameter(torch.randn(4))]
    wrapped = KeyedOptimizerWrapper(
        {str(i): each for i, each in enumerate(parameters)}, lambda ps: dense_class(name)(ps, lr=1e-2)
    )
    begun = squares(parameters)
    stepped(wrapped, parameters, 5)
    assert squares(parameters) < begun
    state: Any = wrapped.state_dict()["state"]
    kept = [{key: type(value) for key, value in each.items()} for each in state.values()]
    assert all(each == kept[0] for each in kept)  # the same names for each parameter
    assert all(issubclass(kind, torch.Tensor) for each in kept for kind in each.values())

    copies = [torch.nn.Parameter(parameter.detach().clone()) for parameter in parameters]
    again = KeyedOptimizerWrapper(
        {str(i): each for i, each in enumerate(copies)}, lambda ps: dense_class(name)(ps, lr=1e-2)
    )
    again.init_state()
    for mine, given in zip(copies, parameters, strict=True):
        mine.data.copy_(given.data)
    again.load_state_dict(wrapped.state_dict())
    stepped(wrapped, parameters, 3)
    stepped(again, copies, 3)
    assert all(torch.equal(a, b) for a, b in zip(parameters, copies, strict=True))


def test_unknown_optimizers_get_the_nearest_name() -> None:
    with pytest.raises(UsageError, match=r"torch\.optim has no 'adm'.*adam"):
        dense_class("adm")


@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=str)
def test_the_noun_of_an_optimizer_of_tables_holds(optimizer: Optimizer, fbgemm: None) -> None:
    from fbgemm_gpu.split_embedding_configs import EmbOptimType

    assert optimizer.fbgemm_name in EmbOptimType.__members__
    cls = table_class(optimizer.name)
    settings = {} if optimizer.settings == () else {"eps": 1e-6}
    arguments = sparse_arguments(SparseOptimizer(name=optimizer.name, **settings))
    table = torch.nn.Parameter(torch.randn(5, 4))
    made = cls([table], **arguments)
    if optimizer.copies:  # TorchRec has the others in fused kernels alone
        stepped(made, [table], 1)
        shapes = {
            name: "scalar" if value.numel() == 1 else "row-wise" if value.numel() == 5 else "element-wise"
            for name, value in made.state[table].items()
            if value is not None
        }
        assert shapes == optimizer.copied_states


def test_settings_that_an_optimizer_does_not_read_are_refused() -> None:
    with pytest.raises(UsageError, match="eps is given, and sgd has none"):
        sparse_arguments(SparseOptimizer(name="sgd", eps=1e-3))
    with pytest.raises(UsageError, match="beta1 and beta2 are given, and adagrad has none"):
        sparse_arguments(SparseOptimizer(name="adagrad", beta1=0.5))
