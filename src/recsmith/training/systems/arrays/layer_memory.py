"""The step of an array's layers within a memory limit: sub-arrays run one after the other, as the scheduler planned.

The backward pass of each sub-array follows its forward pass immediately, inside the forward pass of the model. The
gradients of weights and of pooled vectors are then ready when autograd asks for them.

K members, n members of a sub-array, B samples, L labels, T features, D columns
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from recsmith.prediction.activations.graph import TrainingGraph
from recsmith.prediction.activations.scheduler import ArraySchedule, partitions, scheduled
from recsmith.training.systems.arrays.scheduling.profiling import H100, TracedStep, cpu_rates, traced
from recsmith.training.systems.arrays.scheduling.running import HostCopies, StreamedCopies, run_schedule

# (shape of a member's pooled vectors, shape of dense features, number of labels)
Shapes = tuple[tuple[int, int], tuple[int, int], int]


class LayerMemory:
    """The schedules of an array's step, one for each shape of batches.

    limit: bytes. groups: numbers of members whose layers are alike. models: of each member. given: what replaces its
    tables.
    """

    def __init__(
        self, limit: float, groups: Sequence[Sequence[int]], models: Sequence[Any], given: Sequence[Any]
    ) -> None:
        self.limit, self.groups, self.models, self.given = limit, groups, models, given
        self._plans: dict[tuple[Shapes, str], tuple[ArraySchedule, dict[tuple[int, int], TracedStep]]] = {}
        self._copies: HostCopies | StreamedCopies | None = None

    def plan(self, shapes: Shapes, device: torch.device) -> ArraySchedule:
        """The schedule for batches of these shapes.

        Raises:
            NoPlanFound: no schedule stays within the limit.
            UsageError: a user's own model cannot be traced.
        """
        return self._planned(shapes, device)[0]

    def _planned(self, shapes: Shapes, device: torch.device) -> tuple[ArraySchedule, dict[tuple[int, int], TracedStep]]:
        if (shapes, device.type) not in self._plans:
            rates, steps = H100 if device.type == "cuda" else cpu_rates(), dict[tuple[int, int], TracedStep]()
            (samples, columns), dense, labels = shapes

            def graph_of(group: int, count: int) -> TrainingGraph:
                if (group, count) not in steps:
                    models = [self.models[number] for number in self.groups[group][:count]]
                    sizes = (samples, count, columns), dense, labels
                    steps[group, count] = traced(models, self.given[self.groups[group][0]], sizes, rates, device)
                return steps[group, count].graph

            sizes = [len(group) for group in self.groups]
            joined = samples * columns * len(self.models) * 4  # gradients of pooled vectors
            held = 0 if all(map(_in_order, self.groups)) else joined
            made = scheduled(graph_of, partitions(sizes), self.limit, link=rates.link, joined=joined, held=held)
            self._plans[shapes, device.type] = made, steps
        return self._plans[shapes, device.type]

    def trained(
        self, pooled: torch.Tensor, dense: torch.Tensor, labels: int, weights: Sequence[Sequence[torch.Tensor]],
        gradient: Callable[[list[int], torch.Tensor], torch.Tensor],
    ) -> tuple[torch.Tensor, torch.Tensor, list[list[torch.Tensor]]]:  # fmt: skip
        """(logits (K, B, L), gradients of pooled vectors (B, K, T * D), gradients of the weights of each member).

        Args:
            pooled: vectors of all members (B, K, T * D).
            dense: dense features, one row a sample.
            labels: number of labels, L.
            weights: of each member.
            gradient: function of (numbers of members, their logits) that returns the loss gradient for the logits.
        """
        device, shapes = pooled.device, ((len(pooled), pooled.shape[2]), (len(dense), dense.shape[1]), labels)
        schedule, steps = self._planned(shapes, device)
        if self._copies is None:
            self._copies = StreamedCopies(device) if device.type == "cuda" else HostCopies()
        numbers = self.members_of(schedule)
        inputs = [
            [*(each for number in part for each in weights[number]), _vectors(pooled, part), dense] for part in numbers
        ]
        found = run_schedule(
            schedule, [steps[part] for part in schedule.parts], inputs,
            lambda place, logits: gradient(numbers[place], logits), self._copies,
        )  # fmt: skip
        logits: list[Any] = [None] * len(self.models)
        of_pooled: list[Any] = [None] * len(self.models)
        of_weights: list[list[torch.Tensor]] = [[] for _ in self.models]
        for part, (outputs, *gradients, vectors) in zip(numbers, found, strict=True):
            for place, number in enumerate(part):
                size = len(weights[number])
                logits[number], of_pooled[number] = outputs[place], vectors[:, place]
                of_weights[number] = gradients[place * size : (place + 1) * size]
        whole = found[0][-1] if len(found) == 1 and _in_order(numbers[0]) else torch.stack(of_pooled, 1)
        return torch.stack(logits), whole, of_weights

    def members_of(self, schedule: ArraySchedule) -> list[list[int]]:
        """The numbers of the members of each sub-array."""
        left, found = [list(group) for group in self.groups], list[list[int]]()
        for group, count in schedule.parts:
            found.append(left[group][:count])
            left[group] = left[group][count:]
        return found


def _in_order(numbers: Sequence[int]) -> bool:
    """Whether these members are adjacent and in order."""
    return list(numbers) == [*range(numbers[0], numbers[-1] + 1)]


def _vectors(pooled: torch.Tensor, numbers: list[int]) -> torch.Tensor:
    """The pooled vectors of some members; a view if the members are adjacent."""
    return pooled[:, numbers[0] : numbers[-1] + 1] if _in_order(numbers) else pooled[:, numbers]


class StepWithin(torch.autograd.Function):
    """Computes (loss, losses, logits) of all members in the forward pass, and their gradients with them."""

    @staticmethod
    def forward(ctx: Any, layers: Any, batch: Any, pooled: torch.Tensor, *_: torch.Tensor) -> Any:
        """Run the schedule. layers: Layers of model.py; its weights are the arguments after `pooled`, by member."""
        weights = [list(named.values()) for named in layers.named]
        labels = batch.labels.shape[1]
        logits, of_pooled, of_weights = layers.memory.trained(
            pooled, batch.dense_features, labels, weights, lambda numbers, each: _gradient(layers, batch, numbers, each)
        )
        ctx.gradients = [of_pooled, *(each for of_member in of_weights for each in of_member)]
        losses = layers.losses(logits, batch)
        ctx.mark_non_differentiable(losses, logits)
        return layers.loss(losses), losses, logits

    @staticmethod
    def backward(ctx: Any, *above: Any) -> Any:
        """The kept gradients, times the gradient of the loss (above), which is 1 if this loss is trained directly."""
        gradients, ctx.gradients = ctx.gradients, None
        whole = above[0].device.type == "cpu" and float(above[0]) == 1.0
        return None, None, *(each if whole else each * above[0] for each in gradients)


def _gradient(layers: Any, batch: Any, numbers: list[int], logits: torch.Tensor) -> torch.Tensor:
    """The gradient of the loss of some members for their logits (n, B, L)."""
    with torch.enable_grad():
        leaf = logits.detach().requires_grad_()
        loss = layers.loss(layers.losses(leaf, batch), numbers)
    return torch.autograd.grad(loss, leaf)[0]
