"""Learned cost models as files (costs/weight_files.py): their card, and what their tensors must be.

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
BLOCK = 512  # pieces whose terms are worked out at once, so that what layers hand on fits a second-level cache
BEND = 2.5  # the network moves a unit cost by at most a factor of e ** BEND = 12 from its base
Variant = Literal["convex", "corrected", "monotone", "linear", "free"]
FROM_ANALYTIC = ("corrected", "monotone")  # variants that carry the seconds of cost model `analytic`


@noun
class HeldOut:
    """How far predictions of forward and backward together are off, of cases that training never saw.

    median, mean: |predicted / measured - 1|. forward_median, backward_median: of each alone. tau: Kendall's.
    """

    samples: int
    median: float
    mean: float
    forward_median: float
    backward_median: float
    tau: float


@noun
class NoiseFloor:
    """How far two samples of one case are apart, where both are steady: no model can be told to be better."""

    pairs: int
    median: float | None = None
    mean: float | None = None


@noun
class Range:
    """The least and the most that training saw of an input."""

    least: float
    most: float


@noun
class Beside:
    """How a cost model of formulas does on the samples. factor: median of measured over its seconds.

    spread: geometric mean, less 1, of how far the two are apart once the factor is taken off.
    """

    samples: int
    factor: float
    spread: float


@noun
class CopySeconds:
    """Seconds of data_parallel kernels beyond their launch: for each table, and for each byte of its weights."""

    table_s: float
    byte_s: float


@noun
class Card:
    """What a learned cost model is, and how far it can be trusted.

    hardware, device, versions: as in the measurements. data: SHA-256 of the samples. left_out: steady samples that are
    not used (docs/learning.md). train, validation: samples used; those of `held_out` are the rest. ranges: of tables
    and of whole groups (`device ids`, `device tables` ...). analytic_factor: what the seconds of cost model analytic
    are multiplied with for kernels that were not measured. start: the model whose weights training began with.
    regions: `held_out` by kinds of groups. beside: formulas on the same samples, by cost model. copies: what was
    measured of data_parallel tables, by optimizer (benchmarks/gpu/copies.py). sequences: what was measured of unpooled
    tables, by 'optimizer data type' (benchmarks/sequences.py). Cards of before have none of these.
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
    """The piece network and the head.

    centre, spread (x,): of the first x inputs, which the model knows. layers: (weight, bias) pairs, ReLU between them.
    base (t, b): log of what a unit of each figure of work adds to each term. cells (c, 4): where trained tables lie;
    None in files of before.
    """

    centre: Floats
    spread: Floats
    layers: tuple[tuple[Floats, Floats], ...]
    base: Floats
    head: Head
    cells: Floats | None = None

    def terms(self, work: Floats, inputs: Floats) -> Floats:
        """Learned terms (N, t) of pieces with figures of work (N, b) and inputs (N, x or more); 0 or more."""
        found = np.empty((len(work), len(self.base)))
        for start in range(0, len(work), BLOCK):
            some = slice(start, start + BLOCK)
            found[some] = np.einsum("ntb,nb->nt", self._units(inputs[some]), work[some])
        return found

    def _units(self, inputs: Floats) -> Floats:
        """What a unit of each figure of work adds to each term of pieces with these inputs (N, t, b)."""
        flow = np.clip((inputs[:, : len(self.centre)] - self.centre) / self.spread, -4.0, 4.0)
        for weight, bias in self.layers[:-1]:
            flow = np.maximum(matmul(flow, weight.T) + bias, 0.0)
        weight, bias = self.layers[-1]
        bent = BEND * tanh((matmul(flow, weight.T) + bias) / BEND).reshape(len(flow), *self.base.shape)
        return exp(self.base + bent)


def save_model(target: str, tensors: dict[str, Any], card: Card) -> None:
    """Write arrays and their card: whole or not at all; what was there stays as it was where writing fails."""
    write_weights(target, tensors, {"schema": SCHEMA, **encode(card)})


@cache
def shipped_cards() -> dict[str, Card]:
    """The cards of these models, from the files beside their weights: quicker than the weights."""
    paths = {name: card_path(str(find_model(name))) for name in shipped_models()}
    return {name: card_from_raw(parse_json(path.read_text(), str(path)), str(path)) for name, path in paths.items()}


def find_model(name: str) -> Path:
    """The file of a path that ends with .safetensors, or of a name that ships."""
    return find_weights(name, "cost model", MADE_BY, shipped_models())


def load_model(path: Path) -> tuple[Weights, Card]:
    """Read a file that `recsmith learn cost` wrote.

    Raises:
        UsageError: it cannot be read.
        CorruptFile: it is damaged, of another schema, or holds what no training writes.
    """
    tensors, card = load_tensors(path)
    return weights_of(tensors, card.variant, str(path)), card


def load_tensors(path: Path) -> tuple[dict[str, Floats], Card]:
    """The tensors of a file as they are written, checked, and its card; errors as load_model."""
    raw, tensors = read_weights(path, MADE_BY)
    card = card_from_raw(raw, str(path))
    for names, known in ((card.optimizers, OPTIMIZERS), (card.data_types, DATA_TYPES)):
        for name in set(names) - set(known):
            damaged(str(path), f"'{name}' is none of {', '.join(known)}", MADE_BY)
    told = INPUTS[: tensors["centre"].size] if "centre" in tensors else INPUTS
    for name in set(card.optimizers) - set(told):
        damaged(str(path), f"its card has optimizer '{name}', its weights have no input of it", MADE_BY)
    weights_of(tensors, card.variant, str(path))
    return tensors, card


def card_from_raw(raw: object, source: str) -> Card:
    """A card from plain data of its schema."""
    body = check_schema(cast(dict[str, Any], raw), SCHEMA, source)
    return built(Card, body) if Path(source).parent == data_file("") else decode(Card, body, source)


EARLIER = 15  # figures of a corrected model of before, whose shares stood beside its peaks, not within them
CELLS = "cells"  # the tensor that says where trained tables lie
_FREE = ("hidden", "hidden_bias", "out", "out_bias")
_CONVEX = ("hinges", "offsets")
_CORRECTED = ("peaks", "extra", "behind", "behind_bias", "gate", "gate_bias")
_HEADS = {"convex": (ConvexHead, ("linear", *_CONVEX)), "linear": (ConvexHead, ("linear", *_CONVEX)),
          "corrected": (CorrectedHead, _CORRECTED), "monotone": (CorrectedHead, _CORRECTED),
          "free": (FreeHead, ("linear", *_FREE))}  # fmt: skip


def weights_of(tensors: dict[str, Floats], variant: Variant, source: str) -> Weights:
    """The weights of tensors, every one of which is known, of its shape, and finite."""
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
    """Shapes that belong together, given the sizes that are free: terms, hinges and hidden units."""

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
