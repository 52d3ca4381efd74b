"""Tasks as training sees them: every task with each rule of what is split first, and the items that come of it."""

from collections.abc import Sequence
from dataclasses import dataclass

from recsmith.costs import Evaluator
from recsmith.learning.policies.measured import evaluator_of
from recsmith.learning.policies.tasks import PlacementTask
from recsmith.planners.placing import TRAINED, ItemBatch, SplitRule, items_of


@dataclass(frozen=True)
class TrainingTask:
    """A task under a rule: its evaluator (of collectives), and its items before they are ordered.

    number: its place among all tasks under all rules, also those in which a table finds no room.
    """

    number: int
    evaluator: Evaluator
    items: ItemBatch


def training_tasks(tasks: Sequence[PlacementTask], rules: Sequence[SplitRule] = TRAINED) -> list[TrainingTask]:
    """All tasks under all rules whose tables have room."""
    made = [training_task(tasks, number, rules) for number in range(len(tasks) * len(rules))]
    return [each for each in made if each is not None]


def training_task(
    tasks: Sequence[PlacementTask], number: int, rules: Sequence[SplitRule] = TRAINED
) -> TrainingTask | None:
    """The task under a rule at a place among all; None where a table placed before finds no room."""
    task, rule = divmod(number, len(rules))
    evaluator = evaluator_of(tasks[task])
    items = items_of(evaluator.problem, evaluator, rules[rule])
    return None if items is None else TrainingTask(number, evaluator, items)
