"""Weights & Biases: a run whose history is the numbers of log.jsonl by step, and whose config is the run's keys."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Literal

from recsmith._install import WANDB
from recsmith.training.job.job import TrainingJob
from recsmith.training.run import run_to_raw
from recsmith.training.watchers.hearing import HearingWatcher


class WandbRuns(HearingWatcher):
    """Writes what log.jsonl says into a run of Weights & Biases; a resumed job writes into the same run.

    project, entity: project and entity of the run. run_name: name of the run; none: its output folder. mode: offline
    keeps the run in the folder wandb of the run's output, for `wandb sync`; none: WANDB_MODE, or online.
    """

    package, install = "wandb", WANDB

    def __init__(
        self, *, project: str = "recsmith", entity: str | None = None, run_name: str | None = None,
        mode: Literal["online", "offline"] | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.project, self.entity, self.run_name, self.mode = project, entity, run_name, mode
        self._run: Any = None

    def begin(self, job: TrainingJob) -> None:
        """Open the run; printed output is not captured."""
        wandb: Any = import_module("wandb")
        self._run = wandb.init(
            project=self.project, entity=self.entity, name=self.run_name or str(job.output), id=self.run_id,
            resume="allow", mode=self.mode, dir=str(job.output), config=run_to_raw(job.run),
            settings=wandb.Settings(console="off"),
        )  # fmt: skip
        self.run_id = str(self._run.id)
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")  # steps may be written again after a restart

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        """Write the numbers of a step."""
        self._run.log({"step": step, **numbers})

    def end(self, *, failed: bool) -> None:
        """Report how the run ended."""
        self._run.finish(exit_code=int(failed))
