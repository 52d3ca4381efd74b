"""The placement environment under Gymnasium's interface, for learners of any kind (imports gymnasium when it is made).

    environment = placement_environment(task)          # a task of tasks.py, or any problem and evaluator
    observation, info = environment.reset(seed=0)
    action = environment.action_space.sample(mask=observation["mask"])
    observation, reward, terminated, truncated, info = environment.step(action)

An episode places the items of one task, the most costly first; an action is a device. The vectorised core is
planners/placing/items.py, which planners use too: this is one episode of it.

    item      (x,)     inputs of the item that is placed next, as for learned cost models
    work      (b,)     its work, as a share of that of all items
    devices   (D, b)   work of each device, as a share of that of all items, times D
    used      (D,)     used share of the memory of each device
    mask      (D,)     1 for devices with room for the item
    left      (1,)     share of the items that are not placed

The reward is 0 until the last item, then -(seconds of the step) / (seconds with an even share of everything), by a cost
model, or by hardware if `step_s` is given. A dead end, or an action that the mask forbids, ends the episode with
DEAD_END and without a plan: info["dead_end"] is then true, and no plan is ever invalid.

Legend: N items, D devices, x inputs, b figures of work.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from recsmith._install import TRAINING
from recsmith._types import Floats, Ints
from recsmith.costs import Evaluator, step_seconds
from recsmith.errors import MissingExtra, NoPlanFound
from recsmith.planners.placing import Episodes, ItemBatch, items_of
from recsmith.problems import Footprint, Problem

DEAD_END = -10.0  # reward: worse than any step that is not ten times as long as an even share would be
LARGEST_INPUT = 1e3  # limit of observations, which the interface requires


def placement_environment(
    problem: Problem, evaluator: Evaluator, step_s: Callable[[Footprint], float] | None = None
) -> Any:
    """A gymnasium.Env of one problem; rewards use the evaluator's seconds, or those of step_s (measured, for example).

    Raises:
        MissingExtra: gymnasium is missing.
        NoPlanFound: a table that is placed before finds no room, or no table is placed on a single device.
    """
    try:
        gymnasium = import_module("gymnasium")
    except ModuleNotFoundError:
        raise MissingExtra(f"the placement environment needs gymnasium: {TRAINING}") from None
    items = items_of(problem, evaluator)
    if items is None or not len(items):
        raise NoPlanFound("no table of the problem goes to a single device; allow table_wise or column_wise")
    core = _PlacementCore(items, evaluator, step_s or (lambda footprint: step_seconds(evaluator, footprint)))

    class PlacementEnvironment(gymnasium.Env):
        """One task; see recsmith.learning.policies.environment."""

        def __init__(self) -> None:
            box, count = gymnasium.spaces.Box, core.items.devices
            inputs, work = core.items.inputs.shape[1], core.items.work.shape[1]
            self.observation_space = gymnasium.spaces.Dict(
                item=box(-LARGEST_INPUT, LARGEST_INPUT, (inputs,), np.float32),
                work=box(0.0, 1.0, (work,), np.float32),
                devices=box(0.0, float(count), (count, work), np.float32),
                used=box(0.0, 1.0, (count,), np.float32),
                mask=gymnasium.spaces.MultiBinary(count),
                left=box(0.0, 1.0, (1,), np.float32),
            )
            self.action_space = gymnasium.spaces.Discrete(count)

        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
            """Empty all devices and begin with the first item; nothing about an episode is random."""
            gymnasium.Env.reset(self, seed=seed)
            core.reset()
            return core.observation(), {}

        def step(self, action: Any) -> Any:
            """Put the item on a device."""
            reward, over, info = core.step(int(action))
            return core.observation(), reward, over, False, info

    return PlacementEnvironment()


class _PlacementCore:
    """An episode of one task: rewards and observations of the environment."""

    def __init__(self, items: ItemBatch, evaluator: Evaluator, step_s: Callable[[Footprint], float]) -> None:
        seconds = evaluator.loads(_alone(items, evaluator)).sum(axis=0)
        self.items, self.evaluator, self._step_s = items.sorted_by(seconds), evaluator, step_s
        self.even_s = max(float(seconds.sum()) / items.devices, 1e-12)
        self.share = self.items.work / np.maximum(self.items.work.sum(axis=0), 1e-300)  # (N, b)
        self.reset()

    def reset(self) -> None:
        """Begin a new episode."""
        self.episodes = Episodes(self.items, 1)
        self.held: Floats = np.zeros((self.items.devices, self.share.shape[1]))

    def step(self, device: int) -> tuple[float, bool, dict[str, Any]]:
        """Put the next item on a device; returns (reward, whether the episode is over, info)."""
        item = self.episodes.step
        if not self.episodes.place(np.array([device]))[0]:
            return DEAD_END, True, {"dead_end": True}
        self.held[device] += self.share[item]
        if self.episodes.done:
            target: Ints = self.episodes.target[0]
            step_s = self._step_s(self.items.assignment(target).footprint(self.evaluator.problem))
            return -step_s / self.even_s, True, {"dead_end": False, "step_s": step_s, "target": target.copy()}
        dead = not self.episodes.room().any()
        return (DEAD_END if dead else 0.0), dead, {"dead_end": dead}

    def observation(self) -> dict[str, Any]:
        """The observation of a learner; zeros for the item once all are placed."""
        done, devices = self.episodes.done, self.items.devices
        item = min(self.episodes.step, len(self.items) - 1)
        used = 1.0 - self.episodes.free[0] / np.maximum(self.items.free, 1)
        mask = np.zeros(devices, dtype=bool) if done else self.episodes.room()[0]
        held = np.clip(self.held * devices, 0.0, devices)
        return {
            "item": np.clip(self.items.inputs[item], -LARGEST_INPUT, LARGEST_INPUT).astype(np.float32) * (not done),
            "work": np.clip(self.share[item], 0.0, 1.0).astype(np.float32) * (not done),
            "devices": held.astype(np.float32),
            "used": np.clip(used, 0.0, 1.0).astype(np.float32),
            "mask": mask.astype(np.int8),
            "left": np.array([1.0 - self.episodes.step / len(self.items)], dtype=np.float32),
        }


def _alone(items: ItemBatch, evaluator: Evaluator) -> Floats:
    """Work terms of each item by itself (N, k)."""
    pieces = evaluator.problem.pieces
    piece = items.draft.piece[items.row]
    return evaluator.terms(pieces.mode[piece], pieces.width[piece])
