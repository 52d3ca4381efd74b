"""Dense layers in bf16 train as layers in fp32 do, to the bit, where the rest of their weights is kept."""

from typing import Any

import pytest

from recsmith.errors import UsageError
from recsmith.training import DenseOptimizer, RunOptimizers

STEPS = [60, pytest.param(1000, marks=pytest.mark.soak)]
KEPT: list[dict[str, Any]] = [
    {"name": "split"}, {"name": "split", "upper": "truncated"}, {"name": "master"},
]  # fmt: skip


def some_weights() -> list[Any]:
    """Parameters of some shapes, the same each time."""
    import torch

    torch.manual_seed(0)
    return [torch.nn.Parameter(torch.randn(*shape) * 0.1) for shape in ((13, 7), (5,), (4, 3, 2))]


def in_bf16(name: str, learning_rate: float = 0.01, **arguments: Any) -> tuple[list[Any], Any]:
    """The same parameters in bf16, and an optimizer of a run for them."""
    from recsmith.training.optimizers.dense import dense_optimizer, prepare_weights

    settings = DenseOptimizer(name=name, learning_rate=learning_rate, arguments=arguments)
    rounded = some_weights()
    prepare_weights(rounded, settings)
    return rounded, dense_optimizer(rounded, settings)


@pytest.mark.usefixtures("torchrec")
@pytest.mark.parametrize("kept", KEPT)
@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adagrad"])
@pytest.mark.parametrize("steps", STEPS)
def test_weights_are_those_of_fp32_to_the_bit(steps: int, optimizer: str, kept: dict[str, Any]) -> None:
    import torch

    from recsmith.training.optimizers.dense import dense_class
    from recsmith.training.systems.halves.bfloat16 import nearest

    plain = some_weights()
    other = dense_class(optimizer)(plain, lr=0.01)
    rounded, own = in_bf16(**kept, optimizer=optimizer)
    for step in range(steps):
        for before, after in zip(plain, rounded, strict=True):
            after.grad = torch.randn(before.shape).to(torch.bfloat16) if step % 5 else None  # a layer may have none
            before.grad = None if after.grad is None else after.grad.float()
        other.step()
        own.step()
    for before, after in zip(plain, rounded, strict=True):
        assert after.dtype == torch.bfloat16
        assert torch.equal(own.joined(after), before)
        if kept["name"] == "master":
            assert torch.equal(after, nearest(before.detach()))


@pytest.mark.usefixtures("torchrec")
def test_halves_take_the_bytes_of_fp32_and_master_copies_two_more() -> None:
    import torch

    held: dict[str, int] = {}
    for name in ("split", "master"):
        rounded, own = in_bf16(name, optimizer="sgd")
        for each in rounded:
            each.grad = torch.zeros_like(each)
        own.step()
        state = [kept for each in rounded for kept in own.state[each].values() if kept is not None]
        held[name] = sum(each.nbytes for each in (*rounded, *state))
    numbers = sum(each.numel() for each in some_weights())
    assert held == {"split": 4 * numbers, "master": 6 * numbers}


@pytest.mark.usefixtures("torchrec")
@pytest.mark.parametrize("lower", [True, False])
def test_without_lower_halves_small_steps_are_lost(lower: bool) -> None:
    import torch

    from recsmith.training.optimizers.dense import dense_optimizer, prepare_weights

    arguments = {"optimizer": "sgd", "lower": lower}
    settings = DenseOptimizer(name="split", learning_rate=1e-4, arguments=arguments)
    layer = torch.nn.Parameter(torch.ones(8))
    prepare_weights([layer], settings)
    made = dense_optimizer([layer], settings)
    for _ in range(200):
        layer.grad = torch.ones_like(layer)
        made.step()
    assert torch.allclose(layer.float(), torch.full((8,), 0.98 if lower else 1.0), atol=4e-3)


@pytest.mark.usefixtures("torchrec")
def test_rates_that_change_and_clipping_reach_it() -> None:
    import torch
    from torchrec.optim.keyed import KeyedOptimizer

    from recsmith.training.optimizers.building import combined_optimizer
    from recsmith.training.optimizers.dense import joined_weights, prepare_weights

    dense = DenseOptimizer(name="split", learning_rate=1.0, arguments={"optimizer": "sgd"}, clip_norm=1.0)
    settings = RunOptimizers(dense=dense, warmup_steps=4)
    layer = torch.nn.Parameter(torch.zeros(4))
    prepare_weights([layer], dense)
    made = combined_optimizer(KeyedOptimizer({}, {}, []), {}, {"layer": layer}, settings)
    for _ in range(2):
        layer.grad = torch.full((4,), 2.0, dtype=torch.bfloat16)  # of norm 4
        made.step()
    assert torch.allclose(joined_weights(made)["layer"], torch.full((4,), -0.5 * (0.25 + 0.4375)), atol=1e-6)


@pytest.mark.usefixtures("torchrec")
def test_what_it_has_not_is_refused() -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"upper": "stochastic"}, "upper is stochastic; give nearest or truncated"),
        ({"optimizer": "master"}, "optimizer is master; name the one that takes the steps"),
        ({"optimizer": "adamm"}, "torch.optim has no 'adamm'"),
        ({"momentums": 1}, r"split cannot be made with arguments \{.*momentums: 1\} \(.*momentums"),
    ]
    for arguments, words in wrong:
        with pytest.raises(UsageError, match=words):
            in_bf16("split", **arguments)


@pytest.mark.usefixtures("torchrec")
@pytest.mark.parametrize("kept", KEPT)
@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adagrad"])
def test_state_lies_where_the_parameters_are(optimizer: str, kept: dict[str, Any]) -> None:
    """Rounded on the CPU, trained elsewhere; torch's device without numbers refuses operands of a CPU as a GPU does."""
    import torch

    from recsmith.training.optimizers.dense import dense_optimizer, prepare_weights

    arguments = {key: value for key, value in kept.items() if key != "name"}
    settings = DenseOptimizer(name=kept["name"], arguments={"optimizer": optimizer, **arguments})
    built = some_weights()
    prepare_weights(built, settings)
    moved = [torch.nn.Parameter(each.detach().to("meta")) for each in built]
    for there, here in zip(moved, built, strict=True):
        there.lower = here.lower  # type: ignore[attr-defined]
    made: Any = dense_optimizer(moved, settings)
    assert all(made.joined(each).is_meta for each in moved)
    for each in moved:
        each.grad = torch.zeros_like(each)
    made.step()
    state = [(name, value) for each in moved for name, value in made.state[each].items()]
    assert state
    assert all(value.is_meta for name, value in state if name != "step")
