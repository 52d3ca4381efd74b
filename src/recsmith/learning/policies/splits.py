# pyright: basic
"""The policy that decides which tables are split, trained by imitation of search and by REINFORCE (imports torch).

    for each iteration:
        search     episodes of some tasks: by rules drawn at random, drawn from the policy, and near the best episode
        imitate    decide as the best episode of each task decided, of all that were found so far
        reinforce  several episodes of a task drawn from the policy; the mean of all is the baseline

Everything runs on the **estimated MDP**: a cost model gives the cost of episodes; nothing is measured. The gain of an
episode is its advantage over longest-first placement of the same task, as a share of that placement's step, so an
episode that is only as good as this greedy gains nothing. Several episodes of a task as their own baseline are POMO's
(Kwon et al., NeurIPS 2020); imitation of a search that the policy leads is expert iteration (Anthony et al., NeurIPS
2017).

The formula is that of planners/placing/split_policy.py. Legend: V decisions, E episodes.
"""

import math
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from recsmith._types import Bools, Floats, Ints
from recsmith.costs import Evaluator, cost_model, step_seconds
from recsmith.learning.policies import SplitIteration, SplitRecipe
from recsmith.learning.policies.arrays import adam_arrays, array_of, restore_adam, restore_parameter
from recsmith.learning.policies.tasks import SPACE, PlacementTask
from recsmith.planners.placing.best_split import best_split, longest_first_plan
from recsmith.planners.placing.shapes import shapes_of
from recsmith.planners.placing.split_episodes import Decisions, EndedEpisodes, PricedShapes
from recsmith.planners.placing.split_policy import FIGURES, SHAPES, Decide, SplitPolicy
from recsmith.problems import build_problem

LONGEST = 1.0  # norm to which a longer gradient is clipped
LOST = -1.0  # gain of a dead end
JUDGED_BY = 8  # episodes of a task that judge a policy
MOST_TURNED = 3  # decisions that are inverted in an episode near the best one
RULES = ((2.0**-6, 1.0), (1.02, 2.0))  # drawn rules: share of a device from which tables are split; most extra work


@dataclass(frozen=True)
class SplitTask:
    """A task to learn on. greedy_s: seconds of its longest-first placement."""

    priced: PricedShapes
    greedy_s: float

    def gains(self, step_s: Floats) -> Floats:
        """Gains of episodes (E,)."""
        return np.where(np.isfinite(step_s), 1 - step_s / self.greedy_s, LOST).clip(LOST)


def split_tasks(tasks: Sequence[PlacementTask], model: str) -> list[SplitTask]:
    """Tasks priced by a cost model, without those in which longest-first finds no room, or nothing can be split."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings of a cost model beyond its training data
        compiled = [cost_model(model).compile(build_problem(task.workload, task.cluster, SPACE)) for task in tasks]
    return [made for made in map(split_task, compiled) if made is not None]


def split_task(evaluator: Evaluator) -> SplitTask | None:
    """A task of a problem, or None."""
    shapes = shapes_of(evaluator.problem, evaluator)
    greedy = longest_first_plan(evaluator, best_split(evaluator.problem, evaluator))
    if shapes is None or greedy is None:
        return None
    priced = PricedShapes(shapes, evaluator)
    greedy_s = step_seconds(evaluator, greedy.footprint(evaluator.problem))
    return SplitTask(priced, greedy_s) if priced.free_choice else None


def ahead_of_longest_first(tasks: Sequence[SplitTask], policy: SplitPolicy) -> float:
    """The share of longest-first's step that the best of JUDGED_BY episodes saves, mean over tasks."""
    random = np.random.default_rng(0)
    ended = [task.priced.play(JUDGED_BY, policy.drawn(random, likeliest=True)) for task in tasks]
    gains = [float(task.gains(each.step_s).max()) for task, each in zip(tasks, ended, strict=True)]
    return float(np.mean(gains)) if gains else 0.0


@dataclass(frozen=True)
class Example:
    """The best episode of a task so far: its gain, its shapes, the policy's inputs and the decisions (V,)."""

    gain: float
    shape: Ints
    figures: Floats
    split: Bools


def _drawn_rules(count: int, random: np.random.Generator) -> Decide:
    """Rules for splits, one per episode: split from a share of a device's load on, unless that adds too much work."""
    share, extra = (random.uniform(low, high, count) for low, high in np.log2(RULES).tolist())
    return lambda rows, _, seen: (seen[:, 0] > share[rows] / 4) & (seen[:, 2] <= extra[rows])


class SplitTraining:
    """A run of training, iteration by iteration; a checkpoint stores its state."""

    def __init__(self, recipe: SplitRecipe, tasks: list[SplitTask]) -> None:
        self.recipe, self.tasks, self.iteration = recipe, tasks, 0
        random = torch.Generator().manual_seed(recipe.seed)
        self.parameters: dict[str, Tensor] = {}
        for name, shape in SHAPES.items():
            bound = 1 / math.sqrt(shape[-1])
            first = (torch.rand(shape, generator=random) * 2 - 1) * bound if len(shape) == 2 else torch.zeros(shape)
            self.parameters[name] = first.requires_grad_()
        self.adam = torch.optim.Adam(list(self.parameters.values()), lr=recipe.rate)
        self.examples: dict[int, Example] = {}  # best episodes by task

    def frozen(self) -> SplitPolicy:
        """The same policy in NumPy, for planning."""
        return SplitPolicy({name: each.detach().double().numpy().copy() for name, each in self.parameters.items()})

    def run(self, on_iteration: Callable[[SplitIteration], None], ends: float | None = None) -> None:
        """Run the remaining iterations; none begins after monotonic time `ends`. on_iteration: called after each."""
        begun = time.monotonic()
        while self.iteration < self.recipe.iterations and (ends is None or time.monotonic() < ends):
            random = np.random.default_rng([self.recipe.seed, self.iteration])  # so that a continued run is the same
            for group in self.adam.param_groups:
                group["lr"] = self.recipe.rate * (1 - self.iteration / self.recipe.iterations)
            searched = self._search(random) if self.recipe.imitation else 0.0
            imitated = self._imitate(random) if self.recipe.imitation else 0.0
            drawn = self._reinforce(random)
            self.iteration += 1
            on_iteration(
                SplitIteration(
                    number=self.iteration, iterations=self.recipe.iterations, searched=searched, imitated=imitated,
                    drawn=drawn, elapsed_s=time.monotonic() - begun,
                )
            )  # fmt: skip

    def _search(self, random: np.random.Generator) -> float:
        """Search some tasks; returns the mean gain of their best episodes."""
        policy, chosen = self.frozen(), random.permutation(len(self.tasks))[: self.recipe.searched].tolist()
        for index in chosen:
            task, width = self.tasks[index], self.recipe.width
            self._keep(index, task.priced.play(width, _drawn_rules(width, random)))
            self._keep(index, task.priced.play(width, policy.drawn(random, likeliest=True)))
            for _ in range(self.recipe.rounds if index in self.examples else 0):
                split = self._near(index, random)
                self._keep(index, task.priced.play(width, lambda rows, s, _, split=split: split[rows, s]))
        found = [self.examples[index].gain for index in chosen if index in self.examples]
        return float(np.mean(found)) if found else 0.0

    def _keep(self, index: int, ended: EndedEpisodes) -> None:
        """Keep the best episode of a task, if it is better than the known one."""
        gain, made = float(self.tasks[index].gains(ended.step_s)[ended.best]), ended.made_in(ended.best)
        if gain > (self.examples[index].gain if index in self.examples else LOST) and len(made.split):
            self.examples[index] = Example(gain, made.shape, made.figures, made.split)

    def _near(self, index: int, random: np.random.Generator) -> Bools:
        """Splits of episodes near the best one at each turn (E, S): some decisions inverted, costly ones more often."""
        priced, best = self.tasks[index].priced, self.examples[index]
        split = np.zeros((self.recipe.width, len(priced.alone)), dtype=bool)
        split[:, best.shape] = best.split
        weight = np.where(priced.splits, priced.alone, 0.0)
        for row in split:
            count = random.integers(1, min(MOST_TURNED, int((weight > 0).sum())) + 1)
            row[random.choice(len(weight), count, replace=False, p=weight / weight.sum())] ^= True
        return split

    def _imitate(self, random: np.random.Generator) -> float:
        """Imitate the best episodes; returns the mean loss of the last decisions. Every task has the same weight."""
        if not self.examples:
            return 0.0
        known = list(self.examples.values())
        figures = torch.as_tensor(np.concatenate([each.figures for each in known]), dtype=torch.float32)
        wanted = torch.as_tensor(np.concatenate([each.split for each in known]), dtype=torch.float32)
        chance = np.concatenate([np.full(len(each.split), 1 / len(each.split)) for each in known]) / len(known)
        losses: list[float] = []
        for _ in range(self.recipe.imitation):
            some = torch.as_tensor(random.choice(len(wanted), self.recipe.batch, p=chance / chance.sum()))
            loss = torch.nn.functional.binary_cross_entropy_with_logits(self.odds(figures[some]), wanted[some])
            self._descend(loss)
            losses.append(float(loss.detach()))
        return float(np.mean(losses[-50:]))

    def _reinforce(self, random: np.random.Generator) -> float:
        """REINFORCE, with several episodes of each task; returns their mean gain."""
        gains: list[float] = []
        for _ in range(self.recipe.updates):
            task, policy = self.tasks[int(random.integers(len(self.tasks)))], self.frozen()
            ended = task.priced.play(self.recipe.episodes, policy.drawn(random))
            gain = task.gains(ended.step_s)
            gains.append(float(gain.mean()))
            if len(ended.decisions.split):
                self._update(ended.decisions, (gain - gain.mean()) / max(float(gain.std()), self.recipe.least_spread))
        return float(np.mean(gains)) if gains else 0.0

    def _update(self, made: Decisions, advantage: Floats) -> None:
        """Make decisions of episodes with an advantage (E,) likelier; entropy keeps chances open."""
        odds = self.odds(torch.as_tensor(made.figures, dtype=torch.float32))
        split, log = torch.as_tensor(made.split), torch.nn.functional.logsigmoid
        log_chance = torch.where(split, log(odds), log(-odds))
        weight = torch.as_tensor(advantage[made.episode], dtype=torch.float32)
        chance = torch.sigmoid(odds)
        entropy = -(chance * log(odds) + (1 - chance) * log(-odds)).mean()
        self._descend(-(weight * log_chance).mean() - self.recipe.entropy * entropy)

    def odds(self, figures: Tensor) -> Tensor:  # (V, FIGURES) -> (V,)
        """Log-odds of splitting further."""
        linear, known = torch.nn.functional.linear, self.parameters
        hidden = linear(figures, known["split0"], known["split0_bias"]).relu()
        return linear(hidden, known["split1"], known["split1_bias"])[:, 0]

    def _descend(self, loss: Tensor) -> None:
        self.adam.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(list(self.parameters.values()), LONGEST)
        self.adam.step()

    # --- checkpoints

    def state(self) -> dict[str, Any]:
        """Arrays from which `restore` continues: weights, the optimizer, and the examples."""
        kept: dict[str, Any] = {name: each.detach().numpy().copy() for name, each in self.parameters.items()}
        for name, each in self.parameters.items():
            kept |= adam_arrays(self.adam, each, f"adam.{name}")
        kept["examples"] = np.array(list(self.examples))  # in the order in which they are drawn from
        for index, each in self.examples.items():
            kept[f"example.{index}.gain"] = np.array(each.gain)
            for part in ("shape", "figures", "split"):
                kept[f"example.{index}.{part}"] = getattr(each, part)
        return kept

    def restore(self, kept: dict[str, Any], iteration: int) -> None:
        """Continue from a state after this many iterations."""
        self.iteration = iteration
        for name, each in self.parameters.items():
            restore_parameter(each, kept, name)
            restore_adam(self.adam, each, kept, f"adam.{name}")
        self.examples = {}
        for index in array_of(kept, "examples", [None]).tolist():
            shape = array_of(kept, f"example.{index}.shape", [None])
            self.examples[index] = Example(
                float(array_of(kept, f"example.{index}.gain", [])), shape,
                array_of(kept, f"example.{index}.figures", [len(shape), FIGURES]),
                array_of(kept, f"example.{index}.split", [len(shape)]),
            )  # fmt: skip
