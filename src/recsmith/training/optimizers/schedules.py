"""Learning rates from the schedulers of torch.optim.lr_scheduler; they depend only on the run and the step.

Needs only torch: a run is checked before anything imports TorchRec.
"""

import inspect
from array import array
from collections.abc import Sequence
from typing import Any

import torch
from torch.optim import lr_scheduler

from recsmith.errors import UsageError
from recsmith.files import did_you_mean
from recsmith.training.optimizers.settings import RunOptimizers, Stage

LEFT_OUT = {
    "LRScheduler": "it is what all of them are made from",
    "ReduceLROnPlateau": "it wants a score of each epoch; name another one, and watcher early_stopping beside it",
    "SequentialLR": "stages of a schedule follow each other; list them, each with `steps`",
    "ChainedScheduler": "it wants schedulers that are objects; list stages that follow each other",
    "LambdaLR": "it wants a function; a system of yours may set rates (docs/extending.md)",
    "MultiplicativeLR": "it wants a function; a system of yours may set rates (docs/extending.md)",
    "SWALR": "it is for averaged weights, of which a run keeps none",
}  # fmt: skip
CHECKED = 10_000  # steps of a schedule that are checked before a run starts


class Rates:
    """The learning rate of each step. where: path of the stages in the run, for errors.

    Raises:
        UsageError: there is no such scheduler, or it refuses its settings.
    """

    def __init__(self, rate: float, stages: Sequence[Stage], where: str) -> None:
        self.where, self.given = where, rate
        self._plain = torch.optim.SGD([torch.nn.Parameter(torch.zeros(()))], lr=rate)
        try:
            made = [_scheduler_of(each, where)(self._plain, **_settings(each)) for each in stages]
            milestones = torch.tensor([each["steps"] for each in stages[:-1]]).cumsum(0).tolist()
            one = made[0] if len(made) == 1 else lr_scheduler.SequentialLR(self._plain, made, milestones)
        except (TypeError, ValueError, KeyError, ZeroDivisionError) as error:
            raise UsageError(
                f"{where} cannot be made ({error}); see the arguments of torch.optim.lr_scheduler"
            ) from None
        self._scheduler = one
        self._known = array("d", [self._now()])

    def at(self, step: int) -> float:
        """The rate after `step` steps; UsageError if a scheduler ends before that."""
        while len(self._known) <= step:
            try:
                self._plain.step()
                self._scheduler.step()
            except ValueError as error:
                raise UsageError(
                    f"{self.where} has no rate after {len(self._known) - 1:,} steps ({error}); give it as many as the "
                    "run has"
                ) from None
            self._known.append(self._now())
        return self._known[step]

    def _now(self) -> float:
        return float(self._plain.param_groups[0]["lr"])


def check_schedules(optimizers: RunOptimizers, steps: int | None) -> None:
    """Make the schedules of a run and compute their rates, as jobs do before they train. steps: steps of the run.

    Raises:
        UsageError: a scheduler is unknown, refuses its settings, or ends before the run does.
    """
    for name in ("sparse", "dense"):
        given = getattr(optimizers, name)
        if given.schedule:
            rates = Rates(given.learning_rate, given.schedule, f"optimizers.{name}.schedule")
            rates.at(min(steps or 1, CHECKED))


def _settings(stage: Stage) -> dict[str, Any]:
    return {key: value for key, value in stage.items() if key not in ("name", "steps")}


def _scheduler_of(stage: Stage, where: str) -> Any:
    """The scheduler class of a name, in upper or lower case."""
    every = {
        name.lower(): name for name, each in vars(lr_scheduler).items()
        if inspect.isclass(each) and issubclass(each, lr_scheduler.LRScheduler) and not name.startswith("_")
    }  # fmt: skip
    name = every.get(str(stage["name"]).lower())
    if name in LEFT_OUT:
        raise UsageError(f"{where}: torch.optim.lr_scheduler.{name} cannot be named here: {LEFT_OUT[name]}")
    if name is None:
        fit = sorted(each for each in every.values() if each not in LEFT_OUT)
        raise UsageError(
            f"{where}: torch.optim.lr_scheduler has no '{stage['name']}'{did_you_mean(str(stage['name']), fit)}"
        )
    return getattr(lr_scheduler, name)
