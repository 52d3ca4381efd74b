# pyright: basic
"""AutoShard, trained from top to bottom: actors place and measure, and the learner learns from shards and episodes.

Zha et al., AutoShard: Automated Embedding Table Sharding for Recommender Systems (KDD 2022), on IMPALA (Espeholt et
al., 2018):

    actors, processes of their own: place a task by the weights they were sent, and measure       actors.py
    the learner, for each answer:
        put the measured shards into the ring buffer, over the oldest ones
        improve policy and baseline by V-trace: the actor had older weights than the learner has
        fit the cost network to shards of the ring buffer

**Answers are taken in the order of their requests**, and request number n is sent once answer n - A has arrived (A
actors), so the weights of an actor are always A updates old (fewer at the start of an iteration). So a run depends only
on its seed and its number of actors, even if actors are lost, as long as the hardware measures the same.

The networks are those of planners/autoshard.py, which places (in NumPy, also in the actors, so that the trained network
is the one that ships); networks.py has the same formulas in PyTorch, for gradients. Imports torch.

Legend: N items, D devices, E episodes, B shards of a batch, k terms, p representation, T steps (= N).
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from recsmith._types import Floats, Ints
from recsmith.errors import RecSmithError, UsageError
from recsmith.learning.policies import AutoShardIteration, AutoShardRecipe, PolicySettings
from recsmith.learning.policies.actors import Actors, Played
from recsmith.learning.policies.arrays import array_of
from recsmith.learning.policies.measured import PlacementMeter, TrainingTask, training_tasks
from recsmith.learning.policies.networks import (
    VALUE_SHAPES,
    AutoShardNetworks,
    cost_loss,
    descend,
    held_with_item,
    median_error,
    restore_state,
    state_of,
    v_trace,
)
from recsmith.learning.policies.tasks import PlacementTask
from recsmith.planners.autoshard import SHAPES
from recsmith.planners.placing.policy_network import NO_ROOM

DEAD = 1.5  # cost of an episode that ended in a dead end, over the worst step of its task
LEAST_SPREAD = 0.01  # spread of the steps of a task's episodes, over their mean, that counts at least


@dataclass(frozen=True)
class MeasuredShard:
    """The shards of one device in a measured placement: items of a task, in the task's order, and seconds (3,)."""

    task: int
    items: Ints
    costs: Floats


@dataclass(frozen=True)
class Outlook:
    """The learner's view of an actor's episodes: log-chances of the chosen devices, entropy, baseline; all (T, E).

    log_ratio: log of the learner's chance over the actor's. placed: whether a step placed something.
    """

    log_chance: Tensor
    entropy: Tensor
    value: Tensor
    log_ratio: Tensor
    placed: Tensor


class AutoShardTraining:
    """A run of training, iteration by iteration; a checkpoint stores its state."""

    def __init__(self, recipe: AutoShardRecipe, tasks: list[TrainingTask], settings: PolicySettings) -> None:
        self.recipe, self.tasks, self.settings = recipe, tasks, settings
        self.networks = AutoShardNetworks(
            SHAPES | VALUE_SHAPES, [task.items for task in tasks], recipe.seed, recipe.greed
        )
        self.adams = self.networks.adams(recipe.cost_rate, recipe.policy_rate)
        self.ring: list[MeasuredShard] = []
        self.stored = self.measured = self.iteration = 0  # shards, placements

    def run(self, on_iteration: Callable[[AutoShardIteration], None], ends: float | None = None) -> None:
        """Run the remaining iterations; none begins after monotonic time `ends`. on_iteration: called after each."""
        begun = time.monotonic()
        if self.iteration == self.recipe.iterations:
            return
        with Actors(self.settings, self.recipe.actors) as actors:
            while self.iteration < self.recipe.iterations and (ends is None or time.monotonic() < ends):
                means = self._iterate(actors)
                self.iteration += 1
                on_iteration(
                    AutoShardIteration(
                        number=self.iteration, iterations=self.recipe.iterations, measured=self.measured, **means,
                        lost=actors.lost, elapsed_s=time.monotonic() - begun,
                    )
                )  # fmt: skip

    def _iterate(self, actors: Actors) -> dict[str, float]:
        """One iteration: send requests, learn from each answer in order, send more; returns means over the answers."""
        recipe = self.recipe
        random = np.random.default_rng([recipe.seed, self.iteration])  # so that a continued run is the same
        left = 1 - self.iteration / recipe.iterations
        for adam, rate in ((self.adams.policy, recipe.policy_rate * left), (self.adams.costs, recipe.cost_rate * left)):
            for group in adam.param_groups:
                group["lr"] = rate
        chosen = random.choice(len(self.tasks), recipe.answers, replace=recipe.answers > len(self.tasks)).tolist()

        def ask(turn: int) -> None:
            if turn < recipe.answers:
                number = self.iteration * recipe.answers + turn
                place, tensors = self.tasks[chosen[turn]].number, self.networks.frozen().tensors
                actors.ask(turn % recipe.actors, number, place, recipe.seed, recipe.episodes, tensors)

        for turn in range(recipe.actors):
            ask(turn)
        seen: list[dict[str, float]] = []
        for turn, index in enumerate(chosen):
            played = actors.answer(turn % recipe.actors)
            ask(turn + recipe.actors)
            seen.append(self._learn(index, played, random))
        return {name: _mean([each[name] for each in seen]) for name in seen[0]}

    def _learn(self, index: int, played: Played, random: np.random.Generator) -> dict[str, float]:
        """Learn from an answer."""
        self._store(index, played)
        found = self._improve(index, played)
        alive = played.step_s[~played.dead]
        return {
            "measured_s": float(alive.mean()) if len(alive) else float("nan"), "error": self._fit(random), **found,
            "dead": float(played.dead.mean()),
        }  # fmt: skip

    # --- 1. the ring buffer, and the cost network

    def _store(self, index: int, played: Played) -> None:
        """Put the shards of every device into the ring buffer, over the oldest shards."""
        fresh = [
            MeasuredShard(index, np.sort(played.order[target == device]), costs[device])
            for target, costs, dead in zip(played.target, played.costs, played.dead, strict=True)
            if not dead
            for device in np.unique(target).tolist()
        ]
        first = not self.ring and bool(fresh)
        for shard in fresh:
            if len(self.ring) < self.recipe.slots:
                self.ring.append(shard)
            else:
                self.ring[self.stored % self.recipe.slots] = shard
            self.stored += 1
        self.measured += int((~played.dead).sum())
        if first:
            self.networks.calibrate(*self._batch(self.ring))

    def _fit(self, random: np.random.Generator) -> float:
        """Fit the cost network to shards of the ring buffer; returns their median relative error, mean over updates."""
        if not self.ring:
            raise RecSmithError("no placement found room for every table; give other tasks")
        errors: list[float] = []
        for _ in range(self.recipe.cost_updates):
            chosen = random.integers(0, len(self.ring), self.recipe.shards)
            costs, wanted = self._batch([self.ring[i] for i in chosen.tolist()])
            descend(self.adams.costs, cost_loss(costs, wanted), self.recipe.longest)
            errors.append(median_error(costs, wanted))
        return float(np.mean(errors)) if errors else float("nan")

    def _batch(self, shards: list[MeasuredShard]) -> tuple[Tensor, Tensor]:
        """Costs (B, 3) of shards, predicted and measured."""
        items = [self.tasks[shard.task].items for shard in shards]
        parts = [
            (each.inputs[shard.items], each.work[shard.items], each.link_s[shard.items])
            for each, shard in zip(items, shards, strict=True)
        ]
        place = [np.full(len(shard.items), i) for i, shard in enumerate(shards)]
        wanted = torch.as_tensor(np.stack([shard.costs for shard in shards]), dtype=torch.float32)
        return self.networks.costs(self.networks.sums(parts, place, len(shards))), wanted

    # --- 2. policy and baseline

    def _improve(self, index: int, played: Played) -> dict[str, float]:
        """One update of policy and baseline from the episodes of a task."""
        outlook = self._outlook(index, played)
        with torch.no_grad():
            target, advantage = v_trace(self._rewards(played), outlook.value, outlook.log_ratio)
        count = outlook.placed.sum().clamp(min=1)
        policy_loss = -(advantage * outlook.log_chance)[outlook.placed].sum() / count
        value_loss = 0.5 * (target - outlook.value)[outlook.placed].square().sum() / count
        entropy = outlook.entropy[outlook.placed].sum() / count
        loss = policy_loss + self.recipe.baseline * value_loss - self.recipe.entropy * entropy
        descend(self.adams.policy, loss, self.recipe.longest)
        off = (outlook.log_ratio[outlook.placed].exp() - 1).abs()
        return {
            "entropy": float(entropy.detach()), "value_error": float((2 * value_loss).sqrt().detach()),
            "ratio": float(off.mean().detach()) if len(off) else 0.0,
        }  # fmt: skip

    def _rewards(self, played: Played) -> Tensor:
        """Rewards (T, E): 0, but at the last step how much shorter the episode's step is than its task's mean.

        They are in units of the spread of the task's episodes.
        """
        alive = played.step_s[~played.dead]
        cost = np.where(played.dead, DEAD * alive.max() if len(alive) else 1.0, played.step_s)
        reward = np.zeros(played.target.T.shape)
        reward[-1] = (cost.mean() - cost) / max(float(cost.std()), LEAST_SPREAD * float(cost.mean()))
        return torch.as_tensor(reward, dtype=torch.float32)

    def _outlook(self, index: int, played: Played) -> Outlook:
        """The current learner's view of an actor's episodes."""
        scores, value, placed = self.scores(index, played)
        with torch.no_grad():
            behaved = torch.log_softmax(torch.as_tensor(played.scores, dtype=torch.float32), dim=-1)
        log_all = torch.log_softmax(scores, dim=-1)
        target = torch.as_tensor(played.target.T.clip(0))[..., None]  # ignored where nothing was placed
        log_chance, before = (each.gather(2, target)[..., 0] for each in (log_all, behaved))
        entropy = -(log_all.exp() * log_all.clamp(min=-1e4)).sum(dim=-1)
        log_ratio = torch.where(placed, (log_chance - before).detach(), torch.zeros_like(before))
        return Outlook(log_chance, entropy, value, log_ratio, placed)

    def scores(self, index: int, played: Played) -> tuple[Tensor, Tensor, Tensor]:
        """Scores (T, E, D) and baselines (T, E) of every recorded step; and which steps placed something (T, E)."""
        share = torch.as_tensor(played.share, dtype=torch.float32)[:, None]
        inputs = torch.as_tensor(self.tasks[index].items.inputs[played.order], dtype=torch.float32)
        own = self.networks.two_layers("own", inputs) * share  # (N, p)
        figures = torch.as_tensor(played.figures, dtype=torch.float32)
        states = self.networks.states(torch.cat([own, share, figures[:, 0, 0, -2:-1]], dim=1))
        held, placed = held_with_item(own, played.target, played.room.shape[-1])
        seen = torch.cat([held, figures], dim=-1)
        scores, value = self.networks.scores_and_values(states, seen)
        return torch.where(torch.as_tensor(played.room) | ~placed[..., None], scores, NO_ROOM), value, placed

    # --- what a checkpoint keeps

    def state(self) -> dict[str, Any]:
        """Arrays from which `restore` continues: networks, both optimizers, and the ring buffer."""
        kept = state_of(self.networks, self.adams)
        kept["counts"] = np.array([self.stored, self.measured])
        kept["ring.task"] = np.array([shard.task for shard in self.ring])
        kept["ring.size"] = np.array([len(shard.items) for shard in self.ring])
        kept["ring.items"] = np.concatenate([shard.items for shard in self.ring])
        kept["ring.costs"] = np.stack([shard.costs for shard in self.ring])
        return kept

    def restore(self, kept: dict[str, Any], iteration: int) -> None:
        """Continue from a state after this many iterations."""
        restore_state(kept, self.networks, self.adams)
        tasks = array_of(kept, "ring.task", [None]).tolist()
        sizes = array_of(kept, "ring.size", [len(tasks)])
        items = np.split(array_of(kept, "ring.items", [int(sizes.sum())]), np.cumsum(sizes)[:-1])
        rows = zip(tasks, items, array_of(kept, "ring.costs", [len(tasks), 3]), strict=True)
        self.ring = [MeasuredShard(task, held, costs) for task, held, costs in rows]
        self.stored, self.measured = array_of(kept, "counts", [2]).tolist()
        self.iteration = iteration


def _mean(values: list[float]) -> float:
    """The mean of the finite values, 0 without any: not every answer has a placement that found room."""
    known = [value for value in values if np.isfinite(value)]
    return float(np.mean(known)) if known else 0.0


def recipe_of(settings: PolicySettings, fields: dict[str, Any]) -> AutoShardRecipe:
    """The recipe with these fields; actors are 2 by default if measurements are simulated, and 1 otherwise.

    Raises:
        UsageError: several actors would measure on the same real hardware.
    """
    simulated = settings.hardware.startswith("simulated:")
    recipe = AutoShardRecipe(**{"actors": 2 if simulated else 1, **fields})
    if recipe.actors > 1 and not simulated:
        raise UsageError(
            f"{recipe.actors} actors would disturb each other's measurements on {settings.hardware}; give --actors 1"
        )
    return recipe


def training_of(
    recipe: AutoShardRecipe, settings: PolicySettings, tasks: Sequence[PlacementTask], meter: PlacementMeter
) -> AutoShardTraining:
    """A run on these tasks; actors measure with meters of their own."""
    del meter
    return AutoShardTraining(recipe, training_tasks(tasks), settings)
