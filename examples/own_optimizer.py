"""An optimizer of dense layers of one's own: sign descent with momentum. Run: python examples/own_optimizer.py.

A run names it as `optimizers: {dense: {name: own_optimizer:SignDescent}}`; nothing else of RecSmith knows of it.
"""

import tempfile

import torch

from recsmith.training import DenseOptimizer, Run, RunData, RunOptimizers, train

CLICKS = {"format": "generator", "dense": 2, "features": [{"name": "item", "num_embeddings": 100}]}


class SignDescent(torch.optim.Optimizer):
    """Steps of one size against the sign of the averaged gradient."""

    def __init__(self, params, lr: float, *, momentum: float = 0.9) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure=None) -> None:
        """Change every parameter that has a gradient."""
        for group in self.param_groups:
            for parameter in (each for each in group["params"] if each.grad is not None):
                state = self.state[parameter]
                average = state.setdefault("average", torch.zeros_like(parameter))
                average.lerp_(parameter.grad, 1 - group["momentum"])
                parameter.sub_(average.sign(), alpha=group["lr"])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        data = RunData(
            train={**CLICKS, "num_samples": 8000}, test={**CLICKS, "first_sample": 8000, "num_samples": 2000}
        )
        for name in ("adam", "own_optimizer:SignDescent"):
            optimizers = RunOptimizers(dense=DenseOptimizer(name=name, learning_rate=1e-3))
            result = train(Run(data=data, output=f"{folder}/{name[:3]}", optimizers=optimizers))
            print(f"{name}: log loss {result['test']['logloss']:.4f} on data.test")
