# pyright: basic
"""The network of a cost model in PyTorch, the same as costs/neural/files.py and heads.py in NumPy, and its training.

The loss is relative, validation chooses the best epoch, and one thread trains. Imports torch.

Legend: N groups, P pieces, b figures of work, x inputs, t learned terms, k = 1 + t, H hinges.
"""

import math
from collections.abc import Callable
from itertools import product

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from recsmith._types import noun
from recsmith.costs.analytic import BACKWARD_KERNELS, FORWARD_KERNELS, LAUNCH_S
from recsmith.costs.neural.files import BEND, FROM_ANALYTIC, Variant
from recsmith.costs.neural.heads import LOG_SPAN, LOG_UNIT, REACH
from recsmith.costs.neural.inputs import AGAIN_UNIT, CACHED_SHARES, CORRECTED, FIRST_INPUTS, INPUTS, WORK
from recsmith.learning.costs import Groups
from recsmith.learning.training_loop import Epoch, TrainingLoop, relative_loss

TERMS = 5  # learned, besides the count of pieces. Trade-off, as for the sizes below: more fit better, and search slower
WIDTH = 64  # units of both hidden layers
HINGES = 3  # hinges of head `convex`, for forward and for backward each
FREE_WIDTH = 16  # hidden units of head `free`
MORE_GATES, GATE_WIDTH = 2, 16  # head `corrected`: shares besides those of caches, and hidden units for all
MORE, CLOSED = 0.2, -2.0  # first extra of such a share, of a peak, and the sum at which the share begins: an eighth
BAG = 0.01  # weight of bags in their unit: it only brings them near the seconds of other terms
CACHE_BYTES = 3.5e7  # start value of corrected models: 0.7 of an H100's second-level cache; training moves it
FAINT = 1e-3  # first weight, relative to 1, of the parts of a corrected model that `analytic` lacks
SPREAD = 0.5  # standard deviation of the first weights, before softplus and exp
LAST_LAYER, LAST_FREE = 0.3, 0.1  # factors of the last layers' first weights: the network begins near its base
LEAST_SPREAD = 1e-3  # added to deviations of inputs, which may all be equal
REACHED = 4  # deviations at which inputs are clipped, as in costs/neural/files.py
PIECE_S = 1e-6  # scale of the weights of the count of pieces: seconds per piece, while other terms are seconds


class FusedKernelNetwork(nn.Module):
    """Turns pieces into terms, and their sums into seconds; `fit_scale` starts it near the data."""

    centre: Tensor
    spread: Tensor

    def __init__(self, variant: Variant, terms: int = TERMS, hinges: int = HINGES, inputs: int = FIRST_INPUTS) -> None:
        super().__init__()
        self.variant, hinges = variant, hinges if variant == "convex" else 0
        corrected = variant in FROM_ANALYTIC
        figures, terms = (CORRECTED, len(CORRECTED) - len(WORK) + 1) if corrected else (WORK, terms)
        self.register_buffer("centre", torch.zeros(inputs))
        self.register_buffer("spread", torch.ones(inputs))
        self.layers = nn.ModuleList(
            [nn.Linear(inputs, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, terms * len(figures))]
        )
        self.base = nn.Parameter(SPREAD * torch.randn(terms, len(figures)) - 1)
        self.launch = nn.Parameter(torch.zeros(2))  # logarithm
        self.linear = nn.Parameter(SPREAD * torch.randn(2, 1 + terms) - 1)  # before softplus, as are the hinges
        self.hinges = nn.Parameter(SPREAD * torch.randn(2, hinges, 1 + terms) - 1)
        self.offsets = nn.Parameter(torch.zeros(2, hinges))  # logarithm
        self.hidden, self.out = nn.Linear(1 + terms, FREE_WIDTH), nn.Linear(FREE_WIDTH, 2)
        gates, peaks = (len(CACHED_SHARES) + MORE_GATES, 2) if corrected else (0, 0)
        self.behind = nn.Linear(1 + terms, GATE_WIDTH)
        self.gate, self.gate_bias = (nn.Parameter(torch.zeros(size)) for size in ((gates, GATE_WIDTH), (gates,)))
        self.extra = nn.Parameter(SPREAD * torch.randn(2, peaks, gates, 1 + terms) - 1)
        self.peaks = nn.Parameter(SPREAD * torch.randn(2, peaks, 1 + terms) - 1)
        with torch.no_grad():
            self.layers[-1].get_parameter("weight").mul_(LAST_LAYER)
            self.out.weight *= LAST_FREE

    def fit_scale(self, work: np.ndarray, inputs: np.ndarray, start: np.ndarray, seconds: np.ndarray) -> None:
        """Start near the data: normalised inputs, the scale of seconds, launches below and hinges within them."""
        scale = np.median(seconds.sum(axis=1) / np.add.reduceat(work.sum(axis=1), start[:-1]))
        low, *inner = np.quantile(seconds, [0.02, *np.linspace(0.2, 0.8, self.offsets.shape[1])], axis=0)
        with torch.no_grad():
            known = inputs[:, : len(self.centre)]
            self.centre.copy_(torch.as_tensor(known.mean(axis=0)))
            self.spread.copy_(torch.as_tensor(known.std(axis=0) + LEAST_SPREAD))
            self.base += math.log(scale)
            self.launch.copy_(torch.as_tensor(np.log(low / 2)))
            if inner:
                self.offsets.copy_(torch.as_tensor(np.log(np.stack(inner, axis=1) / 3)))

    def start_analytic(self, launch_s: tuple[float, float]) -> None:
        """Start at cost model `analytic`: its four terms, and for each direction the larger of its two.

        Further terms are the additional seconds of memory with smaller and smaller caches, with a gate for each, the
        bytes that a cache would hold, and bags. Other gates can lengthen a peak if a group keeps a device only half
        busy.
        """
        known, bands = len(CORRECTED) - len(WORK), range(len(CACHED_SHARES))
        with torch.no_grad():
            self.layers[-1].get_parameter("weight").mul_(FAINT)
            self.layers[-1].get_parameter("bias").zero_()
            self.base.fill_(math.log(FAINT**2))
            self.base[range(known), range(len(WORK), len(CORRECTED))] = 0.0
            self.base[known, WORK.index("bags")] = math.log(BAG)
            self.launch.copy_(torch.log(torch.tensor(launch_s)))
            self.peaks.copy_(softplus_inverse(torch.full_like(self.peaks, FAINT**2)))
            self.extra.copy_(softplus_inverse(torch.full_like(self.extra, FAINT)))
            for direction, peak in product((0, 1), (0, 1)):
                term = 1 + 2 * direction + peak
                self.peaks[direction, peak, term] = softplus_inverse(torch.ones(()))
                self.extra[direction, peak, len(bands) :, term] = softplus_inverse(torch.tensor(MORE))
            self.extra[0, 0, bands, [5 + band for band in bands]] = softplus_inverse(torch.ones(()))
            self._start_shares()

    def _start_shares(self) -> None:
        """Start shares as if tables divided CACHE_BYTES by the bytes that they read again.

        Then the cache holds the same share of all tables: CACHE_BYTES over the sum of these bytes. Each gate is half
        open in the middle between two cached shares, and as steep there as the straight line between them. Its input is
        one hidden unit, the logarithm of the sum.
        """
        ends = torch.tensor((1.0, *CACHED_SHARES))
        middle = (ends[:-1] + ends[1:]) / 2
        steep = 4 * middle / (ends[:-1] - ends[1:])
        self.behind.weight[:2].zero_()
        self.behind.weight[0, -2] = self.behind.weight[1, -1] = 1.0  # bytes read again, and bags
        self.behind.bias[:2] = 0.0
        self.gate.normal_(std=FAINT)
        self.gate[: len(middle), 0] = steep * LOG_SPAN
        self.gate_bias.fill_(CLOSED)
        self.gate_bias[: len(middle)] = -steep * torch.log(LOG_UNIT * AGAIN_UNIT * CACHE_BYTES / middle)
        if self.variant == "monotone":
            self.behind.weight.abs_()
            self.gate.abs_()

    def keep_rising(self) -> None:
        """Set negative weights of a monotone model's shares to 0."""
        if self.variant == "monotone":
            with torch.no_grad():
                self.behind.weight.clamp_(min=0.0)
                self.gate.clamp_(min=0.0)

    def start_from(self, tensors: dict[str, np.ndarray], factor: float) -> None:
        """Start at the weights of a file (as from `tensors`), with all of its seconds multiplied by a factor.

        Inputs that the file does not know begin with a weight of 0.
        """
        given = {name: torch.tensor(value, dtype=torch.float32) for name, value in tensors.items()}
        new = torch.arange(len(given["centre"]), len(self.centre))
        given |= {name: torch.cat([given[name], getattr(self, name)[new]]) for name in ("centre", "spread")}
        given["weight0"] = torch.cat([given["weight0"], torch.zeros(len(given["weight0"]), len(new))], dim=1)
        slopes = {name: given[name] for name in ("linear", "hinges", "extra", "peaks") if name in given}
        for each in slopes.values():
            each[..., 0] *= factor  # the count of pieces; the other terms grow with `base`
        given |= {name: softplus_inverse(each / self._scale(each)) for name, each in slopes.items()}
        given["base"] += math.log(factor)
        given |= {name: (factor * given[name]).log() for name in ("launch", "offsets") if name in given}
        names = {"hidden": "hidden.weight", "hidden_bias": "hidden.bias", "out": "out.weight", "out_bias": "out.bias",
                 "behind": "behind.weight", "behind_bias": "behind.bias"}  # fmt: skip
        names |= {f"{kind}{i}": f"layers.{i}.{kind}" for kind in ("weight", "bias") for i in range(len(self.layers))}
        self.load_state_dict(self.state_dict() | {names.get(name, name): each for name, each in given.items()})

    def terms(self, work: Tensor, inputs: Tensor) -> Tensor:
        """A one and the learned terms (P, k)."""
        flow = ((inputs[:, : len(self.centre)] - self.centre) / self.spread).clamp(-REACHED, REACHED)
        for layer in self.layers[:-1]:
            flow = layer(flow).relu()
        bent = BEND * torch.tanh(self.layers[-1](flow) / BEND).view(-1, *self.base.shape)
        terms = ((self.base + bent).exp() * work[:, None, :]).sum(dim=2)
        return torch.cat([torch.ones(len(terms), 1), terms], dim=1)

    def forward(self, work: Tensor, inputs: Tensor, owner: Tensor, groups: int) -> Tensor:
        """Seconds (N, 2) of groups, forward and backward; owner (P,): the group of each piece."""
        terms = self.terms(work, inputs)
        sums = torch.zeros(groups, terms.shape[1]).index_add(0, owner, terms)
        return self.launch.exp() + self.head(sums)

    def head(self, sums: Tensor) -> Tensor:
        """Seconds (N, 2) beyond the launch, of summed terms (N, k)."""
        if self.variant in FROM_ANALYTIC:
            return self._corrected(sums)
        linear = sums @ self._slopes(self.linear).T
        if self.variant == "free":
            hidden = self.hidden(torch.log1p(sums * LOG_UNIT) / LOG_SPAN).relu()
            return linear * (REACH * torch.tanh(self.out(hidden) / REACH)).exp()
        rising = torch.einsum("nk,dhk->ndh", sums, self._slopes(self.hinges)) - self.offsets.exp()
        return linear + rising.relu().sum(dim=2)

    def _corrected(self, sums: Tensor) -> Tensor:
        """The larger peak, with its shares of extra, for each direction (N, 2)."""
        peaks = torch.einsum("nk,dpk->ndp", sums, self._slopes(self.peaks))
        behind = self.behind(torch.log1p(sums * LOG_UNIT) / LOG_SPAN).relu()
        shares = torch.sigmoid(behind @ self.gate.T + self.gate_bias)
        return (peaks + torch.einsum("nk,dpgk,ng->ndp", sums, self._slopes(self.extra), shares)).amax(dim=2)

    @classmethod
    def _slopes(cls, unbounded: Tensor) -> Tensor:
        """Weights of 0 or more."""
        return softplus(unbounded) * cls._scale(unbounded)

    @staticmethod
    def _scale(slopes: Tensor) -> Tensor:
        """Scales of the slopes of terms (k,): that of the count of pieces is 10^6 times smaller than the others."""
        scale = torch.ones(slopes.shape[-1])
        scale[0] = PIECE_S
        return scale

    def tensors(self) -> dict[str, np.ndarray]:
        """The weights as they are stored in files."""
        tensors = {"centre": self.centre, "spread": self.spread, "base": self.base, "launch": self.launch.exp(),
                "linear": self._slopes(self.linear)}  # fmt: skip
        for i, layer in enumerate(self.layers):
            tensors |= {f"weight{i}": layer.weight, f"bias{i}": layer.bias}
        if self.variant == "free":
            tensors |= {"hidden": self.hidden.weight, "hidden_bias": self.hidden.bias, "out": self.out.weight,
                     "out_bias": self.out.bias}  # fmt: skip
        elif self.variant in FROM_ANALYTIC:
            del tensors["linear"]
            tensors |= {"peaks": self._slopes(self.peaks), "extra": self._slopes(self.extra),
                     "behind": self.behind.weight, "behind_bias": self.behind.bias, "gate": self.gate,
                     "gate_bias": self.gate_bias}  # fmt: skip
        else:
            tensors |= {"hinges": self._slopes(self.hinges), "offsets": self.offsets.exp()}
        return {name: value.detach().numpy().astype(np.float32) for name, value in tensors.items()}


def softplus_inverse(value: Tensor) -> Tensor:
    """The number whose softplus is value; values below 1e-9 count as 1e-9, since 0 has none."""
    return torch.where(value > 20, value, torch.expm1(value.clamp(1e-9, 20)).log())


BATCH, LEAST_BATCHES = 128, 8  # groups of a step, and fewest steps of an epoch; not tuned further
PART_WEIGHT = 0.5  # weight of the errors of forward and of backward, relative to that of both together
LAUNCHES_S = (FORWARD_KERNELS * LAUNCH_S, BACKWARD_KERNELS * LAUNCH_S)  # start values of a corrected model
PREDICT_AT_ONCE = 500  # groups; limits memory, and changes no result beyond rounding


@noun
class CostRecipe:
    """Settings of a training. budget_s: seconds after which it ends at the latest; the rate falls to 0 by then.

    epochs: on shipped:cpu, 100 are as good as 250 (docs/learning.md). terms, hinges: sizes of the network. start:
    weights to begin with, as from `FusedKernelNetwork.tensors`, of the same variant.
    """

    variant: Variant = "convex"
    seed: int = 0
    epochs: int = 250
    budget_s: float | None = None
    terms: int = TERMS
    hinges: int = HINGES
    start: dict[str, np.ndarray] | None = None


def train(
    recipe: CostRecipe, groups: Groups, chosen_by: Groups, on_epoch: Callable[[Epoch], None] | None = None
) -> tuple[FusedKernelNetwork, int]:
    """(the network of the best epoch, number of epochs run). Ctrl-C ends training and keeps the best so far.

    Deterministic for a recipe without a budget, on one machine.
    """
    torch.set_num_threads(1)
    torch.manual_seed(recipe.seed)
    network, data = _first_network(recipe, groups), _GroupTensors(groups)
    rng, batches = np.random.default_rng(recipe.seed), max(LEAST_BATCHES, len(groups) // BATCH)
    loop = TrainingLoop(network, recipe.epochs, batches, recipe.budget_s)

    def epoch() -> None:
        """Train on every group once, in a new order."""
        for batch in np.array_split(rng.permutation(len(data)), batches):
            loop.step(_loss(network(*data.batch(batch)), data.seconds[batch]))
            network.keep_rising()

    return network, loop.run(epoch, lambda: _mean_error(predict(network, chosen_by), chosen_by), on_epoch)


def _first_network(recipe: CostRecipe, groups: Groups) -> FusedKernelNetwork:
    """The network before training: near the data, or the given one with its seconds scaled to the data's."""
    network = FusedKernelNetwork(recipe.variant, recipe.terms, recipe.hinges, _inputs(recipe, groups))
    network.fit_scale(groups.work, groups.inputs, groups.start, groups.seconds)
    if recipe.variant in FROM_ANALYTIC:
        network.start_analytic(LAUNCHES_S)
    if recipe.start:
        network.start_from(recipe.start, 1.0)
        network.start_from(recipe.start, float(np.median(groups.total / predict(network, groups).sum(axis=1))))
    return network


def _inputs(recipe: CostRecipe, groups: Groups) -> int:
    """Number of inputs of the network: those of the start model, and those that the samples have."""
    added = bool(groups.inputs[:, FIRST_INPUTS:].any())
    return max(len(INPUTS) if added else FIRST_INPUTS, len(recipe.start["centre"]) if recipe.start else 0)


def _loss(predicted: Tensor, measured: Tensor) -> Tensor:
    """The loss of logarithms, so that 10 us and 300 ms count the same: forward, backward, and both together."""
    both = torch.log(predicted.sum(dim=1) / measured.sum(dim=1))
    apart = PART_WEIGHT * torch.log(predicted / measured)
    return relative_loss(torch.cat([apart, both[:, None]], dim=1))


class _GroupTensors:
    """Groups as tensors."""

    def __init__(self, groups: Groups) -> None:
        self._work, self._inputs, self.seconds = (
            torch.as_tensor(each, dtype=torch.float32) for each in (groups.work, groups.inputs, groups.seconds)
        )
        self._start, self._tables = groups.start, groups.tables

    def __len__(self) -> int:
        return len(self._tables)

    def batch(self, chosen: np.ndarray) -> tuple[Tensor, Tensor, Tensor, int]:
        """Work, inputs and owners of the pieces of some groups, and the number of these groups."""
        count = self._tables[chosen]
        first = np.cumsum(count) - count
        pieces = np.arange(count.sum()) + np.repeat(self._start[chosen] - first, count)
        owner = torch.from_numpy(np.repeat(np.arange(len(chosen)), count))
        return self._work[pieces], self._inputs[pieces], owner, len(chosen)


def predict(network: FusedKernelNetwork, groups: Groups) -> np.ndarray:
    """Seconds (N, 2) of groups, forward and backward, by PyTorch."""
    data = _GroupTensors(groups)
    with torch.no_grad():
        blocks = np.array_split(np.arange(len(data)), -(-len(data) // PREDICT_AT_ONCE) or 1)
        return torch.cat([network(*data.batch(block)) for block in blocks]).double().numpy()


def _mean_error(predicted: np.ndarray, groups: Groups) -> float:
    return float(np.abs(predicted.sum(axis=1) / groups.total - 1).mean())
