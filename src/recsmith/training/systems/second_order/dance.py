"""Newton steps by conjugate gradients on samples that double, for dense parameters as a vector.

Jahani et al. 2020, DANCE (arXiv 1810.11507): n samples determine a model only to the accuracy V_n = n^-gamma. So the
loss is damped by c V_n and solved until its gradient's norm is sqrt(2 c) V_n. The solution starts the next stage, whose
samples contain these. A Newton step is shortened by its own length (damped Newton), and conjugate gradients stop if the
curvature is not positive.

d numbers of all parameters; n samples of all ranks
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from recsmith._types import noun, record
from recsmith.errors import check_rules, too_small
from recsmith.training.systems.second_order.flat import AskedToEnd, DampedLoss, FlatLayers

FLAT = 1e-10  # curvature along a direction, over its squared length, below which it counts as not positive


@noun
class DanceSettings:
    """Settings of DANCE.

    gamma: n samples determine a model to n^-gamma. c: factor of the damping c n^-gamma. beta: largest residual of
    conjugate gradients, as a share of the gradient. inner: most steps of conjugate gradients. newton: most Newton steps
    of a stage. growth: factor of samples from one stage to the next.
    """

    gamma: float = 0.5
    c: float = 0.1
    beta: float = 0.1
    inner: int = 30
    newton: int = 10
    growth: float = 2.0

    def __post_init__(self) -> None:
        check_rules(
            too_small("inner", self.inner, 1),
            too_small("newton", self.newton, 1),
            None if 0.5 <= self.gamma <= 1 else f"gamma is {self.gamma}; it lies from 0.5 to 1",
            None if self.c > 0 else f"c is {self.c}; it must be above 0",
            None if 0 < self.beta < 1 else f"beta is {self.beta}; it lies between 0 and 1",
            None if self.growth > 1 else f"growth is {self.growth}; it must be above 1",
        )

    def known_to(self, samples: int) -> float:
        """V_n, the accuracy to which n samples determine a model."""
        return samples**-self.gamma


@record
class NewtonOutcome:
    """The result of some Newton steps.

    before, loss: damped loss at the start and at the end. norm: of its gradient at the end. steps: number taken.
    products: number of Hessian-vector products. solved: whether the norm is at most the wanted one. failed: whether no
    length of the last step lowered the loss, so that it was undone. ended: whether a rank was asked to end, and the
    step under way was given up.
    """

    before: float
    loss: float
    norm: float
    steps: int
    products: int
    solved: bool
    failed: bool = False
    ended: bool = False


def newton(
    damped: DampedLoss, *, least: float, settings: DanceSettings, curvature: Sequence[Any] | None = None,
    stepped: Callable[[int, float], None] | None = None,
) -> NewtonOutcome:  # fmt: skip
    """Take damped Newton steps from the current parameters until the gradient's norm is at most `least`.

    Args:
        damped: the damped loss of the samples.
        least: norm of the gradient at which steps end.
        settings: of DANCE.
        curvature: parts of the samples from which the Hessian is computed; None: all parts.
        stepped: called after each step with the number of steps taken and the damped loss.

    Raises:
        AskedToEnd: a rank was asked to end before the first gradient was known; if later, the steps so far are kept.
    """
    layers, steps, products = damped.layers, 0, 0
    bent = damped if curvature is None else DampedLoss(layers, curvature, damped.damping, damped.centre)
    at = layers.weights()
    loss, slope = damped.gradient(at)
    before = loss
    while float(slope.norm()) > least and steps < settings.newton:
        ended, found = False, None
        try:
            way, squared, used = conjugate_gradients(bent, at, slope, settings)
            products += used
            found = damped.lowered(at, loss, slope, way, 1 / (1 + max(squared, 0.0) ** 0.5))
        except AskedToEnd:
            ended = True
        if found is None:
            layers.put(at)
            norm = float(slope.norm())
            return NewtonOutcome(
                before=before,
                loss=loss,
                norm=norm,
                steps=steps,
                products=products,
                solved=False,
                failed=not ended,
                ended=ended,
            )
        (_, at, loss, slope), steps = found, steps + 1
        layers.put(at)
        if stepped is not None:
            stepped(steps, loss)
    norm = float(slope.norm())
    return NewtonOutcome(before=before, loss=loss, norm=norm, steps=steps, products=products, solved=norm <= least)


def conjugate_gradients(
    damped: DampedLoss, at: torch.Tensor, slope: torch.Tensor, settings: DanceSettings
) -> tuple[torch.Tensor, float, int]:
    """(v, v^T H v, products) with |H v - g| <= beta |g|, or the v before a curvature <= 0; g if the first one is."""
    found, product = torch.zeros_like(slope), torch.zeros_like(slope)
    left, way = slope.clone(), slope.clone()
    size = float(left @ left)
    enough = settings.beta * size**0.5
    for number in range(settings.inner):
        bent = damped.times_hessian(at, way)
        curvature = float(way @ bent)
        if not math.isfinite(curvature) or curvature <= FLAT * float(way @ way):
            return (slope.clone(), 0.0, 1) if number == 0 else (found, float(found @ product), number + 1)
        share = size / curvature
        found, product, left = found + share * way, product + share * bent, left - share * bent
        after = float(left @ left)
        if after**0.5 <= enough:
            return found, float(found @ product), number + 1
        way, size = left + (after / size) * way, after
    return found, float(found @ product), settings.inner


def stages(first: int, samples: int, growth: float) -> Iterator[int]:
    """Yield the number of samples of each stage, up to all samples."""
    count = min(first, samples)
    while count < samples:
        yield count
        count = min(math.ceil(count * growth), samples)
    yield samples


def dance(
    layers: FlatLayers, parts: Sequence[Any], sizes: Sequence[int], *, first: int, settings: DanceSettings
) -> list[NewtonOutcome]:
    """Train on all parts in stages of whole parts. sizes: samples of all ranks in each part."""
    made: list[NewtonOutcome] = []
    for wanted in stages(first, sum(sizes), settings.growth):
        taken, count = 0, 0
        while count < wanted:
            count, taken = count + sizes[taken], taken + 1
        known = settings.known_to(count)
        damped = DampedLoss(layers, parts[:taken], settings.c * known)
        made.append(newton(damped, least=(2 * settings.c) ** 0.5 * known, settings=settings))
    return made
