"""Files of learned all-to-all models (costs/weight_files.py): their card, and the checks of their tensors."""

from itertools import pairwise
from pathlib import Path
from typing import Any

from recsmith._types import Floats, noun
from recsmith.costs.neural.files import NoiseFloor, Range
from recsmith.costs.neural_comm import INPUTS, LEAST_RANKS, WORK, CommModel
from recsmith.costs.weight_files import COMM, check_tensors, damaged, find_weights, read_weights, shipped, write_weights
from recsmith.files import check_schema, decode, encode

COMM_SCHEMA = "recsmith/comm-model-card/1"
MADE_BY = "recsmith learn comm"
ONE_RANK, JOINT = 2, 3  # layers of the network of a single rank, and of the joint network


@noun
class CommHeldOut:
    """Errors of predictions for exchanges of `ranks` ranks that training never saw, by rank.

    trained: whether training saw other exchanges with this number of ranks.
    median, mean: of |predicted / measured - 1|.
    alpha_beta_median, alpha_beta_mean: the same for alpha + most bytes / bandwidth + the wait for the last rank.
    """

    ranks: int
    trained: bool
    exchanges: int
    median: float
    mean: float
    alpha_beta_median: float
    alpha_beta_mean: float


@noun
class CommCard:
    """The description of a learned all-to-all model, and how far it can be trusted.

    hardware, backend, device, versions: as in the measurements.
    per_host: ranks that fit on a host; None if all were on one machine.
    ranks: numbers of ranks in training.
    data: SHA-256 of the exchanges.
    left_out: exchanges of more ranks than cores.
    train, validation: exchanges used.
    noise: difference between two measurements of the same exchange.
    ranges: of bytes that a rank sends or receives, and of the latest start.
    """

    hardware: str
    backend: str
    device: str
    versions: str
    per_host: int | None = None
    ranks: tuple[int, ...]
    seed: int
    data: str
    exchanges: int
    left_out: int
    train: int
    validation: int
    epochs: int
    held_out: tuple[CommHeldOut, ...]
    noise: NoiseFloor
    ranges: dict[str, Range]


def save_comm_model(target: str, tensors: dict[str, Any], card: CommCard) -> None:
    """Write tensors and their card, completely or not at all; if writing fails, the old file is kept."""
    write_weights(target, tensors, {"schema": COMM_SCHEMA, **encode(card)})


def find_comm_model(name: str) -> Path:
    """The file of a path that ends with .safetensors, or of a shipped name such as comm-simulated-h100."""
    return find_weights(name, "model of all-to-alls", MADE_BY, [each for each in shipped() if each.startswith(COMM)])


def load_comm_model(name: str | Path) -> tuple[CommModel, CommCard]:
    """The model in a file that `recsmith learn comm` wrote, or of a shipped name.

    Raises:
        UsageError: there is none of that name, or it cannot be read.
        CorruptFile: the file is damaged, of another schema, or has values that no training writes.
    """
    path = find_comm_model(str(name))
    raw, tensors = read_weights(path, MADE_BY)
    card = comm_card_from_raw(raw, str(path))
    return comm_model_of(tensors, card.per_host, str(path)), card


def comm_card_from_raw(raw: Any, source: str) -> CommCard:
    """A card from plain data of its schema."""
    card = decode(CommCard, check_schema(raw, COMM_SCHEMA, source), source)
    if card.per_host is not None and card.per_host < 1:
        damaged(source, f"{card.per_host} ranks a host", MADE_BY)
    if not card.ranks or min(card.ranks) < LEAST_RANKS:
        damaged(source, f"it is trained on exchanges of {list(card.ranks)} ranks", MADE_BY)
    return card


def comm_model_of(tensors: dict[str, Floats], per_host: int | None, source: str) -> CommModel:
    """The model of tensors, after checking that each is known, of the expected shape, and finite."""
    check_tensors(tensors, _shapes(tensors), source, MADE_BY)
    if (tensors["spread"] <= 0).any():
        damaged(source, "tensor 'spread' holds numbers that are not above 0", MADE_BY)
    if tensors["alpha"][0] < 0:
        damaged(source, "tensor 'alpha' holds numbers below 0", MADE_BY)
    layers = [tuple((tensors[f"{name}_weight{i}"], tensors[f"{name}_bias{i}"]) for i in range(count))
              for name, count in (("rank", ONE_RANK), ("joint", JOINT))]  # fmt: skip
    return CommModel(tensors["centre"], tensors["spread"], layers[0], layers[1], tensors["base"],
                     float(tensors["alpha"][0]), per_host)  # fmt: skip


def _shapes(tensors: dict[str, Floats]) -> dict[str, tuple[int, ...]]:
    """Consistent shapes of all tensors, given the free numbers of hidden units."""

    def units(name: str) -> int:
        shape = tensors[name].shape if name in tensors else ()
        return shape[0] if shape else 0

    x, k, hidden = len(INPUTS), len(WORK), units("rank_weight1")
    widths = {"rank": [x, units("rank_weight0"), hidden],
              "joint": [3 * hidden, units("joint_weight0"), units("joint_weight1"), k]}  # fmt: skip
    shapes: dict[str, tuple[int, ...]] = {"centre": (x,), "spread": (x,), "base": (k,), "alpha": (1,)}
    for name, sizes in widths.items():
        for i, (before, after) in enumerate(pairwise(sizes)):
            shapes |= {f"{name}_weight{i}": (after, before), f"{name}_bias{i}": (after,)}
    return shapes
