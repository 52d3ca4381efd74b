# pyright: basic
"""Compares FBGEMM with PyTorch: outputs and updated weights of small cases (imports torch).

The reference is torch.nn.EmbeddingBag with torch.optim.SGD and Adagrad. PyTorch has no row-wise Adagrad, so its
definition is used: a row's state grows by the mean of its squared gradient, and the step divides by the root of the
state plus eps.
"""

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from recsmith._types import noun
from recsmith.hardware.case import SCALES, Case
from recsmith.hardware.fused_tables import FusedTables, Memory
from recsmith.hardware.lookups import Lookups, draw_lookups, uniform_pool

LEARNING_RATE = 0.1  # large, so that a wrong update shows in the weights
EPS = 1e-8  # added by Adagrad to roots: FBGEMM's default
STEPS = 2  # the second reads weights and states that the first has updated
TINY = 1e-12  # least divisor of differences: outputs may all be 0
TORCH_TYPES = {"fp32": torch.float32, "fp16": torch.float16}


@noun
class Difference:
    """The largest differences of a case after some steps, relative to the largest value: of outputs and of weights."""

    case: Case
    outputs: float
    weights: float


def compare(case: Case, place: torch.device) -> Difference:
    """Train a case with FBGEMM and with PyTorch for STEPS steps from the same weights, and compare.

    Raises:
        UsageError: the case is larger than scale check.
    """
    case.check(SCALES["check"])
    memory = Memory.of(SCALES["check"], place)
    lookups = draw_lookups(case, uniform_pool(SCALES["check"].lookups, place))
    generator = torch.Generator().manual_seed(case.number)
    kind = TORCH_TYPES[case.data_type]
    start = (torch.rand(case.elements, generator=generator) - 0.5).to(place).to(kind)
    memory.weights.view(kind)[: case.elements] = start
    memory.state.zero_()
    pull = torch.rand(case.outputs, generator=generator).to(place).view(case.workload.batch_size, -1)
    tables = FusedTables(case, memory, learning_rate=LEARNING_RATE, stochastic=False)
    reference = _Reference(case, lookups, start.double())
    outputs = 0.0
    for _ in range(STEPS):
        ours, theirs = tables(lookups.ids, lookups.offsets), reference.forward()
        outputs = max(outputs, _difference(ours, theirs))
        ours.backward(pull)
        reference.step(pull.double())
        if case.data_type == "fp16":
            reference.round(kind)
    return Difference(
        case=case, outputs=outputs, weights=_difference(memory.weights.view(kind)[: case.elements], reference.weights)
    )


class _Reference:
    """The tables of a case as EmbeddingBags in fp64; fp16 weights are rounded after each step."""

    def __init__(self, case: Case, lookups: Lookups, start: Tensor) -> None:
        self.rowwise = case.workload.optimizer == "rowwise_adagrad"
        sizes = [table.num_embeddings * table.embedding_dim for table in case.tables]
        self.bags = [
            nn.EmbeddingBag(table.num_embeddings, table.embedding_dim, mode="sum", include_last_offset=True,
                            _weight=weights.reshape(table.num_embeddings, -1).clone())
            for table, weights in zip(case.tables, start.split(sizes), strict=True)
        ]  # fmt: skip
        bounds = lookups.offsets[:: case.workload.batch_size].tolist()
        self.inputs: list[tuple[Tensor, Tensor]] = []
        for t, (first, last) in enumerate(pairwise(bounds)):
            begin = t * case.workload.batch_size
            offsets = lookups.offsets[begin : begin + case.workload.batch_size + 1] - first
            self.inputs.append((lookups.ids[first:last], offsets))
        self.output = start.new_empty(0)
        self.state = [torch.zeros(len(bag.weight), 1).to(start) for bag in self.bags]
        parameters = [bag.weight for bag in self.bags]
        optimizer: dict[str, Any] = {"sgd": torch.optim.SGD, "adagrad": torch.optim.Adagrad}
        settings = {"eps": EPS} if case.workload.optimizer == "adagrad" else {}
        self.optimizer = (
            None if self.rowwise else optimizer[case.workload.optimizer](parameters, LEARNING_RATE, **settings)
        )

    def forward(self) -> Tensor:
        self.output = torch.cat([bag(*each) for bag, each in zip(self.bags, self.inputs, strict=True)], dim=1)
        return self.output

    def step(self, pull: Tensor) -> None:
        for bag in self.bags:
            bag.weight.grad = None
        self.output.backward(pull)
        if self.optimizer:
            self.optimizer.step()
            return
        for bag, state in zip(self.bags, self.state, strict=True):
            gradient = bag.weight.grad
            assert gradient is not None
            state += gradient.square().mean(dim=1, keepdim=True)
            bag.weight.data -= LEARNING_RATE * gradient / (state.sqrt() + EPS)

    def round(self, kind: torch.dtype) -> None:
        for bag in self.bags:
            bag.weight.data = bag.weight.data.to(kind).double()

    @property
    def weights(self) -> Tensor:
        return torch.cat([bag.weight.detach().ravel() for bag in self.bags])


def _difference(ours: Tensor, theirs: Tensor) -> float:
    """The largest absolute difference, relative to the largest value of theirs."""
    ours, theirs = ours.detach().double(), theirs.detach()
    return float((ours - theirs).abs().max() / theirs.abs().max().clamp(min=TINY))
