"""Files of learned cost models (costs/weight_files.py): their card, and the checks of their tensors.

Reading checks names, shapes, signs and that every number is finite.
"""

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from recsmith._types import Floats, noun
from recsmith.costs.neural.heads import ConvexHead, CorrectedHead, FreeHead, Head
from recsmith.costs.neural.inputs import (
    CORRECTED,
    DATA_TYPES,
    FIGURES,
    FIRST_INPUTS,
    INPUTS,
    OPTIMIZERS,
    WORK,
    Region,
)
from recsmith.costs.neural.sequences import SequenceSeconds
from recsmith.costs.weight_files import (
    card_path,
    check_tensors,
    damaged,
    data_file,
    find_weights,
    read_weights,
    shipped_models,
    write_weights,
)
from recsmith.elementary import exp, matmul, tanh
from recsmith.files import built, check_schema, decode, encode, parse_json

SCHEMA = "recsmith/cost-model-card/1"
MADE_BY = "recsmith learn cost"
BLOCK = 512  # pieces whose terms are computed at once, so that activations fit a second-level cache
BEND = 2.5  # the network changes a unit cost by at most a factor of e ** BEND = 12
Variant = Literal["convex", "corrected", "monotone", "linear", "free"]
FROM_ANALYTIC = ("corrected", "monotone")  # variants whose inputs include seconds of cost model `analytic`


@noun
class HeldOut:
    """Errors of predictions of forward and backward together, for cases that training never saw.

    median, mean: of |predicted / measured - 1|.
    forward_median, backward_median: of each alone.
    tau: Kendall's.
    """

    samples: int
    median: float
    mean: float
    forward_median: float
    backward_median: float
    tau: float


@noun
class NoiseFloor:
    """Difference between two steady samples of the same case: the smallest error that a model can be shown to have."""

    pairs: int
    median: float | None = None
    mean: float | None = None


@noun
class Range:
    """The smallest and the largest value of an input in training."""

    least: float
    most: float


@noun
class Beside:
    """The error of a formula cost model on the samples. factor: median of measured over its seconds.

    spread: geometric mean, less 1, of the ratio between the two once the factor is applied.
    """

    samples: int
    factor: float
    spread: float


@noun
class CopySeconds:
    """Seconds of data_parallel kernels beyond their launch: per table, and per byte of its weights."""

    table_s: float
    byte_s: float


@noun
class Card:
    """The description of a learned cost model, and how far it can be trusted.

    hardware, device, versions: as in the measurements.
    data: SHA-256 of the samples.
    left_out: steady samples that are not used (docs/learning.md).
    train, validation: samples used; the remaining ones are those of `held_out`.
    ranges: of tables and of whole groups (`device ids`, `device tables` ...).
    analytic_factor: factor on the seconds of cost model analytic for kernels that were not measured.
    start: the model whose weights training started from.
    regions: `held_out` by kinds of groups.
    beside: formula cost models on the same samples, by name.
    copies: measured data_parallel tables, by optimizer (benchmarks/gpu/copies.py).
    sequences: measured unpooled tables, by 'optimizer data type' (benchmarks/sequences.py). Older cards have none of
        the last four.
    """

    hardware: str
    device: str
    versions: str
    variant: Variant
    seed: int
    data: str
    samples: int
    left_out: int
    train: int
    validation: int
    epochs: int
    held_out: HeldOut
    noise: NoiseFloor
    optimizers: tuple[str, ...]
    data_types: tuple[str, ...]
    ranges: dict[str, Range]
    analytic_factor: float = 1.0
    start: str | None = None
    regions: tuple[Region, ...] = ()
    beside: dict[str, Beside] = field(default_factory=dict[str, Beside])
    copies: dict[str, CopySeconds] = field(default_factory=dict[str, CopySeconds])
    sequences: dict[str, SequenceSeconds] = field(default_factory=dict[str, SequenceSeconds])


@dataclass(frozen=True)
class Weights:
    """The weights of the piece network and the head.

    centre, spread (x,): of the first x inputs, which the model uses.
    layers: (weight, bias) pairs, with ReLU between them.
    base (t, b): log of what a unit of each figure of work adds to each term.
    cells (c, 4): cells of the trained tables; None in older files.
    """

    centre: Floats
    spread: Floats
    layers: tuple[tuple[Floats, Floats], ...]
    base: Floats
    head: Head
    cells: Floats | None = None

    def terms(self, work: Floats, inputs: Floats) -> Floats:
        """Learned terms (N, t), 0 or more, of pieces with figures of work (N, b) and inputs (N, x or more)."""
        found = np.empty((len(work), len(self.base)))
        for start in range(0, len(work), BLOCK):
            some = slice(start, start + BLOCK)
            found[some] = np.einsum("ntb,nb->nt", self._units(inputs[some]), work[some])
        return found

    def _units(self, inputs: Floats) -> Floats:
        """Amounts (N, t, b) that a unit of each figure of work adds to each term, for pieces with these inputs."""
        flow = np.clip((inputs[:, : len(self.centre)] - self.centre) / self.spread, -4.0, 4.0)
        for weight, bias in self.layers[:-1]:
            flow = np.maximum(matmul(flow, weight.T) + bias, 0.0)
        weight, bias = self.layers[-1]
        bent = BEND * tanh((matmul(flow, weight.T) + bias) / BEND).reshape(len(flow), *self.base.shape)
        return exp(self.base + bent)


def save_model(target: str, tensors: dict[str, Any], card: Card) -> None:
    """Write tensors and their card, completely or not at all; if writing fails, the old file is kept."""
    write_weights(target, tensors, {"schema": SCHEMA, **encode(card)})


@cache
def shipped_cards() -> dict[str, Card]:
    """The cards of the shipped models, from the files next to their weights, which are quicker to read."""
    paths = {name: card_path(str(find_model(name))) for name in shipped_models()}
    return {name: card_from_raw(parse_json(path.read_text(), str(path)), str(path)) for name, path in paths.items()}


def find_model(name: str) -> Path:
    """The file of a path that ends with .safetensors, or of a shipped name."""
    return find_weights(name, "cost model", MADE_BY, shipped_models())


def load_model(path: Path) -> tuple[Weights, Card]:
    """Read a file that `recsmith learn cost` wrote.

    Raises:
        UsageError: the file cannot be read.
        CorruptFile: the file is damaged, of another schema, or has values that no training writes.
    """
    tensors, card = load_tensors(path)
    return weights_of(tensors, card.variant, str(path)), card


def load_tensors(path: Path) -> tuple[dict[str, Floats], Card]:
    """The tensors of a file as stored, checked, and its card; errors as in load_model."""
    raw, tensors = read_weights(path, MADE_BY)
    card = card_from_raw(raw, str(path))
    for names, known in ((card.optimizers, OPTIMIZERS), (card.data_types, DATA_TYPES)):
        for name in set(names) - set(known):
            damaged(str(path), f"'{name}' is none of {', '.join(known)}", MADE_BY)
    inputs = INPUTS[: tensors["centre"].size] if "centre" in tensors else INPUTS
    for name in set(card.optimizers) - set(inputs):
        damaged(str(path), f"its card has optimizer '{name}', its weights have no input of it", MADE_BY)
    weights_of(tensors, card.variant, str(path))
    return tensors, card


def card_from_raw(raw: object, source: str) -> Card:
    """A card from plain data of its schema."""
    body = check_schema(cast(dict[str, Any], raw), SCHEMA, source)
    return built(Card, body) if Path(source).parent == data_file("") else decode(Card, body, source)


EARLIER = 15  # figures of an earlier corrected model, whose shares were added to its peaks, not part of them
CELLS = "cells"  # the tensor with the cells of the trained tables
_FREE = ("hidden", "hidden_bias", "out", "out_bias")
_CONVEX = ("hinges", "offsets")
_CORRECTED = ("peaks", "extra", "behind", "behind_bias", "gate", "gate_bias")
_HEADS = {"convex": (ConvexHead, ("linear", *_CONVEX)), "linear": (ConvexHead, ("linear", *_CONVEX)),
          "corrected": (CorrectedHead, _CORRECTED), "monotone": (CorrectedHead, _CORRECTED),
          "free": (FreeHead, ("linear", *_FREE))}  # fmt: skip


def weights_of(tensors: dict[str, Floats], variant: Variant, source: str) -> Weights:
    """The weights of tensors, after checking that each is known, of the expected shape, and finite."""
    check_tensors(tensors, _shapes(tensors, variant, source), source, MADE_BY)
    rising = {"behind", "gate"} if variant == "monotone" else set[str]()
    for name in {"launch", "linear", "peaks", "extra", *_CONVEX, *rising} & set(tensors):
        if (tensors[name] < 0).any():
            damaged(source, f"tensor '{name}' holds numbers below 0", MADE_BY)
    if (tensors["spread"] <= 0).any():
        damaged(source, "tensor 'spread' holds numbers that are not above 0", MADE_BY)
    head, names = _HEADS[variant]
    return Weights(
        tensors["centre"], tensors["spread"], tuple((tensors[f"weight{i}"], tensors[f"bias{i}"]) for i in range(3)),
        tensors["base"], head(**{name: tensors[name] for name in ("launch", *names)}), tensors.get(CELLS),
    )  # fmt: skip


def _shapes(tensors: dict[str, Floats], variant: Variant, source: str) -> dict[str, tuple[int, ...]]:
    """Consistent shapes of all tensors, given the free sizes: terms, hinges and hidden units."""

    def size(name: str, axis: int) -> int:
        shape = tensors[name].shape if name in tensors else ()
        return shape[axis] if len(shape) > axis else 0

    work = CORRECTED if variant in FROM_ANALYTIC else WORK
    if variant in FROM_ANALYTIC and size("base", 1) == EARLIER:
        damaged(source, f"it has the {EARLIER} figures of work of an earlier version, not {len(CORRECTED)}", MADE_BY)
    x = min(max(size("centre", 0), FIRST_INPUTS), len(INPUTS))
    b, t, first, second = len(work), size("base", 0), size("weight0", 0), size("weight1", 0)
    shapes: dict[str, tuple[int, ...]] = {
        "centre": (x,), "spread": (x,), "weight0": (first, x), "bias0": (first,), "weight1": (second, first),
        "bias1": (second,), "weight2": (t * b, second), "bias2": (t * b,), "base": (t, b), "launch": (2,),
    }  # fmt: skip
    shapes |= {CELLS: (size(CELLS, 0), len(FIGURES))} if CELLS in tensors else {}
    if variant in FROM_ANALYTIC:
        peaks, gates, hidden = size("peaks", 1), size("gate", 0), size("behind", 0)
        return shapes | {
            "peaks": (2, peaks, 1 + t), "extra": (2, peaks, gates, 1 + t), "behind": (hidden, 1 + t),
            "behind_bias": (hidden,), "gate": (gates, hidden), "gate_bias": (gates,),
        }  # fmt: skip
    shapes["linear"] = (2, 1 + t)
    if variant != "free":
        hinges = size("offsets", 1) if variant == "convex" else 0
        return shapes | {"hinges": (2, hinges, 1 + t), "offsets": (2, hinges)}
    hidden = size("hidden", 0)
    return shapes | {"hidden": (hidden, 1 + t), "hidden_bias": (hidden,), "out": (2, hidden), "out_bias": (2,)}
