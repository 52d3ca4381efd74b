"""A training step of one's own, with a closure: L-BFGS on the dense layers. Run: python examples/own_step.py.

A run names it as `pipeline: {name: own_step:ClosureStep, evaluations: 4}`; nothing else of RecSmith knows of it.
"""

import tempfile

import torch
import torch.distributed as dist

from recsmith.training import Run, RunData, RunMetrics, train
from recsmith.training.steps.protocol import StepOutcome

CLICKS = {"format": "generator", "dense": 2, "features": [{"name": "item", "num_embeddings": 100}]}


class ClosureStep:
    """Each step looks at its batch several times: tables learn at the first look, dense layers by L-BFGS at all."""

    batches_ahead = 0

    def __init__(self, job, *, evaluations: int = 4) -> None:
        self.job, self.parts = job, dict(job.optimizer.optimizers)
        dense = list(self.parts.pop("dense").params.values())
        self.lbfgs = torch.optim.LBFGS(dense, max_iter=evaluations, max_eval=evaluations)

    def __call__(self, batches) -> StepOutcome:
        """Train on the next batch."""
        batch, outcomes = next(batches).to(self.job.device), []

        def look() -> torch.Tensor:
            self.job.optimizer.zero_grad()
            loss, outcome = self.job.model(batch)
            loss.backward()  # the tables' optimizers are fused into it
            if not outcomes:
                for part in self.parts.values():
                    part.step()
            self._freeze(True)
            outcomes.append(outcome)
            dist.all_reduce(mean := loss.detach().clone())  # every rank takes the same decisions
            return mean / dist.get_world_size()

        self.lbfgs.step(look)
        self._freeze(False)
        loss, logits, labels, place = outcomes[0]
        return StepOutcome(loss, logits, labels, (place,))

    def _freeze(self, frozen: bool) -> None:
        """Learning rates of fused optimizers to zero, or back."""
        for group in (group for name, part in self.parts.items() if name == "sparse" for group in part.param_groups):
            group.setdefault("rate", group["lr"])
            group["lr"] = 0.0 if frozen else group["rate"]
        if "sparse" in self.parts:
            self.parts["sparse"].step()  # hands the rate on to FBGEMM, and changes nothing else

    def pause(self) -> None:
        """The model is as TorchRec made it."""

    def resume(self) -> None:
        """The model is as TorchRec made it."""


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        data = RunData(
            train={**CLICKS, "num_samples": 8000}, test={**CLICKS, "first_sample": 8000, "num_samples": 2000}
        )
        for pipeline in ("base", {"name": "own_step:ClosureStep"}):
            run = Run(data=data, output=f"{folder}/{pipeline!s:.4}", pipeline=pipeline, metrics=RunMetrics(every=1))
            print(pipeline, f"log loss {train(run)['test']['logloss']:.4f} on data.test")
