"""The stream in which future gradient has its theory: logistic regression by SGD, in NumPy, for benchmarks/online.py.

D values, n samples of a period, K periods that are weighted
"""

from collections.abc import Callable, Iterator
from statistics import fmean
from typing import Any

import numpy as np
import torch

from recsmith.data.generator.teacher import sigmoid
from recsmith.scoring.scores import mean_within
from recsmith.training.systems.periods.updates.future_gradient import ridge_weights

VALUES, SAMPLES, BATCH, PERIODS, FIRST, K = 20, 1000, 50, 60, 8, 3
TURN, SIGNAL, RIDGE, FORGETTING = 30, 4.0, 0.02, 0.98  # the truth's length is SIGNAL; TURN periods are a turn of it
RATES, SEEDS, OTHERS = (0.1, 0.3, 0.6, 1.0, 1.5, 2.0), range(5), range(100, 103)
Part = tuple[Any, Any, Any]  # values (n, D), labels (n,), chances (n,)


def stream(kind: str, seed: int) -> list[Part]:
    """Periods of even normal values, whose weights rotate, move, jump every 15 periods, or stay."""
    draw = np.random.default_rng(seed)
    first, second = np.linalg.qr(draw.normal(size=(VALUES, 2)))[0].T * SIGNAL
    jumps = draw.normal(size=(PERIODS, VALUES))
    jumps *= SIGNAL / np.linalg.norm(jumps, axis=1, keepdims=True)
    parts: list[Part] = []
    for period in range(PERIODS):
        along = (period + np.arange(SAMPLES) / SAMPLES)[:, None]
        turned = 2 * np.pi * along / TURN
        truth = {
            "rotating": np.cos(turned) * first + np.sin(turned) * second,
            "linear": (1 - along / PERIODS) * first + along / PERIODS * second,
            "sudden": np.broadcast_to(jumps[period // 15], (SAMPLES, VALUES)),
            "none": np.broadcast_to(first, (SAMPLES, VALUES)),
        }[kind]
        values = draw.normal(size=(SAMPLES, VALUES))
        chances = sigmoid((values * truth).sum(1))
        parts.append((values, (draw.random(SAMPLES) < chances).astype(float), chances))
    return parts


def gradient(weights: Any, part: Part, rows: Any = slice(None)) -> Any:
    """Of the mean loss of some rows of a period."""
    values, labels = part[0][rows], part[1][rows]
    return values.T @ (sigmoid(values @ weights) - labels) / len(labels)


class Generator:
    """The paper's second level on this model: a recurrent network over the last K gradients, shared by coordinates.

    It learns to forecast the gradient of a period from those of the K before it, at points visited before; what it adds
    to the newest one is its output, so at first it forecasts that one.
    """

    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)
        self.cell, self.head = torch.nn.GRU(1, 8, batch_first=True), torch.nn.Linear(8, 1)
        torch.nn.init.zeros_(self.head.weight)
        torch.nn.init.zeros_(self.head.bias)
        self.optimizer = torch.optim.Adam([*self.cell.parameters(), *self.head.parameters()], lr=0.01)
        self.seen: list[tuple[Any, Any]] = []

    def forecast(self, gradients: Any) -> Any:
        """From gradients (K, D), newest first, the next one (D,); in units of their root mean square."""
        scale = gradients.square().mean().sqrt() + 1e-12
        series = (gradients / scale).flip(0).T[:, :, None]  # (D, K, 1), oldest first
        return gradients[0] + scale * self.head(self.cell(series)[0][:, -1])[:, 0]

    def learn(self, gradients: Any) -> None:
        """One more period: its gradient, and those of the K before it, at one point (K + 1, D)."""
        kept = torch.tensor(gradients, dtype=torch.float32)
        self.seen = [*self.seen[-9:], (kept[1:], kept[0])]
        for _ in range(30):
            errors = [(self.forecast(before) - now).square().sum() / now.square().sum() for before, now in self.seen]
            self.optimizer.zero_grad()
            torch.stack(errors).mean().backward()
            self.optimizer.step()

    def step(self, gradients: Any) -> Any:
        """The forecast by which a step is made, from gradients of a batch of each period (K, D)."""
        with torch.no_grad():
            return self.forecast(torch.tensor(gradients, dtype=torch.float32)).double().numpy()


def learned(arm: str, parts: list[Part], rate: float, seed: int) -> list[float]:
    """The log loss of each next period, from FIRST on."""
    draw, weights, found = np.random.default_rng(seed), np.zeros(VALUES), list[float]()
    products, targets, visited, mixture = np.zeros((K, K)), np.zeros(K), None, (1.0,)
    generator = Generator(seed) if arm == "generator" else None
    for now in range(PERIODS - 1):
        if arm == "future_gradient" and now >= K and visited is not None:
            at = np.stack([gradient(visited, parts[now - back]) for back in range(K + 1)])
            dots = at @ at.T / (at[0] @ at[0])
            products, targets = FORGETTING * products + dots[1:, 1:], FORGETTING * targets + dots[1:, 0]
            mixture = ridge_weights(products, targets, RIDGE)
        if generator is not None and now >= K and visited is not None:
            generator.learn(np.stack([gradient(visited, parts[now - back]) for back in range(K + 1)]))
        visited, first = weights.copy(), max(0, now - K + 1) if arm == "window" else now
        values, labels, chances = (np.concatenate(each) for each in zip(*parts[first : now + 1], strict=True))
        pooled = values, labels, chances
        for rows in draw.permutation(len(pooled[1])).reshape(-1, BATCH):
            if generator is not None and generator.seen:
                mixed = np.stack([gradient(weights, parts[now - back], rows) for back in range(K)])
                weights = weights - rate * generator.step(mixed)
                continue
            step = sum(c * gradient(weights, parts[now - back], rows) for back, c in enumerate(mixture) if back)
            weights = weights - rate * (mixture[0] * gradient(weights, pooled, rows) + step)
        values, labels, _ = parts[now + 1]
        found.append(float(np.mean(np.logaddexp(0, values @ weights) - labels * (values @ weights))))
    return found[FIRST - 1 :]


def best_rate(kind: str) -> float:
    """The rate by which incremental has the least loss, on streams of other seeds."""
    mean: Callable[[float], float] = lambda rate: fmean(  # noqa: E731
        fmean(learned("incremental", stream(kind, seed), rate, seed)) for seed in OTHERS
    )
    return min(RATES, key=mean)


def logistic_lines() -> Iterator[str]:
    """A table: log losses at the best rate of incremental and at a fifth of it, and ratios with 95 % intervals."""
    yield "| drift | rate | optimum | incremental | window | future gradient | to incremental | to window |"
    yield "|---|---|---|---|---|---|---|---|"
    for kind in ("rotating", "linear", "sudden", "none"):
        best = best_rate(kind)
        for rate in (best, best / 5):
            yield _row(kind, rate)


def _row(kind: str, rate: float) -> str:
    streams = {seed: stream(kind, seed) for seed in SEEDS}
    arms = ("incremental", "window", "future_gradient")
    means = {arm: [fmean(learned(arm, streams[seed], rate, seed)) for seed in SEEDS] for arm in arms}
    chances = np.clip(
        np.concatenate([part[2] for parts in streams.values() for part in parts[FIRST:]]), 1e-12, 1 - 1e-12
    )
    least = float(np.mean(-chances * np.log(chances) - (1 - chances) * np.log1p(-chances)))
    ratios = [
        mean_within([ours / theirs for ours, theirs in zip(means["future_gradient"], means[arm], strict=True)])
        for arm in ("incremental", "window")
    ]
    cells = [kind, f"{rate:g}", f"{least:.4f}", *(f"{fmean(means[arm]):.4f}" for arm in arms)]
    return f"| {' | '.join([*cells, *(f'{mean:.3f} ± {within or 0:.3f}' for mean, within in ratios)])} |"


def generator_lines() -> Iterator[str]:
    """The paper's second level beside the first, under rotating drift: log losses and their ratio."""
    yield "| rate | future gradient, linear | recurrent generator | to linear |"
    yield "|---|---|---|---|"
    best = best_rate("rotating")
    for rate in (best, best / 5):
        found = [
            [fmean(learned(arm, stream("rotating", seed), rate, seed)) for seed in SEEDS]
            for arm in ("future_gradient", "generator")
        ]
        mean, within = mean_within([theirs / ours for ours, theirs in zip(*found, strict=True)])
        yield f"| {rate:g} | {fmean(found[0]):.4f} | {fmean(found[1]):.4f} | {mean:.3f} ± {within or 0:.3f} |"
