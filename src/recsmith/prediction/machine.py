"""A machine as predictions use it: models of its kernels, curves of its collectives, and overheads; and its file.

A machine's file is safetensors with a card (costs/weight_files.py). Machine `cpu` ships with RecSmith.

A curve has three pieces, over the logarithm of the size. Up to `small` bytes, seconds are the latency; from `large`
bytes on they are size over bandwidth. Between them the logarithm of the bandwidth rises along a sigmoid from size /
latency to its highest (the multi-GPU successor of Lin et al., HiPC 2022, code owensgroup/ml_perf_model). Given where
the pieces meet and the shape of the sigmoid, the logarithm of seconds is linear in those of latency and bandwidth, so
the fit is least squares over a grid.
"""

import itertools
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from recsmith._types import Floats, noun
from recsmith.costs.weight_files import SUFFIX, check_tensors, damaged, read_weights, write_weights
from recsmith.errors import UsageError, check_rules
from recsmith.files import check_schema, decode, encode
from recsmith.prediction.graph import CollectiveRun
from recsmith.prediction.kernels import LAYERS, LEARNED, WORK, KernelModel, Kernels, figures_of, inputs_of
from recsmith.prediction.overheads import Overheads

STEEPNESS = (0.5, 1.0, 2.0, 4.0, 8.0)  # slopes of the sigmoid that are tried, over the whole middle piece
MIDDLES = (0.2, 0.35, 0.5, 0.65, 0.8)  # shares of the middle piece at which the sigmoid is steepest, as tried
LEAST_SIZES = 8  # fewest sizes that a curve is fitted to
ENDS = 12  # positions tried for either end of the middle piece


@noun
class Curve:
    """Seconds of a collective on a number of ranks, by size.

    small, large: bytes where the pieces meet. error: geometric mean of the relative errors of held-out sizes.
    """

    name: str
    ranks: int
    latency_s: float
    bytes_per_s: float
    small: float
    large: float
    steepness: float
    middle: float
    error: float = 0.0

    def __post_init__(self) -> None:
        values = (self.latency_s, self.bytes_per_s, self.small, self.steepness)
        check_rules(
            None if all(0 < each < np.inf for each in values) and self.small < self.large < np.inf and self.ranks > 0
            else f"curve {self.name} on {self.ranks} ranks holds figures that are not above 0, or small >= large"
        )  # fmt: skip

    def seconds(self, size: Floats) -> Floats:
        """Seconds for each of these sizes in bytes."""
        share = _share(size, self.small, self.large, self.steepness, self.middle)
        first = np.log(self.small / self.latency_s)
        speed = first + share * (np.log(self.bytes_per_s) - first)
        return np.where(size <= self.small, self.latency_s, size / np.exp(speed))


def fit_curve(name: str, ranks: int, size: Floats, seconds: Floats) -> Curve:
    """The curve of measured sizes (N,) and seconds (N,); every fifth size is held out to state its error.

    Raises:
        UsageError: there are fewer than 8 sizes.
    """
    order = np.argsort(size)
    size, seconds = np.maximum(size[order], 1.0), seconds[order]
    if len(size) < LEAST_SIZES:
        raise UsageError(f"{len(size)} sizes of {name} on {ranks} ranks; a curve takes at least {LEAST_SIZES}")
    held = np.arange(len(size)) % 5 == 2
    fitted = _fitted(name, ranks, size[~held], seconds[~held])
    off = np.abs(fitted.seconds(size[held]) / seconds[held] - 1)
    error = float(np.exp(np.log(np.maximum(off, 1e-4)).mean()))
    whole = _fitted(name, ranks, size, seconds)
    return replace(whole, error=error)


def _fitted(name: str, ranks: int, size: Floats, seconds: Floats) -> Curve:
    best, found = np.inf, None
    ends = np.exp(np.linspace(np.log(size[0] / 2), np.log(size[-1] * 2), ENDS))
    for (small, large), k, middle in itertools.product(itertools.combinations(ends, 2), STEEPNESS, MIDDLES):
        share = _share(size, small, large, k, middle)
        flat = size <= small
        # log t = log size - (1 - share) (log small - log latency) - share log bandwidth, or log latency where flat
        columns = np.stack([np.where(flat, 1.0, 1 - share), np.where(flat, 0.0, -share)], axis=1)
        known = np.where(flat, 0.0, np.log(size) - (1 - share) * np.log(small))
        solved, *_ = np.linalg.lstsq(columns, np.log(seconds) - known, rcond=None)
        miss = float(np.abs(columns @ solved + known - np.log(seconds)).mean())
        if miss < best and (flat.any() or large < size[-1]):
            best, found = miss, (small, large, k, middle, *np.exp(solved))
    assert found is not None  # the grid holds ends inside the sizes
    small, large, k, middle, latency, bandwidth = map(float, found)
    return Curve(name=name, ranks=ranks, latency_s=latency, bytes_per_s=bandwidth, small=small, large=large,
                 steepness=k, middle=middle)  # fmt: skip


def _share(size: Floats, small: float, large: float, steepness: float, middle: float) -> Floats:
    """Share, 0 to 1, of the rise from the first to the last log bandwidth that is reached at a size: a sigmoid."""
    place = np.clip((np.log(size) - np.log(small)) / (np.log(large) - np.log(small)), 0.0, 1.0)
    low, high = (1 / (1 + np.exp(-steepness * (end - middle))) for end in (0.0, 1.0))
    return (1 / (1 + np.exp(-steepness * (place - middle))) - low) / (high - low)


MACHINE_SCHEMA = "recsmith/machine/2"
MADE_BY = "recsmith learn kernels"
SHIPPED = Path(__file__).parent / "shipped"


@noun
class KernelScore:
    """Geometric mean errors of held-out kernels of a kind: of the model, and of its roofline alone."""

    kind: str
    trained: int
    held_out: int
    error: float
    roofline_error: float


@noun
class MachineCard:
    """Where a machine was measured, the models that predict it, and their errors."""

    device: str
    versions: str
    seed: int
    data: str
    kernels: tuple[KernelScore, ...]
    curves: tuple[Curve, ...]
    overheads: Overheads


GPU_CORES = " SMs"  # follows their number in the name of a GPU


@dataclass(frozen=True)
class Machine:
    """A measured machine. comm_factors: factors by which a calibration multiplies collectives, by name."""

    card: MachineCard
    kernels: Kernels
    overheads: Overheads
    comm_factors: dict[str, float]

    @property
    def on_gpu(self) -> bool:
        """Whether it was measured on a GPU, whose card names the multiprocessors."""
        return GPU_CORES in self.card.device

    def collective_s(self, name: str, size: float, ranks: int) -> float:
        """Seconds of a collective; 0 on one rank; UsageError if it was not measured on this number of ranks."""
        curve = self.curve(name, ranks)
        if curve is None and ranks == 1:
            return 0.0
        if curve is None:
            known = sorted({(each.name, each.ranks) for each in self.card.curves})
            seen = ", ".join(f"{name} on {count} ranks" for name, count in known) or "none"
            raise UsageError(
                f"no curve of {name} on {ranks} ranks is known of this machine ({seen}); measure it: recsmith measure "
                f"kernels --ranks {ranks}, then {MADE_BY}, and name the file by --machine"
            )
        return float(curve.seconds(np.array([max(size, 1.0)]))[0]) * self.comm_factors.get(name, 1.0)

    def latency_s(self, name: str, ranks: int) -> float:
        """Seconds that no faster link saves; those of two ranks if this number of ranks was not measured."""
        curve = self.curve(name, ranks) or self.curve(name, 2)
        return curve.latency_s * self.comm_factors.get(name, 1.0) if curve else 0.0

    def latency_of(self, made: CollectiveRun) -> float:
        """`latency_s` of a collective of a graph."""
        return self.latency_s(made.name, len(made.ranks))

    def curve(self, name: str, ranks: int) -> Curve | None:
        """The curve of a collective; None if none was measured."""
        return next((each for each in self.card.curves if (each.name, each.ranks) == (name, ranks)), None)


def save_machine(target: str, models: dict[str, KernelModel], card: MachineCard) -> None:
    """Write a machine's file, completely or not at all."""
    tensors: dict[str, Any] = {}
    for kind, model in models.items():
        tensors |= {f"{kind}.base": model.base, f"{kind}.centre": model.centre, f"{kind}.spread": model.spread}
        for i, (weight, bias) in enumerate(model.layers):
            tensors |= {f"{kind}.weight{i}": weight, f"{kind}.bias{i}": bias}
    write_weights(target, tensors, {"schema": MACHINE_SCHEMA, **encode(card)})


def load_machine(name: str | Path) -> Machine:
    """The machine in a file that `recsmith learn kernels` wrote, or the shipped one of this name: cpu.

    Raises:
        UsageError: there is no machine of that name, or the file cannot be read.
        CorruptFile: it is damaged, of another schema, or holds what no training writes.
    """
    raw, tensors, source = _read(name)
    card = decode(MachineCard, check_schema(raw, MACHINE_SCHEMA, source), source)
    models = models_of(tensors, source)
    return Machine(card=card, kernels=Kernels(models, {}), overheads=card.overheads, comm_factors={})


def load_card(name: str | Path) -> MachineCard:
    """The card of a machine alone; raises the errors of `load_machine`."""
    raw, _, source = _read(name)
    return decode(MachineCard, check_schema(raw, MACHINE_SCHEMA, source), source)


def _read(name: str | Path) -> tuple[Any, dict[str, Floats], str]:
    """The card as it is in the file, the tensors, and the path."""
    path = Path(name)
    if path.suffix != SUFFIX:
        names = sorted(each.stem for each in SHIPPED.glob(f"*{SUFFIX}"))
        if str(name) not in names:
            raise UsageError(
                f"no machine is called '{name}'; known: {', '.join(names) or 'none'}, or the path of a {SUFFIX} file, "
                f"which `{MADE_BY}` makes"
            )
        path = SHIPPED / f"{name}{SUFFIX}"
    raw, tensors = read_weights(path, MADE_BY)
    return raw, tensors, str(path)


def models_of(tensors: dict[str, Floats], source: str) -> dict[str, KernelModel]:
    """The kernel models in a file's tensors; CorruptFile if a tensor is unknown, of a wrong shape, or not finite."""
    kinds = sorted({name.partition(".")[0] for name in tensors})
    odd = next((kind for kind in kinds if kind not in LEARNED), None)
    if odd is not None or "elementwise" not in kinds:
        damaged(source, f"it has {'a model of ' + odd if odd else 'no model of elementwise operators'}", MADE_BY)
    models: dict[str, KernelModel] = {}
    for kind in kinds:
        own = {name.partition(".")[2]: value for name, value in tensors.items() if name.partition(".")[0] == kind}
        check_tensors(own, _shapes(kind, own), source, MADE_BY)
        if (own["spread"] <= 0).any():
            damaged(source, f"spread of {kind} holds numbers that are not above 0", MADE_BY)
        layers = tuple((own[f"weight{i}"], own[f"bias{i}"]) for i in range(LAYERS))
        models[kind] = KernelModel(kind, own["base"], own["centre"], own["spread"], layers)
    return models


def _shapes(kind: str, own: dict[str, Floats]) -> dict[str, tuple[int, ...]]:
    """The tensor shapes that a kind's model must have, given its numbers of hidden units, which are free."""
    inputs = inputs_of(kind, np.ones((1, figures_of(kind))), np.ones(1)).shape[1]
    units = [own[f"bias{i}"].shape[0] if own.get(f"bias{i}", np.zeros(())).ndim else 0 for i in range(LAYERS - 1)]
    widths = [inputs, *units, 1]
    shapes: dict[str, tuple[int, ...]] = {"base": (len(WORK),), "centre": (inputs,), "spread": (inputs,)}
    for i in range(LAYERS):
        shapes |= {f"weight{i}": (widths[i + 1], widths[i]), f"bias{i}": (widths[i + 1],)}
    return shapes
