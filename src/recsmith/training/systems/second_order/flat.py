"""Dense parameters as one vector, and the losses, gradients and Hessian products of second-order methods, on all ranks.

d numbers in all parameters; n samples of all ranks, divided into parts; B samples of a part on this rank
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.func import grad_and_value, jvp

from recsmith.errors import UsageError
from recsmith.training.systems.second_order.cost import DOTS, FORWARD, GRADIENT, HALVINGS, PRODUCT

Losses = Callable[[Mapping[str, torch.Tensor], Any], torch.Tensor]
ARMIJO = 1e-4  # of the line search: share of the predicted decrease that a step must reach
DROPPING = (nn.modules.dropout._DropoutNd, nn.AlphaDropout, nn.FeatureAlphaDropout)  # type: ignore[attr-defined]


class AskedToEnd(Exception):
    """Some rank was asked to end; all ranks learn it from the same sum, and raise this."""


@dataclass
class FlatLayers:
    """Parameters as a vector of d numbers, the same on every rank.

    parameters: by name. losses: (parameters by name, a part of the samples) -> a loss for each of its samples (B,). All
    sums are over the given parts and over all ranks; every rank must make the same calls. visited: samples passed over,
    weighted by the cost of the pass relative to a forward and backward pass. asked: returns whether this rank was asked
    to end; it then skips the remaining parts, and every rank raises AskedToEnd at the next sum.
    """

    parameters: Mapping[str, nn.Parameter]
    losses: Losses
    visited: float = field(default=0.0)
    asked: Callable[[], bool] = field(default=lambda: False)

    def weights(self) -> torch.Tensor:
        """A copy of all parameters (d,)."""
        return torch.cat([each.detach().reshape(-1) for each in self.parameters.values()])

    @torch.no_grad()
    def put(self, weights: torch.Tensor) -> None:
        """Set the parameters from a vector (d,)."""
        for name, each in self._by_name(weights).items():
            self.parameters[name].copy_(each)

    def loss(self, weights: torch.Tensor, parts: Sequence[Any]) -> float:
        """The mean loss."""
        with torch.no_grad():
            found = [self.losses(self._by_name(weights), part) for part in self._until_asked(parts)]
        return self._mean([each.double().sum() for each in found], found, FORWARD)[0].item()

    def gradient(self, weights: torch.Tensor, parts: Sequence[Any]) -> tuple[float, torch.Tensor]:
        """The mean loss and its gradient (d,)."""
        total, losses = torch.zeros(len(weights) + 1, dtype=torch.float64, device=weights.device), list[torch.Tensor]()
        for part in self._until_asked(parts):
            slope, (value, found) = grad_and_value(self._sum, has_aux=True)(weights, part)
            total[0] += value.double()
            total[1:] += slope.double()
            losses.append(found)
        mean = self._mean([total], losses, GRADIENT)
        return mean[0].item(), mean[1:].to(weights.dtype)

    def sample_dots(self, weights: torch.Tensor, parts: Sequence[Any], vector: torch.Tensor) -> torch.Tensor:
        """Dot products (n of this rank,) of each sample's gradient with a vector, by one forward pass with tangents."""
        found = [
            jvp(lambda at, part=part: self.losses(self._by_name(at), part), (weights,), (vector,))[1].detach()
            for part in self._until_asked(parts)
        ]
        self.visited += DOTS * sum(map(len, found))
        return torch.cat(found).double() if found else vector.new_zeros(0, dtype=torch.float64)

    def moments(self, values: torch.Tensor) -> tuple[float, float]:
        """Mean and variance of numbers that are spread over all ranks."""
        count, total, squares = self._summed(
            torch.stack([values.new_tensor(len(values)), values.sum(), (values * values).sum()])
        ).tolist()
        mean = total / max(count, 1.0)
        return mean, max(squares - count * mean * mean, 0.0) / max(count - 1, 1.0)

    def times_hessian(self, weights: torch.Tensor, parts: Sequence[Any], vector: torch.Tensor) -> torch.Tensor:
        """The Hessian of the mean loss times a vector (d,), by forward over reverse mode (Pearlmutter 1994)."""
        total, losses = torch.zeros(len(weights), dtype=torch.float64, device=weights.device), list[torch.Tensor]()
        for part in self._until_asked(parts):

            def slope(at: torch.Tensor, part: Any = part) -> tuple[torch.Tensor, torch.Tensor]:
                made, (_, found) = grad_and_value(self._sum, has_aux=True)(at, part)
                return made, found

            made: Any = jvp(slope, (weights,), (vector,), has_aux=True)
            _, product, found = made
            total += product.double()
            losses.append(found)
        return self._mean([total], losses, PRODUCT).to(weights.dtype)

    def _sum(self, weights: torch.Tensor, part: Any) -> tuple[torch.Tensor, torch.Tensor]:
        found = self.losses(self._by_name(weights), part)
        return found.sum(), found

    def _by_name(self, weights: torch.Tensor) -> dict[str, torch.Tensor]:
        sizes = [each.numel() for each in self.parameters.values()]
        pieces = weights.split(sizes)
        return {name: piece.view(each.shape) for (name, each), piece in zip(self.parameters.items(), pieces,
                                                                            strict=True)}  # fmt: skip

    def _mean(self, sums: Sequence[torch.Tensor], losses: Sequence[torch.Tensor], cost: float) -> torch.Tensor:
        """Sums over this rank's samples, divided by the samples of all ranks."""
        count = sum(map(len, losses))
        self.visited += cost * count
        whole = torch.stack(list(sums)).sum(0).reshape(-1) if sums else torch.zeros(1, dtype=torch.float64)
        total = self._summed(torch.cat([whole, whole.new_tensor([count])]))
        return total[:-1] / total[-1].clamp_min(1)

    def _until_asked(self, parts: Sequence[Any]) -> Iterator[Any]:
        """Yield the parts, until this rank is asked to end."""
        for part in parts:
            if self.asked():
                return
            yield part

    def _summed(self, values: torch.Tensor) -> torch.Tensor:
        """The values summed over all ranks; raises AskedToEnd on all of them if one was asked to end."""
        total = summed(torch.cat([values, values.new_tensor([float(self.asked())])]))
        if total[-1] > 0:
            raise AskedToEnd
        return total[:-1]


def summed(values: torch.Tensor) -> torch.Tensor:
    """Numbers summed over all ranks, with the same bits on each."""
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        dist.all_reduce(values)
    return values


@dataclass(frozen=True)
class DampedLoss:
    """The mean loss of some samples, plus damping / 2 times the squared distance from a centre (None: from 0)."""

    layers: FlatLayers
    parts: Sequence[Any]
    damping: float = 0.0
    centre: torch.Tensor | None = None

    def value(self, weights: torch.Tensor) -> float:
        """The damped loss."""
        return self.layers.loss(weights, self.parts) + self.distance(weights)

    def gradient(self, weights: torch.Tensor) -> tuple[float, torch.Tensor]:
        """(damped loss, its gradient (d,))."""
        loss, slope = self.layers.gradient(weights, self.parts)
        return loss + self.distance(weights), slope + self.damping * self._from_centre(weights)

    def times_hessian(self, weights: torch.Tensor, vector: torch.Tensor) -> torch.Tensor:
        """The damped Hessian times a vector (d,)."""
        return self.layers.times_hessian(weights, self.parts, vector) + self.damping * vector

    def lowered(
        self, at: torch.Tensor, loss: float, slope: torch.Tensor, way: torch.Tensor, rate: float
    ) -> tuple[float, torch.Tensor, float, torch.Tensor] | None:
        """(rate, weights, loss, gradient) after a step that lowers the loss by Armijo's rule; None if no step does.

        Args:
            at: the weights at which the step starts.
            loss: the damped loss there.
            slope: its gradient (d,).
            way: the direction (d,) that is subtracted.
            rate: the first length of the step, as a multiple of `way`; each of HALVINGS lengths is half of the last.
        """
        gain = float(slope.double() @ way.double())
        for _ in range(HALVINGS):
            there = at - rate * way
            reached, ahead = self.gradient(there)
            if math.isfinite(reached) and reached <= loss - ARMIJO * rate * gain:
                return rate, there, reached, ahead
            rate /= 2
        return None

    def distance(self, weights: torch.Tensor) -> float:
        """The damping term of the loss."""
        away = self._from_centre(weights).double()
        return 0.5 * self.damping * float(away @ away) if self.damping else 0.0

    def _from_centre(self, weights: torch.Tensor) -> torch.Tensor:
        return weights if self.centre is None else weights - self.centre


def check_layers(model: nn.Module, name: str) -> None:
    """Refuse a model whose loss differs from one pass to the next. name: of the pipeline.

    Raises:
        UsageError: a layer updates a running mean in each pass, which torch.func cannot follow, or has dropout.
    """
    for place, layer in model.named_modules():
        kind = type(layer).__name__
        if getattr(layer, "track_running_stats", False):
            raise UsageError(
                f"pipeline is {name}, which passes over a batch again and again, and layer '{place}' of the model, a "
                f"{kind}, changes its running mean in each pass; use LayerNorm, give it track_running_stats=False, or "
                "write pipeline: base"
            )
        share = getattr(layer, "p", 0) if isinstance(layer, DROPPING) else getattr(layer, "dropout", 0)
        if isinstance(share, int | float) and share > 0:
            raise UsageError(
                f"pipeline is {name}, whose line search compares losses, and layer '{place}' of the model, a {kind}, "
                f"drops {share:.0%} by chance in each pass; set it to 0, or write pipeline: base"
            )
