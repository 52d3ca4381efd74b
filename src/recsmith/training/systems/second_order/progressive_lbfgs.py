"""L-BFGS whose sample grows when its noise would change the direction too much, for dense parameters as a vector.

Bollapragada et al. 2018 (arXiv 1802.05374): the direction is H g, for the gradient g of a sample. The inner product
test says whether more samples are needed. An Armijo line search begins at a length that the noise of the sample
allows. Curvature pairs are made from the gradients at both ends of a step on the same sample.

d numbers of all parameters; n samples of all ranks
"""

import math
from collections import deque
from collections.abc import Sequence
from typing import Any

import torch

from recsmith._types import noun, record
from recsmith.errors import check_rules, too_small
from recsmith.training.systems.second_order.cost import AVERAGED, HALVINGS
from recsmith.training.systems.second_order.flat import DampedLoss

STABLE = 1e-2  # least cosine between a step and its change of gradient for a pair to be kept
FAR = 0.38  # norm of the mean gradient over that of the newest, below which the newest is mostly noise


@noun
class LbfgsSettings:
    """Settings of progressive L-BFGS.

    memory: curvature pairs that are kept; the paper has 10. theta: how much a direction may vary, relative to its gain
    (0.9 in the paper). growth: largest factor by which a sample may grow at once. tested: samples of each rank whose
    dot products are used in the test.
    """

    memory: int = 20
    theta: float = 0.9
    growth: float = 4.0
    tested: int = 512

    def __post_init__(self) -> None:
        check_rules(
            too_small("memory", self.memory, 1),
            too_small("tested", self.tested, 2),
            None if self.theta > 0 else f"theta is {self.theta}; it must be above 0",
            None if self.growth > 1 else f"growth is {self.growth}; it must be above 1",
        )


@record
class LbfgsOutcome:
    """The result of a step. loss: before it. norm: of its gradient. rate: step length; 0 if no step lowered the loss.

    wanted: samples of all ranks that the next step should have. halvings: how often the step length was halved.
    """

    loss: float
    norm: float
    rate: float
    wanted: int
    halvings: int = 0


class ProgressiveLbfgs:
    """The method with its memory: curvature pairs, and the last gradients."""

    def __init__(self, settings: LbfgsSettings | None = None) -> None:
        self.settings = settings or LbfgsSettings()
        self.pairs: deque[tuple[torch.Tensor, torch.Tensor]] = deque(maxlen=self.settings.memory)
        self.gradients: deque[torch.Tensor] = deque(maxlen=AVERAGED)

    def step(
        self, damped: DampedLoss, samples: int, tested: Sequence[Any], population: float = math.inf
    ) -> LbfgsOutcome:
        """Take one step on a sample; the parameters do not change if no step length lowers the loss.

        Args:
            damped: the loss of the sample.
            samples: number of samples of all ranks in it.
            tested: parts of the sample whose gradients the test uses.
            population: number of samples that it is drawn from; a sample of all of them has no noise.
        """
        noise = max(0.0, 1 - samples / population)
        layers = damped.layers
        start = layers.weights()
        loss, slope = damped.gradient(start)
        self.gradients.append(slope)
        norm = float(slope.norm())
        if norm == 0 or not math.isfinite(norm):
            return LbfgsOutcome(loss=loss, norm=norm, rate=0.0, wanted=samples)
        way = self.direction(slope)
        wanted = self._wanted(damped, start, slope, way, samples, tested, noise)
        rate = self._first_rate(damped, start, slope, samples, tested, noise)
        found = damped.lowered(start, loss, slope, way, rate)
        if found is not None:
            taken, there, _, ahead = found
            layers.put(there)
            self._remember(there - start, ahead - slope)
            halvings = round(math.log2(rate / taken))
            return LbfgsOutcome(loss=loss, norm=norm, rate=taken, wanted=wanted, halvings=halvings)
        layers.put(start)
        self.pairs.clear()  # their curvature gave a useless direction
        wanted = self._grown(samples, 2 * samples)
        return LbfgsOutcome(loss=loss, norm=norm, rate=0.0, wanted=wanted, halvings=HALVINGS)

    def direction(self, slope: torch.Tensor) -> torch.Tensor:
        """H g (d,) by the two-loop recursion (Nocedal 1980)."""
        way, shares = slope.clone(), list[torch.Tensor]()
        for moved, turned in reversed(self.pairs):
            shares.append((moved @ way) / (moved @ turned))
            way -= shares[-1] * turned
        if self.pairs:
            moved, turned = self.pairs[-1]
            way *= (moved @ turned) / (turned @ turned)
        for (moved, turned), share in zip(self.pairs, reversed(shares), strict=True):
            way += moved * (share - (turned @ way) / (moved @ turned))
        return way

    def _wanted(
        self, damped: DampedLoss, at: torch.Tensor, slope: torch.Tensor, way: torch.Tensor, samples: int,
        tested: Sequence[Any], noise: float,
    ) -> int:  # fmt: skip
        """Number of samples n for which the inner product test would hold: Var[(H g_i)^T H g] <= n theta^2 |H g|^4.

        (H g_i)^T H g is g_i^T H H g. If the mean of the last gradients is far shorter than this gradient, most of this
        one is noise, and |H g| is computed from the mean (Bollapragada et al., section 2.1).
        """
        dots = damped.layers.sample_dots(at, tested, self.direction(way))
        _, variance = damped.layers.moments(dots)
        mean = torch.stack(list(self.gradients)).mean(0)
        noisy = len(self.gradients) == AVERAGED and float(mean.norm()) < FAR * float(slope.norm())
        length = float((self.direction(mean) if noisy else way).norm())
        if length == 0:
            return samples
        needed = noise * variance / (self.settings.theta * length * length) ** 2
        return self._grown(samples, needed)

    def _grown(self, samples: int, needed: float) -> int:
        """The needed samples, but at least `samples` and at most `growth` times as many."""
        most = math.ceil(samples * self.settings.growth)
        return most if not math.isfinite(needed) or needed > most else max(samples, math.ceil(needed))

    def _first_rate(
        self, damped: DampedLoss, at: torch.Tensor, slope: torch.Tensor, samples: int, tested: Sequence[Any],
        noise: float,
    ) -> float:  # fmt: skip
        """1 / (1 + Var[g_i] / (n |g|^2)), with the variance along g only; without pairs, at most 1 / |g|."""
        dots = damped.layers.sample_dots(at, tested, slope)
        _, variance = damped.layers.moments(dots)
        squared = float(slope @ slope)
        rate = 1 / (1 + noise * variance / (samples * squared * squared))
        return rate if self.pairs else min(rate, 1 / squared**0.5)

    def _remember(self, moved: torch.Tensor, turned: torch.Tensor) -> None:
        """Keep a pair if its curvature is clearly positive: the gradient changed along the step, not only across it."""
        if float(moved @ turned) > STABLE * float(moved.norm()) * float(turned.norm()):
            self.pairs.append((moved, turned))
