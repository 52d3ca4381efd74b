"""The all-to-alls of plans on simulated links, beside a learned model of them.

Legend: V visits, W ranks; the last axis of kernels and all-to-alls is forward, backward.
"""

import numpy as np

from recsmith._types import Floats
from recsmith.costs.neural_comm_files import load_comm_model
from recsmith.costs.weight_files import COMM, shipped
from recsmith.hardware import load_links
from recsmith.plans import Plan
from recsmith.verifying.kernels.collectives import exchanges_of
from recsmith.verifying.kernels.skewed_steps import by_links, by_model, skewed_comm, waits, with_starts
from recsmith.verifying.kernels.verification import RankExchange


class SimulatedCollectives:
    """All-to-alls on a simulated GPU's links, and as the learned model of those links predicts them.

    The model is the one that ships for the GPU, whatever the noise of the links; there is none for most GPUs.
    hardware: simulated:<gpu>[?noise=0.03].
    """

    def __init__(self, hardware: str) -> None:
        self._links = load_links(hardware)
        name = COMM + hardware.partition("?")[0].replace(":", "-")
        self._model = by_model(load_comm_model(name)[0]) if name in shipped() else None

    def simulate(self, plan: Plan, kernels: Floats, seed: int) -> Floats:
        """Seconds (V, W, 2) of a plan's all-to-alls around its kernels (V, W, 2), as `skewed_comm` has them."""
        forward, backward = exchanges_of(plan)
        return np.stack([
            skewed_comm(each, forward, backward, by_links(self._links, (seed, visit)))
            for visit, each in enumerate(kernels)
        ])  # fmt: skip

    def predict(self, plan: Plan, kernels: Floats) -> Floats | None:
        """The learned model's seconds (W, 2) around kernels (W, 2); None without a model."""
        return skewed_comm(kernels, *exchanges_of(plan), self._model) if self._model else None

    def by_rank(self, plan: Plan, kernels: Floats, comm: Floats) -> tuple[RankExchange, ...]:
        """Simulated and predicted seconds of each rank, medians over visits; nothing without a model.

        kernels, comm: (V, W, 2), comm as `simulate` has them. The model is asked for the same starts.
        """
        if self._model is None:
            return ()
        forward, backward = exchanges_of(plan)
        ready = kernels.sum(axis=2) + comm[:, :, 1]
        predicted = np.stack([self._model(with_starts(forward, starts)) for starts in ready])
        predicted_back = self._model(backward)
        forward_s = comm[:, :, 0] + waits(ready)
        columns = (*(np.median(each, axis=0) for each in (ready, forward_s, comm[:, :, 1], predicted)), predicted_back)
        return tuple(
            RankExchange(
                rank=rank, ready_s=ready_s, forward_s=forward_s, backward_s=backward_s, predicted_s=predicted_s,
                predicted_backward_s=predicted_backward_s,
            )
            for rank, (ready_s, forward_s, backward_s, predicted_s, predicted_backward_s)
            in enumerate(np.stack(columns, axis=1).tolist())
        )  # fmt: skip
