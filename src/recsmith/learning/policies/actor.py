"""An actor of AutoShard's training, a process of its own: places a task by the weights it is sent, and measures.

    request   number, task, seed, episodes (int64), and the tensors of a network
    answer    what was placed, as it was seen, and what it cost: `Played`, array by array; or the words of an error

The first argument holds the settings as JSON. Requests come through standard input, answers go to standard output. An
answer follows from its request alone, so that an actor that was lost can be replaced by another. Imports no torch.

Legend: E episodes, N items, D devices.
"""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.errors import RecSmithError
from recsmith.files import decode, parse_json
from recsmith.jobs.messages import Arrays, receive, send, text_of
from recsmith.learning.policies.measured import MeasuredPlacement, PlacementMeter
from recsmith.learning.policies.settings import PolicySettings
from recsmith.learning.policies.tasks import PlacementTask
from recsmith.learning.policies.training_tasks import TrainingTask, training_task
from recsmith.planners.autoshard.network import AutoShardNetwork
from recsmith.planners.placing import ItemBatch
from recsmith.planners.placing.rollouts import FIGURES

REQUEST, ERROR = "request", "error"


@dataclass(frozen=True)
class Played:
    """Episodes of one task. order (N,): the task's items as they were placed; share (N,): of the mean load, of each.

    target (E, N): in that order. figures (N, E, D, FIGURES), room (N, E, D): as the policy saw devices; scores
    (N, E, D): what it said of them. costs (E, D, 3), step_s (E,): measured; those of dead ends (E,) are 0.
    """

    order: Ints
    share: Floats
    target: Ints
    figures: Floats
    room: Bools
    scores: Floats
    dead: Bools
    costs: Floats
    step_s: Floats


class Actor:
    """Plays requests, one after the other."""

    def __init__(self, settings: PolicySettings) -> None:
        self._tasks: Sequence[PlacementTask] = settings.draw(settings.tasks)
        self._meter = PlacementMeter(settings.hardware, self._tasks)
        self._made: dict[int, TrainingTask | None] = {}

    def play(self, request: Arrays) -> Played:
        """Place and measure what a request asks for."""
        number, place, seed, episodes = request.pop(REQUEST).tolist()
        if place not in self._made:
            self._made[place] = training_task(self._tasks, place)
        task = self._made[place]
        assert task is not None, "the learner asks for tasks whose tables have room"
        network = AutoShardNetwork({name: value.astype(np.float64) for name, value in request.items()})
        return play(network, task, episodes, np.random.default_rng([seed, number]), self._meter, number * episodes)


def play(
    network: AutoShardNetwork, task: TrainingTask, episodes: int, random: np.random.Generator, meter: PlacementMeter,
    visit: int,
) -> Played:  # fmt: skip
    """Place a task in some episodes, and measure those that found room. visit: of the first measurement."""
    ordered = network.order(task.items)
    order = np.searchsorted(task.items.row, ordered.row)  # rows of a task's items rise
    found = network.rollout(ordered, episodes, random, record=True)
    costs, step_s = np.zeros((episodes, ordered.devices, 3)), np.zeros(episodes)
    for i in np.flatnonzero(~found.dead).tolist():
        measured = _measure(meter, task, ordered, found.target[i], visit + i)
        costs[i], step_s[i] = measured.costs, measured.step_s
    share = found.figures[:, 0, 0, FIGURES - 1] if len(ordered) else np.zeros(0)
    return Played(order, share, found.target, found.figures, found.room, found.scores, found.dead, costs, step_s)


def _measure(
    meter: PlacementMeter, task: TrainingTask, items: ItemBatch, target: Ints, visit: int
) -> MeasuredPlacement:
    return meter.measure(task.evaluator, items.assignment(target).footprint(task.evaluator.problem), visit)


def main() -> None:
    """Answer requests until there are no more."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print is no answer
    actor: Actor | None = None
    while (request := receive(sys.stdin.buffer)) is not None:
        answer: dict[str, Any]
        try:
            actor = actor or Actor(decode(PolicySettings, parse_json(sys.argv[1], "settings"), "settings"))
            answer = vars(actor.play(request))
        except RecSmithError as error:
            answer = {ERROR: text_of(str(error))}
        try:
            send(out, answer)
        except BrokenPipeError:  # the learner has ended
            return


if __name__ == "__main__":
    main()
