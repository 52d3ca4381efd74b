"""A system of one's own, cosine learning rates that begin anew: run python examples/own_system.py.

Warm restarts (Loshchilov and Hutter 2017, arXiv 1608.03983): the learning rate of dense layers falls by a cosine, and
begins anew after cycles that grow. A run names it as `systems: {"own_system:WarmRestarts": {first: 20}}`; nothing else
of RecSmith knows of it. It says in a dry run what it does, refuses what it does not go with, keeps its state in
checkpoints, and stands in the card of the trained model.
"""

import math
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from recsmith.training import Run, RunData, RunFacts, System, SystemLine, noun, train

CLICKS = {"format": "generator", "num_samples": 6400, "features": [{"name": "item", "num_embeddings": 100}]}


@noun
class Cycles:
    """Cycles of the learning rate.

    first: steps of the first one. growth: times the steps of a cycle that the next one has. floor: share of the
    learning rate at the end of each.
    """

    first: int
    growth: int = 2
    floor: float = 0.01


@noun
class CycleState:
    """What a checkpoint keeps: the step that the cycle began after, and its length."""

    begun: int
    length: int


class InCycles:
    """The learning rate of a job while it trains."""

    def __init__(self, cycles: Cycles) -> None:
        self.cycles, self.begun, self.length = cycles, 0, cycles.first

    def begin(self, steps: int | None, kept: dict[str, Any] | None) -> None:
        """Begin with the first cycle, or in that of a checkpoint."""
        if kept is not None:
            self.begun, self.length = kept["begun"], kept["length"]

    def before_step(self, job: Any) -> None:
        """Set the learning rate of dense layers."""
        step = job.progress.step
        while step >= self.begun + self.length:
            self.begun, self.length = self.begun + self.length, self.length * self.cycles.growth
        share = (1 + math.cos(math.pi * (step - self.begun) / self.length)) / 2
        rate = job.run.optimizers.dense.learning_rate * max(share, self.cycles.floor)
        for name, part in job.sharded.optimizer.optimizers:
            for group in part.param_groups if name == "dense" else ():
                group["lr"] = rate

    def to_raw(self) -> dict[str, int]:
        """What a checkpoint keeps (CycleState)."""
        return {"begun": self.begun, "length": self.length}


class WarmRestarts(System):
    """Learning rates that begin anew."""

    name = "warm_restarts"  # of its entry point, where a package offers it
    settings, kept, state = Cycles, "warm_restarts", CycleState

    def wrong(self, run: Run) -> Iterable[str | None]:
        """Two schedules of one learning rate."""
        if self.settings_in(run) and (run.optimizers.warmup_steps or run.optimizers.decay_steps):
            yield f"{self.key} changes learning rates, and optimizers has warm-up or decay, too; leave one of them out"

    def summary(self, run: Run, facts: RunFacts) -> list[SystemLine]:
        """What a dry run says."""
        cycles = self.settings_in(run)
        said = f"learning rates fall for {cycles.first} steps at first, and begin anew" if cycles else ""
        return [SystemLine(key=self.key, on=True, said=said)] if cycles else []

    def attached(self, run: Run, model: Any) -> InCycles | None:
        """What a job has while it trains."""
        cycles = self.settings_in(run)
        return None if cycles is None else InCycles(cycles)

    def brought(self, job: Any) -> dict[str, str]:
        """What a job says of it at its end."""
        if self.settings_in(job.run) is None:
            return {}
        cycle = job.attached[self.kept or self.key]
        return {self.key: f"warm restarts: the last cycle began after step {cycle.begun}, of {cycle.length} steps"}

    def exported(self, run: Run, model: Any) -> dict[str, Any]:
        """What the card of the trained model says."""
        cycles = self.settings_in(run)
        return {} if cycles is None else {"first": cycles.first, "growth": cycles.growth}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        systems = {"own_system:WarmRestarts": {"first": 20}}
        made = Run(data=RunData(train=CLICKS, batch_size=64), output=f"{folder}/out", systems=systems)
        print(train(made, on_progress=lambda told: print(told.get("note", ""))))
        print((Path(folder) / "out" / "model" / "card.json").read_text())
