"""Future gradient: forecasts the next period's gradient as a weighted sum of the gradients of the last K periods.

Ye et al., Future Gradient Descent for Adapting the Temporal Shifting Data Distribution in Online Recommendation Systems
(UAI 2022, arXiv 2209.01143); the generator is linear here. Before period t is trained, g_j is the gradient of the loss
on period t - j by dense parameters, at their values when training on t - 1 began. The weights c are those that would
have forecast g_0 from g_1 .. g_K, by ridge regression on their dot products, in which earlier periods count less. Then
the losses of t, t - 1, .. t - K + 1 are weighted with c in every step. Tables are looked up in their current state,
because an earlier copy would double their memory: only in a model without tables are the gradients exact.

K number of weighted periods
"""

import base64
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np

from recsmith._types import Floats, noun
from recsmith.errors import CorruptFile, UsageError
from recsmith.files import Raw, decode, encode
from recsmith.training.systems.periods.updates.protocol import Update

PLACE = "the update of the checkpoint"
SHARE = 2  # the gradients for fitting weights may together cost 1 / SHARE of a plain period


@dataclass
class Fitted:
    """The sums of dot products to which weights are fitted, and the weights of the newest period.

    products: (K, K), of earlier gradients with each other. targets: (K,), of earlier gradients with the forecast one.
    """

    products: Floats
    targets: Floats
    period: int
    weights: tuple[float, ...]


@noun
class KeptSums:
    """The content of `Fitted` in a checkpoint."""

    products: tuple[tuple[float, ...], ...]
    targets: tuple[float, ...]
    period: int
    weights: tuple[float, ...]

    def fitted(self, count: int) -> Fitted:
        """The sums as `Fitted`; CorruptFile if they are not of `count` periods."""
        lengths = {len(self.products), len(self.targets), len(self.weights), *map(len, self.products)}
        if lengths != {count}:
            raise CorruptFile(f"{PLACE} has sums of {sorted(lengths)} periods, not {count}; it is damaged")
        return Fitted(np.array(self.products), np.array(self.targets), self.period, self.weights)


@noun
class KeptTensor:
    """A tensor of dense parameters in a checkpoint: its shape, and its values in fp32 as base64."""

    shape: tuple[int, ...]
    values: str


@noun
class KeptUpdate:
    """The state of future gradient in a checkpoint: sums, and dense parameters at the beginning of period `visited`."""

    periods: int
    visited: int
    dense: tuple[KeptTensor, ...]
    sums: KeptSums | None = None


@dataclass
class Visited:
    """Copies of the dense parameters at the beginning of training on a period."""

    period: int
    dense: list[Any]


class FutureGradient(Update):
    """Weights the losses of the last periods so that they would have forecast the newest period's gradient.

    periods: number of periods, K. forgetting: factor of all earlier sums with each new period. ridge: how strongly
    weights are drawn towards those of `incremental` (1, 0, ..), in mean squares of gradients.
    """

    def __init__(self, *, periods: int = 3, forgetting: float = 0.98, ridge: float = 0.02) -> None:
        wrong = [
            f"periods is {periods}; 2 or more, or write incremental" if periods < 2 else None,
            None if 0 < forgetting <= 1 else f"forgetting is {forgetting}; it must be above 0, and at most 1",
            None if ridge > 0 else f"ridge is {ridge}; it must be above 0, since gradients may be multiples of another",
        ]
        for sentence in filter(None, wrong):
            raise UsageError(f"data.periods.update.{sentence}")
        self.mixed, self.forgetting, self.ridge = periods, forgetting, ridge
        self.fitted: Fitted | None = None
        self.visited: Visited | None = None

    def weights(self, job: Any, period: int) -> tuple[float, ...]:
        """Weights of the losses of a period and of those before it; (1,) until there are K periods to forecast from."""
        if self.visited is not None and self.visited.period == period:
            return self._kept(period)
        before, self.visited = self.visited, visited(job, period)
        if before is None or period < self.mixed:
            return (1.0,)
        dots = dot_products(job, before.dense, period, self.mixed)
        if not np.isfinite(dots).all() or dots[0, 0] <= 0:
            job.log.say({"note": f"period {period}: its gradient is zero or not finite, so it is learnt by itself"})
            return (1.0,)
        self.fitted = self._fit(dots / dots[0, 0], period)
        return self.fitted.weights

    def _kept(self, period: int) -> tuple[float, ...]:
        """The weights that were returned before for the period that is being trained."""
        return self.fitted.weights if self.fitted is not None and self.fitted.period == period else (1.0,)

    def _fit(self, dots: Floats, period: int) -> Fitted:
        """Fit weights to dot products (K + 1, K + 1) of the gradients of a period and of the K before it."""
        products, targets = dots[1:, 1:], dots[1:, 0]
        if self.fitted is not None:
            products = products + self.forgetting * self.fitted.products
            targets = targets + self.forgetting * self.fitted.targets
        return Fitted(products, targets, period, ridge_weights(products, targets, self.ridge))

    def to_raw(self) -> Raw | None:
        """The sums and weights, and the dense parameters at which the next weights are fitted; None at the start."""
        if self.visited is None:
            return None
        at, fitted = self.visited, self.fitted
        sums = None if fitted is None else KeptSums(
            products=tuple(tuple(row) for row in fitted.products.tolist()), targets=tuple(fitted.targets.tolist()),
            period=fitted.period, weights=fitted.weights,
        )  # fmt: skip
        return encode(KeptUpdate(periods=self.mixed, visited=at.period, dense=packed_tensors(at.dense), sums=sums))

    def from_raw(self, raw: Raw) -> None:
        """Restore the state from a checkpoint.

        Raises:
            UsageError: the state is of another number of periods.
            CorruptFile: the state is damaged.
        """
        kept = decode(KeptUpdate, raw, PLACE)
        if kept.periods != self.mixed:
            raise UsageError(
                f"the checkpoint has weights of {kept.periods} periods, and data.periods.update has {self.mixed}; "
                "give periods as they were, or another output folder"
            )
        self.visited = Visited(kept.visited, unpacked_tensors(kept.dense))
        if kept.sums is not None:
            self.fitted = kept.sums.fitted(self.mixed)


def ridge_weights(products: Floats, targets: Floats, ridge: float) -> tuple[float, ...]:
    """The c that minimizes c'Pc - 2c't + r|c - e|^2, with e = (1, 0, ..) and r = ridge * mean of P's diagonal."""
    count = len(targets)
    plain = np.eye(1, count)[0]
    damping = ridge * np.trace(products) / count
    found = np.linalg.solve(products + damping * np.eye(count), targets + damping * plain)
    return tuple(found.tolist())


def visited(job: Any, period: int) -> Visited:
    """A copy of the dense parameters at the beginning of a period; the same on every rank."""
    return Visited(period, [each.detach().clone() for each in dense_parameters(job)])


def dense_parameters(job: Any) -> list[Any]:
    """All parameters outside tables; empty if a model has none."""
    parts: dict[str, Any] = dict(job.sharded.optimizer.optimizers)
    groups = parts["dense"].param_groups if "dense" in parts else []
    return [each for group in groups for each in group["params"]]


def dot_products(job: Any, at: list[Any], period: int, back: int) -> Floats:
    """Dot products (back + 1, back + 1) of the dense gradients on a period and on `back` ones before it, newest first.

    Each gradient is computed on as many batches as together cost half of a plain period, at least one. Called on every
    rank.

    at: the dense parameters at which gradients are computed; the job's own are restored afterwards.
    """
    import torch
    import torch.distributed as dist

    source, ranks, dense = job.source, dist.get_world_size(), dense_parameters(job)
    if not dense:
        return np.zeros((back + 1, back + 1))
    least = int(np.diff(source.edges[period - back : period + 2]).min())
    steps = least // (job.run.data.batch_sizes(ranks).at(job.progress.step)[0] * ranks)
    count = max(1, steps // (SHARE * (back + 1)))
    now = [each.detach().clone() for each in dense]
    _put(dense, at)
    try:
        found = [
            _gradient(job, dense, replace(source, only=period - each, window=1, weights=(1.0,)), count)
            for each in range(back + 1)
        ]
    finally:
        _put(dense, now)
    stacked = torch.stack(found)
    dist.all_reduce(stacked)
    return (stacked @ stacked.T).double().cpu().numpy() / ranks**2


def _put(parameters: list[Any], values: list[Any]) -> None:
    import torch

    with torch.no_grad():
        for each, value in zip(parameters, values, strict=True):
            each.copy_(value)


def _gradient(job: Any, dense: list[Any], source: Any, count: int) -> Any:
    """The gradient of this rank's mean loss on `count` batches of a source by dense parameters, as one vector.

    Tables are looked up and get no gradients, so their fused optimizers do nothing.
    """
    import torch

    sharded = job.sharded
    total = torch.zeros(sum(each.numel() for each in dense), device=sharded.device)
    batches = job.batches_of(source)
    sharded.model.eval()
    with without_sync(sharded.model):
        for batch in islice(batches, count):
            sharded.rows.prefetch(batch)
            loss, _ = sharded.model(batch.to(sharded.device))
            parts = torch.autograd.grad(loss, dense, allow_unused=True)
            pairs = zip(dense, parts, strict=True)
            total += torch.cat([(torch.zeros_like(a) if b is None else b).flatten() for a, b in pairs]).float() / count
    sharded.model.train()
    return total


def without_sync(model: Any) -> Any:
    """A context in which DistributedDataParallel does not synchronize gradients of a forward pass over ranks."""
    from torch.nn.parallel import DistributedDataParallel

    found = next((each for each in model.modules() if isinstance(each, DistributedDataParallel)), None)
    return nullcontext() if found is None else found.no_sync()


def packed_tensors(tensors: list[Any]) -> tuple[KeptTensor, ...]:
    """Tensors in the form that a checkpoint keeps."""
    arrays = [each.detach().float().cpu().numpy() for each in tensors]
    return tuple(KeptTensor(shape=each.shape, values=base64.b64encode(each.tobytes()).decode()) for each in arrays)


def unpacked_tensors(kept: Sequence[KeptTensor]) -> list[Any]:
    """Tensors from the form that a checkpoint keeps; CorruptFile if they are damaged."""
    import torch

    try:
        found = [np.frombuffer(base64.b64decode(each.values, validate=True), np.float32) for each in kept]
        return [torch.from_numpy(flat.copy().reshape(each.shape)) for flat, each in zip(found, kept, strict=True)]
    except ValueError as error:
        raise CorruptFile(f"{PLACE} holds dense parameters that are damaged: {error}") from None
