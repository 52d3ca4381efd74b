"""Learned cost models as files: weights and their card in one safetensors file, and the card beside it for people.

The card is the metadata of the weights, so that the two cannot be parted: one rename replaces both. Nothing in a file
is executed. Reading checks names, shapes, signs and that every number is finite.
"""

import json
import os
import tempfile
from dataclasses import dataclass
from importlib import import_module, resources
from pathlib import Path
from typing import Any, Literal, NoReturn, cast

import numpy as np

from recsmith._types import Floats, noun
from recsmith.costs.neural_heads import ConvexHead, FreeHead, Head
from recsmith.costs.neural_inputs import DATA_TYPES, INPUTS, OPTIMIZERS, WORK
from recsmith.errors import CorruptFile, RecSmithError, UsageError
from recsmith.files import LARGEST_FILE, check_schema, decode, did_you_mean, encode, parse_json

SCHEMA = "recsmith/cost-model-card/1"
SUFFIX = ".safetensors"
BEND = 2.5  # the network moves a unit cost by at most e ** BEND from its base
Variant = Literal["convex", "linear", "free"]


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
class Floor:
    """How far two samples of one case are apart, where both count as quiet: no model can be told to be better."""

    pairs: int
    median: float | None = None
    mean: float | None = None


@noun
class Range:
    """The least and the most that training saw of an input."""

    least: float
    most: float


@noun
class Card:
    """What a learned cost model is, and how far it can be trusted.

    hardware, device, versions: as in the measurements. data: SHA-256 of the samples. left_out: steady samples that are
    not used (docs/learning.md). train, validation: samples used; those of `held_out` are the rest. ranges: of tables
    and of whole groups (`device ids`, `device tables` ...). analytic_factor: what the seconds of cost model analytic
    are multiplied with for kernels that were not measured. start: the model whose weights training began with.
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
    noise: Floor
    optimizers: tuple[str, ...]
    data_types: tuple[str, ...]
    ranges: dict[str, Range]
    analytic_factor: float = 1.0
    start: str | None = None


@dataclass(frozen=True)
class Weights:
    """The piece network and the head.

    centre, spread (x,): of the inputs. layers: (weight, bias) pairs, ReLU between them. base (t, b): log of what a unit
    of each figure of work adds to each term.
    """

    centre: Floats
    spread: Floats
    layers: tuple[tuple[Floats, Floats], ...]
    base: Floats
    head: Head

    def terms(self, work: Floats, inputs: Floats) -> Floats:
        """Learned terms (N, t) of pieces with figures of work (N, b) and inputs (N, x); 0 or more."""
        flow = np.clip((inputs - self.centre) / self.spread, -4.0, 4.0)
        for weight, bias in self.layers[:-1]:
            flow = np.maximum(flow @ weight.T + bias, 0.0)
        weight, bias = self.layers[-1]
        bent = BEND * np.tanh((flow @ weight.T + bias) / BEND).reshape(len(work), *self.base.shape)
        return np.einsum("ntb,nb->nt", np.exp(self.base + bent), work)


def save_model(target: str, tensors: dict[str, Any], card: Card) -> None:
    """Write arrays and their card: whole or not at all; what was there stays as it was where writing fails."""
    from safetensors.numpy import save

    text = json.dumps({"schema": SCHEMA, **encode(card)}, indent=2, allow_nan=False)
    whole = {name: np.ascontiguousarray(value, dtype=np.float32) for name, value in tensors.items()}
    _replace(Path(target), save(whole, metadata={"card": text}))
    _replace(card_path(target), text.encode() + b"\n")


def card_path(target: str) -> Path:
    """The card beside the weights."""
    return Path(target.removesuffix(SUFFIX) + ".json")


def _replace(path: Path, data: bytes) -> None:
    path = Path(os.path.realpath(path))
    temporary: Path | None = None
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        temporary = Path(name)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    except OSError as error:
        raise RecSmithError(f"cannot write '{path}': {error.strerror}; any file that was there is unchanged") from None
    finally:
        if temporary:
            temporary.unlink(missing_ok=True)


def find_model(name: str) -> Path:
    """The file of a path that ends with .safetensors, or of a name that ships."""
    if name.endswith(SUFFIX):
        return Path(name)
    home = Path(str(resources.files("recsmith.costs"))) / "weights"
    there = sorted(file.name.removesuffix(SUFFIX) for file in home.glob(f"*{SUFFIX}"))
    if name in there:
        return home / f"{name}{SUFFIX}"
    known = did_you_mean(name, there) if there else "; none ship yet"
    raise UsageError(
        f"no learned cost model is called '{name}'{known}: give the path of a {SUFFIX} file, which "
        "`recsmith learn cost` makes"
    )


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
    metadata, tensors = _open(path)
    if "card" not in metadata:
        raise CorruptFile(f"'{path}' holds no card; `recsmith learn cost` writes one")
    card = card_from_raw(parse_json(metadata["card"], str(path)), str(path))
    for words, known in ((card.optimizers, OPTIMIZERS), (card.data_types, DATA_TYPES)):
        for word in set(words) - set(known):
            _corrupt(str(path), f"'{word}' is none of {', '.join(known)}")
    weights_of(tensors, card.variant, str(path))
    return tensors, card


def card_from_raw(raw: object, source: str) -> Card:
    """A card from plain data of its schema."""
    return decode(Card, check_schema(cast(dict[str, Any], raw), SCHEMA, source), source)


def _open(path: Path) -> tuple[dict[str, str], dict[str, Floats]]:
    """Metadata and tensors of a safetensors file."""
    safetensors: Any = import_module("safetensors")
    size = _size(path)
    try:
        with safetensors.safe_open(path, framework="np") as file:
            tensors = {name: np.asarray(file.get_tensor(name), dtype=np.float64) for name in list(file.keys())}
            return file.metadata() or {}, tensors
    except (safetensors.SafetensorError, OSError, ValueError, TypeError) as error:
        raise CorruptFile(f"'{path}' ({size:,} bytes) is no whole safetensors file ({error}); train it again") from None


def _size(path: Path) -> int:
    """The size of a file that can be read; UsageError where it cannot."""
    try:
        with path.open("rb"):
            size = path.stat().st_size
    except OSError as error:
        raise UsageError(f"cannot read '{path}': {error.strerror}; give the path of a {SUFFIX} file") from None
    if size > LARGEST_FILE:
        raise CorruptFile(f"'{path}' has {size:,} bytes; learned cost models are far smaller")
    return size


_FREE = ("hidden", "hidden_bias", "out", "out_bias")
_CONVEX = ("hinges", "offsets")


def weights_of(tensors: dict[str, Floats], variant: Variant, source: str) -> Weights:
    """The weights of tensors, every one of which is known, of its shape, and finite."""
    shapes = _shapes(tensors, variant)
    for name in sorted({*shapes, *tensors}):
        if name not in tensors or name not in shapes:
            _corrupt(source, f"tensor '{name}' is {'unknown' if name in tensors else 'missing'}")
        if tensors[name].shape != shapes[name]:
            _corrupt(source, f"tensor '{name}' has shape {tensors[name].shape}, not {shapes[name]}")
        if not np.isfinite(tensors[name]).all():
            _corrupt(source, f"tensor '{name}' holds numbers that are not finite")
    for name in {"launch", "linear", *_CONVEX} & set(tensors):
        if (tensors[name] < 0).any():
            _corrupt(source, f"tensor '{name}' holds numbers below 0")
    if (tensors["spread"] <= 0).any():
        _corrupt(source, "tensor 'spread' holds numbers that are not above 0")
    head = {name: tensors[name] for name in ("launch", "linear", *(_FREE if variant == "free" else _CONVEX))}
    return Weights(
        tensors["centre"], tensors["spread"], tuple((tensors[f"weight{i}"], tensors[f"bias{i}"]) for i in range(3)),
        tensors["base"], FreeHead(**head) if variant == "free" else ConvexHead(**head),
    )  # fmt: skip


def _shapes(tensors: dict[str, Floats], variant: Variant) -> dict[str, tuple[int, ...]]:
    """Shapes that belong together, given the sizes that are free: terms, hinges and hidden units."""

    def size(name: str, axis: int) -> int:
        shape = tensors[name].shape if name in tensors else ()
        return shape[axis] if len(shape) > axis else 0

    x, b, t, first, second = len(INPUTS), len(WORK), size("base", 0), size("weight0", 0), size("weight1", 0)
    shapes: dict[str, tuple[int, ...]] = {
        "centre": (x,), "spread": (x,), "weight0": (first, x), "bias0": (first,), "weight1": (second, first),
        "bias1": (second,), "weight2": (t * b, second), "bias2": (t * b,), "base": (t, b), "launch": (2,),
        "linear": (2, 1 + t),
    }  # fmt: skip
    if variant != "free":
        hinges = size("offsets", 1) if variant == "convex" else 0
        return shapes | {"hinges": (2, hinges, 1 + t), "offsets": (2, hinges)}
    hidden = size("hidden", 0)
    return shapes | {"hidden": (hidden, 1 + t), "hidden_bias": (hidden,), "out": (2, hidden), "out_bias": (2,)}


def _corrupt(source: str, reason: str) -> NoReturn:
    raise CorruptFile(f"'{source}': {reason}; train it again with `recsmith learn cost`")
