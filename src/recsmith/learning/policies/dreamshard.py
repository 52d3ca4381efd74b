# pyright: basic
"""DreamShard, trained from top to bottom: place, measure, fit the cost network, improve the policy on its estimates.

Zha et al., DreamShard: Generalizable Embedding Table Placement for Recommender Systems (NeurIPS 2022), algorithm 1:

    for each iteration:
        place some tasks by the policy, and measure the placements             costs of every device, and of the step
        fit the cost network to all measurements so far
        improve the policy by REINFORCE; the cost network gives the cost of an episode          the estimated MDP

The networks are those of planners/dreamshard.py, which places (in NumPy, also here, so that the trained network is the
one that ships); this file has the same formulas in PyTorch, for gradients. Imports torch.

Legend: N items, D devices, E episodes, B placements of a batch, k terms, p representation, T steps (= N).
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from recsmith._types import Floats, Ints
from recsmith.errors import RecSmithError
from recsmith.learning.policies import DreamShardIteration, DreamShardRecipe, PolicySettings
from recsmith.learning.policies.arrays import array_of
from recsmith.learning.policies.measured import MeasuredPlacement, PlacementMeter, TrainingTask, training_tasks
from recsmith.learning.policies.networks import (
    PolicyNetworks,
    cost_loss,
    descend,
    held_with_item,
    median_error,
    restore_state,
    state_of,
)
from recsmith.learning.policies.tasks import PlacementTask
from recsmith.learning.training_loop import relative_loss
from recsmith.planners.dreamshard import SHAPES, STEP_REACH, DreamShardNetwork
from recsmith.planners.placing import ItemBatch
from recsmith.planners.placing.policy_network import LOG_SPAN, MICRO, NO_ROOM, REPRESENTED, Rollout

DEAD = 1.5  # cost of an episode that ended in a dead end, over the worst step of the batch


@dataclass(frozen=True)
class PlacementSample:
    """A measured placement: its task, the devices of the items (N,) in the task's order, and its cost."""

    task: int
    target: Ints
    measured: MeasuredPlacement


# --- the networks: the formulas of planners/dreamshard.py, with gradients -----------------------------------


class DreamShardNetworks(PolicyNetworks):
    """Both networks; networks.py has the part that predicts the costs of devices."""

    POLICY = ("own0", "own0_bias", "own1", "own1_bias", "score0", "score0_bias", "score1", "log_greed")

    def frozen(self) -> DreamShardNetwork:
        """The same networks in NumPy, for placing."""
        return DreamShardNetwork(self.tensors())

    def step(self, sums: Tensor, costs: Tensor) -> Tensor:  # (..., D, k), (..., D, 3) -> (...)
        """Seconds of the step."""
        seen = torch.cat([sums.amax(dim=-2), costs.amax(dim=-2) * MICRO], dim=-1)
        hidden = self.linear("step0", torch.log1p(seen) / LOG_SPAN).relu()
        factor = torch.exp(STEP_REACH * torch.tanh(self.linear("step1", hidden)[..., 0]))
        return costs.sum(dim=-1).amax(dim=-1) * factor

    def score(self, seen: Tensor) -> Tensor:  # (..., p + FIGURES) -> (...)
        """Scores of the policy's inputs for each device."""
        hidden = self.linear("score0", seen).relu()
        return hidden @ self.get_parameter("score1")[0] - self.get_parameter("log_greed").exp() * seen[..., REPRESENTED]


# --- training -------------------------------------------------------------------------------------------------------


class DreamShardTraining:
    """A run of training, iteration by iteration; a checkpoint stores its state."""

    def __init__(self, recipe: DreamShardRecipe, tasks: list[TrainingTask], meter: PlacementMeter) -> None:
        self.recipe, self.tasks, self.meter = recipe, tasks, meter
        self.networks = DreamShardNetworks(SHAPES, [task.items for task in tasks], recipe.seed, recipe.greed)
        self.adams = self.networks.adams(recipe.cost_rate, recipe.policy_rate)
        self.samples: list[PlacementSample] = []
        self.iteration = 0

    def run(self, on_iteration: Callable[[DreamShardIteration], None], ends: float | None = None) -> None:
        """Run the remaining iterations; none begins after monotonic time `ends`. on_iteration: called after each."""
        begun = time.monotonic()
        while self.iteration < self.recipe.iterations and (ends is None or time.monotonic() < ends):
            random = np.random.default_rng([self.recipe.seed, self.iteration])  # so that a continued run is the same
            self._set_rates()
            if self.recipe.reward == "measured":
                fresh = self._improve_on_measured(random)
                error, (estimated_s, entropy, dead) = self._fit(random), fresh
            else:
                self._collect(random, self.recipe.placements)
                error = self._fit(random)
                estimated_s, entropy, dead = self._improve(random)
            self.iteration += 1
            recent = [sample.measured.step_s for sample in self.samples[-self.recipe.placements :]]
            on_iteration(
                DreamShardIteration(
                    number=self.iteration, iterations=self.recipe.iterations, measured=len(self.samples),
                    measured_s=float(np.mean(recent)), estimated_s=estimated_s, error=error, entropy=entropy, dead=dead,
                    elapsed_s=time.monotonic() - begun,
                )
            )  # fmt: skip

    def _set_rates(self) -> None:
        """Set the learning rates of both networks; the policy's falls to 0 over the run, as in the paper."""
        left = 1 - self.iteration / self.recipe.iterations
        for group in self.adams.policy.param_groups:
            group["lr"] = self.recipe.policy_rate * left
        for group in self.adams.costs.param_groups:
            group["lr"] = self.recipe.cost_rate * max(left, 0.1)

    # --- 1. place, and measure

    def _collect(self, random: np.random.Generator, count: int) -> None:
        """Place randomly drawn tasks by draws from the policy, and measure the placements that found room."""
        network = self.networks.frozen()
        for index in random.choice(len(self.tasks), count, replace=count > len(self.tasks)).tolist():
            items = network.order(self.tasks[index].items)
            found = network.rollout(items, 1, random)
            if not found.dead[0]:
                self._measure(index, items, found.target[0])
        if not self.samples:
            raise RecSmithError("no placement found room for every table; give other tasks")
        if self.iteration == 0:
            self._calibrate()

    def _measure(self, index: int, items: ItemBatch, target: Ints) -> float:
        """Seconds of the step of a placement of ordered items; it is added to the samples."""
        evaluator, draft = self.tasks[index].evaluator, items.assignment(target)
        measured = self.meter.measure(evaluator, draft.footprint(evaluator.problem), len(self.samples))
        self.samples.append(PlacementSample(index, draft.target[self.tasks[index].items.row], measured))
        return measured.step_s

    def _calibrate(self) -> None:
        """Scale the untrained heads to the measured costs."""
        _, costs, _, wanted, _ = self._batch(self.samples)
        self.networks.calibrate(costs, wanted)

    # --- 2. fit the cost network

    def _fit(self, random: np.random.Generator) -> float:
        """Fit the cost network to all measurements; returns the median relative error of devices, last updates."""
        errors: list[float] = []
        for _ in range(self.recipe.cost_updates):
            chosen = random.integers(0, len(self.samples), self.recipe.batch)
            _, costs, step, wanted, step_wanted = self._batch([self.samples[i] for i in chosen.tolist()])
            loss = cost_loss(costs, wanted) + relative_loss((step - step_wanted) / step_wanted)
            descend(self.adams.costs, loss)
            errors.append(median_error(costs, wanted))
        return float(np.mean(errors[-20:]))

    def _batch(self, samples: list[PlacementSample]) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Sums (B, D, k), costs (B, D, 3) and step (B,) as predicted for placements, and the latter two as measured."""
        devices = self.tasks[0].items.devices
        items = [self.tasks[sample.task].items for sample in samples]
        place = [i * devices + sample.target for i, sample in enumerate(samples)]
        parts = [(each.inputs, each.work, each.link_s) for each in items]
        sums = self.networks.sums(parts, place, len(samples) * devices).reshape(len(samples), devices, -1)
        costs = self.networks.costs(sums)
        wanted = torch.as_tensor(np.stack([sample.measured.costs for sample in samples]), dtype=torch.float32)
        steps = torch.tensor([sample.measured.step_s for sample in samples])
        return sums, costs, self.networks.step(sums, costs), wanted, steps

    # --- 3. improve the policy

    def _improve(self, random: np.random.Generator) -> tuple[float, float, float]:
        """REINFORCE on the estimated MDP: the cost network gives the cost of episodes. Means of the last updates."""
        seen: list[tuple[float, float, float]] = []
        for _ in range(self.recipe.policy_updates):
            network = self.networks.frozen()
            items = network.order(self.tasks[int(random.integers(len(self.tasks)))].items)
            found = network.rollout(items, self.recipe.episodes, random, record=True)
            entropy = self._reinforce(items, found, found.step_s)
            seen.append((float(found.step_s.mean()), entropy, float(found.dead.mean())))
        return tuple(np.mean(seen[-20:], axis=0).tolist()) if seen else (0.0, 0.0, 0.0)

    def _improve_on_measured(self, random: np.random.Generator) -> tuple[float, float, float]:
        """REINFORCE on measured steps instead: about `placements` measurements per iteration, one per episode."""
        seen: list[tuple[float, float, float]] = []
        for _ in range(max(1, self.recipe.placements // self.recipe.episodes)):
            index, network = int(random.integers(len(self.tasks))), self.networks.frozen()
            items = network.order(self.tasks[index].items)
            found = network.rollout(items, self.recipe.episodes, random, record=True)
            steps = found.step_s.copy()
            for i in np.flatnonzero(~found.dead).tolist():
                steps[i] = self._measure(index, items, found.target[i])
            entropy = self._reinforce(items, found, steps)
            seen.append((float(steps.mean()), entropy, float(found.dead.mean())))
        if self.iteration == 0:
            self._calibrate()
        return tuple(np.mean(seen, axis=0).tolist())

    def _reinforce(self, items: ItemBatch, found: Rollout, step_s: Floats) -> float:
        """One update from the episodes of a task and their costs (E,); returns the mean entropy of a step."""
        cost = np.where(found.dead, DEAD * step_s.max(), step_s)
        advantage = torch.as_tensor((cost.mean() - cost) / max(cost.std(), 1e-12), dtype=torch.float32)
        log_chance, entropy = self._chances(items, found)
        loss = -(advantage * log_chance).mean() - self.recipe.entropy * entropy.mean()
        descend(self.adams.policy, loss)
        return float(entropy.mean().detach())

    def _chances(self, items: ItemBatch, found: Rollout) -> tuple[Tensor, Tensor]:
        """Log-probability of each episode, a mean over its steps (E,), and the entropy of each step (T, E)."""
        scores, placed = self.policy_scores(items, found)
        log_all = torch.log_softmax(scores, dim=-1)
        target = torch.as_tensor(found.target.T.clip(0))  # (E, N) -> (T, E); ignored where none had room
        chosen = torch.where(placed, log_all.gather(2, target[..., None])[..., 0], 0.0)
        entropy = -(log_all.exp() * log_all.clamp(min=-1e4)).sum(dim=-1)
        return chosen.mean(dim=0), torch.where(placed, entropy, 0.0)

    def policy_scores(self, items: ItemBatch, found: Rollout) -> tuple[Tensor, Tensor]:
        """Scores (T, E, D) of every step of recorded episodes; and which steps placed something (T, E)."""
        network = self.networks.frozen()
        alone = network.costs(network.terms(items)).sum(axis=-1)
        share = torch.as_tensor(alone / alone.sum() * items.devices, dtype=torch.float32)
        own = self.networks.two_layers("own", torch.as_tensor(items.inputs, dtype=torch.float32)) * share[:, None]
        held, placed = held_with_item(own, found.target, items.devices)
        figures = torch.as_tensor(found.figures, dtype=torch.float32)
        scores = self.networks.score(torch.cat([held, figures], dim=-1))
        room = torch.as_tensor(found.room)
        return torch.where(room | ~placed[..., None], scores, NO_ROOM), placed

    @property
    def measured(self) -> int:
        """Number of measured placements."""
        return len(self.samples)

    # --- what a checkpoint keeps

    def state(self) -> dict[str, Any]:
        """Arrays from which `restore` continues: networks, both optimizers, and the measurements."""
        kept = state_of(self.networks, self.adams)
        kept["samples.task"] = np.array([sample.task for sample in self.samples])
        kept["samples.target"] = np.concatenate([sample.target for sample in self.samples])
        kept["samples.costs"] = np.stack([sample.measured.costs for sample in self.samples])
        kept["samples.step_s"] = np.array([sample.measured.step_s for sample in self.samples])
        return kept

    def restore(self, kept: dict[str, Any], iteration: int) -> None:
        """Continue from a state after this many iterations."""
        restore_state(kept, self.networks, self.adams)
        tasks = array_of(kept, "samples.task", [None]).tolist()
        counts = [len(self.tasks[index].items) for index in tasks]
        targets = np.split(array_of(kept, "samples.target", [sum(counts)]), np.cumsum(counts)[:-1])
        costs = array_of(kept, "samples.costs", [len(tasks), None, 3])
        step_s = array_of(kept, "samples.step_s", [len(tasks)])
        self.samples = [
            PlacementSample(index, target, MeasuredPlacement(cost, float(step)))
            for index, target, cost, step in zip(tasks, targets, costs, step_s, strict=True)
        ]
        self.meter.count, self.iteration = len(self.samples), iteration


def recipe_of(settings: PolicySettings, fields: dict[str, Any]) -> DreamShardRecipe:
    """The recipe with these fields, for any hardware."""
    del settings
    return DreamShardRecipe(**fields)


def training_of(
    recipe: DreamShardRecipe, settings: PolicySettings, tasks: Sequence[PlacementTask], meter: PlacementMeter
) -> DreamShardTraining:
    """A run on these tasks, which a meter measures."""
    del settings
    return DreamShardTraining(recipe, training_tasks(tasks), meter)
