"""Tasks in a run: a label, its loss and its weight; without torch."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

from recsmith._components import parsed, unknown
from recsmith._types import noun
from recsmith.data import DataSchema
from recsmith.errors import UsageError, check_rules
from recsmith.files import did_you_mean

KIND = "loss"
CHANCES = ("binary", "pairwise")  # losses of labels between 0 and 1
NUMBERS = ("mse",)  # losses with which a model's output is the label itself, not a logit
Loss = str | dict[str, Any]


@noun
class RunTask:
    """What a model learns about one label of the data.

    label: name of the label. loss: binary (cross entropy), mse (squared error of the model's output), pairwise
    (logistic loss of pairs of samples in the wrong order), or 'module:function' of yours; or a mapping with `name` and
    settings. weight: factor of this loss in the sum over all tasks.
    """

    label: str
    loss: Loss = "binary"
    weight: float = 1.0

    def __post_init__(self) -> None:
        check_rules(
            unknown(KIND, self.loss, f"model.tasks: loss of '{self.label}'"),
            None
            if 0 < self.weight < float("inf")
            else f"model.tasks: weight of '{self.label}' is {self.weight:g}; it must be above 0 and finite",
        )

    @property
    def loss_name(self) -> str:
        """The name of its loss, without settings."""
        return parsed(self.loss, "model.tasks")[0]


def check_tasks(tasks: Sequence[RunTask], loss: Literal["binary", "softmax"]) -> None:
    """UsageError if tasks name a label twice, or the run also gives one loss for all labels."""
    twin = next((name for name, count in Counter(each.label for each in tasks).items() if count > 1), None)
    check_rules(
        None if twin is None else f"model.tasks names label '{twin}' twice; give each label one task",
        None
        if not tasks or loss == "binary"
        else f"model.loss is {loss}, and model.tasks has a loss for each label; leave one of them out",
    )


def tasks_of(tasks: Sequence[RunTask], schema: DataSchema) -> tuple[RunTask, ...]:
    """The tasks of a run in the order of the data's labels; empty if the run has one loss for all labels.

    Raises:
        UsageError: a task has no label, a label has no task, or a loss does not fit its label.
    """
    odd = next((each for each in tasks if each.label not in schema.labels), None)
    if odd is not None:
        hint = did_you_mean(odd.label, list(schema.labels))
        raise UsageError(f"model.tasks names '{odd.label}', and the data has no such label{hint}")
    named = {each.label: each for each in tasks}
    if not tasks:
        special = next(iter((*schema.missing_labels, *schema.number_labels)), None)
        if special is not None:
            holds = "may be missing" if special in schema.missing_labels else "holds numbers"
            raise UsageError(
                f"label '{special}' {holds}, which a run without tasks cannot learn; write model.tasks: "
                f"[{{label: {special}, loss: {'mse' if special in schema.number_labels else 'binary'}}}, ...]"
            )
        return ()
    left = next((name for name in schema.labels if name not in named), None)
    if left is not None:
        raise UsageError(f"label '{left}' of the data has no task; add it to model.tasks, or leave it out of the data")
    made = tuple(named[name] for name in schema.labels)
    for each in made:
        if each.loss_name in CHANCES and each.label in schema.number_labels:
            raise UsageError(
                f"model.tasks: label '{each.label}' holds numbers, and {each.loss_name} learns labels of 0 to 1; write "
                "loss: mse"
            )
    return made


def number_tasks(tasks: Sequence[RunTask], schema: DataSchema) -> tuple[str, ...]:
    """Labels whose value the model predicts directly; for other labels it returns a logit."""
    return tuple(each.label for each in tasks if each.loss_name in NUMBERS or each.label in schema.number_labels)
