"""Corrects a machine by one captured step: kernels and collectives by a factor for each kind, overheads by its own."""

from dataclasses import replace

import numpy as np

from recsmith._types import record
from recsmith.prediction.graph import Graph
from recsmith.prediction.kernels.inputs import geometric_error
from recsmith.prediction.kernels.models import Kernels
from recsmith.prediction.machine import Machine
from recsmith.prediction.overheads import Overheads, extract_overheads

LEAST_SHARE = 0.01  # of the kernels' time: a kind that has less of it is not corrected by itself


@record
class Calibration:
    """A corrected machine, and what was corrected. errors: of kernels, geometric, before and after."""

    machine: Machine
    factors: dict[str, float]
    before: float
    after: float


def calibrate(machine: Machine, graph: Graph, source: str) -> Calibration:
    """Correct a machine by a captured graph.

    A kind's factor is measured seconds over predicted ones, summed over the kernels of the kind, so that its total
    becomes right. Kinds that the graph does not have take the factor of all its kernels.
    """
    events = [event for _, event in graph.kernels() if event.kernel is not None]
    kernels = [event.kernel for event in events if event.kernel is not None]
    measured = np.maximum([event.work_s or event.seconds for event in events], 1e-9)
    predicted = machine.kernels.seconds(kernels)
    whole = float(measured.sum() / predicted.sum()) if kernels else 1.0
    factors = dict.fromkeys((*machine.kernels.models, "other"), whole)
    kinds = np.array([kernel.kind for kernel in kernels])
    for kind in sorted(set(kinds.tolist())):
        chosen = kinds == kind
        if measured[chosen].sum() >= LEAST_SHARE * measured.sum():
            factors[kind] = float(measured[chosen].sum() / predicted[chosen].sum())
    old = machine.kernels.factors
    corrected = Kernels(machine.kernels.models, {kind: old.get(kind, 1.0) * each for kind, each in factors.items()})
    heavy = measured >= LEAST_SHARE / 10 * measured.sum()
    made = replace(machine, kernels=corrected, overheads=_merged(machine.overheads, extract_overheads([graph], source)),
                   comm_factors=_comm_factors(machine, graph))  # fmt: skip
    return Calibration(machine=made, factors=factors | made.comm_factors,
                       before=geometric_error(predicted[heavy], measured[heavy]),
                       after=geometric_error(corrected.seconds(kernels)[heavy], measured[heavy]))  # fmt: skip


def _merged(known: Overheads, own: Overheads) -> Overheads:
    """The capture's overheads, and for operators that it lacks those of the machine, scaled as those of all are."""
    mine, theirs = own.by_key(), known.by_key()
    kept = list(own.overheads)
    for each in known.overheads:
        if (each.term, each.operator) not in mine:
            scale = mine[each.term, ""] / theirs[each.term, ""] if theirs[each.term, ""] > 0 else 1.0
            kept.append(replace(each, mean_s=each.mean_s * scale, spread_s=each.spread_s * scale))
    return Overheads(source=own.source, overheads=tuple(kept))


def _comm_factors(machine: Machine, graph: Graph) -> dict[str, float]:
    """Measured over predicted seconds of collectives by name, where the machine has their curve."""
    sums: dict[str, list[float]] = {}
    for made in graph.collectives:
        curve = machine.curve(made.name, len(made.ranks))
        if curve is not None:
            both = sums.setdefault(made.name, [0.0, 0.0])
            both[0] += made.seconds
            both[1] += machine.collective_s(made.name, made.bytes, len(made.ranks))
    factors = dict(machine.comm_factors)
    return factors | {name: factors.get(name, 1.0) * real / max(said, 1e-12) for name, (real, said) in sums.items()}
