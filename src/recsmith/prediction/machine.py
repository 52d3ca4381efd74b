"""What a machine is to predictions: models of its kernels, curves of its collectives, and overheads; and its file.

A machine's file is safetensors with a card (costs/weight_files.py). Machine `cpu` ships.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from recsmith._types import Floats, noun
from recsmith.costs.weight_files import SUFFIX, check_tensors, damaged, read_weights, write_weights
from recsmith.errors import UsageError
from recsmith.files import check_schema, decode, encode
from recsmith.prediction.graph import Collective
from recsmith.prediction.kernels.curves import Curve
from recsmith.prediction.kernels.inputs import LEARNED, WORK, figures_of, inputs_of
from recsmith.prediction.kernels.models import LAYERS, KernelModel, Kernels
from recsmith.prediction.overheads import Overheads

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
    """Where a machine was measured, what it is predicted by, and how far that is off."""

    device: str
    versions: str
    seed: int
    data: str
    kernels: tuple[KernelScore, ...]
    curves: tuple[Curve, ...]
    overheads: Overheads


@dataclass(frozen=True)
class Machine:
    """A machine. comm_factors: by which a calibration multiplies collectives by name."""

    card: MachineCard
    kernels: Kernels
    overheads: Overheads
    comm_factors: dict[str, float]

    def collective_s(self, name: str, size: float, ranks: int) -> float:
        """Seconds of a collective; UsageError where it was not measured on so many ranks; on one it then takes none."""
        curve = self.curve(name, ranks)
        if curve is None and ranks == 1:
            return 0.0
        if curve is None:
            known = sorted({(each.name, each.ranks) for each in self.card.curves})
            words = ", ".join(f"{name} on {count} ranks" for name, count in known) or "none"
            raise UsageError(
                f"no curve of {name} on {ranks} ranks is known of this machine ({words}); measure it: recsmith measure "
                f"kernels --ranks {ranks}, then {MADE_BY}, and name the file by --machine"
            )
        return float(curve.seconds(np.array([max(size, 1.0)]))[0]) * self.comm_factors.get(name, 1.0)

    def latency_s(self, name: str, ranks: int) -> float:
        """Seconds that no faster link saves; those of two ranks where as many ranks were not measured."""
        curve = self.curve(name, ranks) or self.curve(name, 2)
        return curve.latency_s * self.comm_factors.get(name, 1.0) if curve else 0.0

    def latency_of(self, made: Collective) -> float:
        """`latency_s` of a collective of a graph."""
        return self.latency_s(made.name, len(made.ranks))

    def curve(self, name: str, ranks: int) -> Curve | None:
        """The curve of a collective; None where none was measured."""
        return next((each for each in self.card.curves if (each.name, each.ranks) == (name, ranks)), None)


def save_machine(target: str, models: dict[str, KernelModel], card: MachineCard) -> None:
    """Write a machine: whole or not at all."""
    tensors: dict[str, Any] = {}
    for kind, model in models.items():
        tensors |= {f"{kind}.base": model.base, f"{kind}.centre": model.centre, f"{kind}.spread": model.spread}
        for i, (weight, bias) in enumerate(model.layers):
            tensors |= {f"{kind}.weight{i}": weight, f"{kind}.bias{i}": bias}
    write_weights(target, tensors, {"schema": MACHINE_SCHEMA, **encode(card)})


def load_machine(name: str | Path) -> Machine:
    """The machine of a file that `recsmith learn kernels` wrote, or of a name that ships: cpu.

    Raises:
        UsageError: there is none of that name, or it cannot be read.
        CorruptFile: it is damaged, of another schema, or holds what no training writes.
    """
    raw, tensors, source = _read(name)
    card = decode(MachineCard, check_schema(raw, MACHINE_SCHEMA, source), source)
    models = models_of(tensors, source)
    return Machine(card=card, kernels=Kernels(models, {}), overheads=card.overheads, comm_factors={})


def load_card(name: str | Path) -> MachineCard:
    """The card of a machine alone; errors as of `load_machine`."""
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
    """The models of tensors, every one of which is known, of its shape, and finite."""
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
    """Shapes that belong together, given the hidden units, which are free."""
    inputs = inputs_of(kind, np.ones((1, figures_of(kind))), np.ones(1)).shape[1]
    units = [own[f"bias{i}"].shape[0] if own.get(f"bias{i}", np.zeros(())).ndim else 0 for i in range(LAYERS - 1)]
    widths = [inputs, *units, 1]
    shapes: dict[str, tuple[int, ...]] = {"base": (len(WORK),), "centre": (inputs,), "spread": (inputs,)}
    for i in range(LAYERS):
        shapes |= {f"weight{i}": (widths[i + 1], widths[i]), f"bias{i}": (widths[i + 1],)}
    return shapes
