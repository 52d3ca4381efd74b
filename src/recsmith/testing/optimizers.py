"""The contract of optimizers for dense layers: for your own (set `name`, as a run names it), and for RecSmith's."""

from typing import Any

import torch
from torchrec.optim.keyed import KeyedOptimizerWrapper

from recsmith.training.optimizers.dense import dense_class


class DenseOptimizerContract:
    """The contract of optimizers for dense layers. Subclass it as a test class, and set `name`.

    arguments: keyword arguments of the optimizer besides the learning rate.
    """

    name: str
    arguments: dict[str, Any] = {}  # noqa: RUF012

    def make(self, parameters: list[torch.nn.Parameter]) -> KeyedOptimizerWrapper:
        """The optimizer for some parameters."""
        named = {str(number): each for number, each in enumerate(parameters)}
        return KeyedOptimizerWrapper(named, lambda given: dense_class(self.name)(given, lr=1e-2, **self.arguments))

    def test_it_goes_down_and_goes_on_from_its_state_with_the_same_bits(self) -> None:
        """It decreases a loss, and continues from its saved state with the same bits."""
        torch.manual_seed(0)
        parameters = [torch.nn.Parameter(torch.randn(3, 2)), torch.nn.Parameter(torch.randn(4))]
        made, begun = self.make(parameters), squares(parameters)
        step_down(made, parameters, 5)
        assert squares(parameters) < begun
        state: Any = made.state_dict()["state"]
        kept = [{key: type(value) for key, value in each.items()} for each in state.values()]
        assert all(each == kept[0] for each in kept)  # the same names for each parameter
        assert all(issubclass(kind, torch.Tensor) for each in kept for kind in each.values())

        copies = [torch.nn.Parameter(parameter.detach().clone()) for parameter in parameters]
        again = self.make(copies)
        again.init_state()
        for mine, given in zip(copies, parameters, strict=True):
            mine.data.copy_(given.data)
        again.load_state_dict(made.state_dict())
        step_down(made, parameters, 3)
        step_down(again, copies, 3)
        assert all(torch.equal(a, b) for a, b in zip(parameters, copies, strict=True))


def squares(parameters: list[torch.nn.Parameter]) -> float:
    """The sum of squares of all parameters."""
    return sum(float((parameter.detach() ** 2).sum()) for parameter in parameters)


def step_down(made: torch.optim.Optimizer, parameters: list[torch.nn.Parameter], steps: int) -> None:
    """Take steps that minimise the sum of squares."""
    for _ in range(steps):
        made.zero_grad()
        sum((parameter**2).sum() for parameter in parameters).backward()  # type: ignore[union-attr]
        made.step()
