"""A machine whose kernels, collectives and overheads are known: rooflines without a network."""

import numpy as np

from recsmith.prediction.kernels import LEARNED, KernelModel, Kernels, figures_of, inputs_of
from recsmith.prediction.machine import Curve, Machine, MachineCard
from recsmith.prediction.overheads import TERMS, Overhead, Overheads

CALL_S, BYTE_S, FLOP_S = 1e-6, 1e-10, 1e-11
OVERHEAD_S = 5e-6


def a_model(kind: str, slower: float = 1.0) -> KernelModel:
    inputs = inputs_of(kind, np.ones((1, figures_of(kind))), np.ones(1)).shape[1]
    layers = ((np.zeros((4, inputs)), np.zeros(4)), (np.zeros((4, 4)), np.zeros(4)), (np.zeros((1, 4)), np.zeros(1)))
    base = np.log(np.array([CALL_S, BYTE_S, FLOP_S]) * slower)
    return KernelModel(kind, base, np.zeros(inputs), np.ones(inputs), layers)


def a_card() -> MachineCard:
    overheads = tuple(Overhead(term=term, mean_s=OVERHEAD_S, spread_s=0.0, count=9) for term in TERMS)
    curves = tuple(
        Curve(name=name, ranks=2, latency_s=1e-4, bytes_per_s=1e9, small=1e4, large=1e6, steepness=2.0, middle=0.5)
        for name in ("all_to_all", "all_reduce")
    )
    return MachineCard(device="made", versions="none", seed=0, data="", kernels=(), curves=curves,
                       overheads=Overheads(source="made", overheads=overheads))  # fmt: skip


def a_machine(slower: float = 1.0) -> Machine:
    """slower: factor of all kernels."""
    models = {kind: a_model(kind, slower) for kind in LEARNED}
    card = a_card()
    return Machine(card=card, kernels=Kernels(models, {}), overheads=card.overheads, comm_factors={})
