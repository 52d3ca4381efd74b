"""The all-to-alls of plans: between local ranks if this machine has enough for a plan, or on simulated links.

Legend: P plans, V visits, W ranks; the last axis is forward, backward.
"""

from collections.abc import Sequence
from dataclasses import asdict

import numpy as np

from recsmith._types import Floats
from recsmith.costs.neural_comm_files import load_comm_model
from recsmith.costs.weight_files import COMM, shipped
from recsmith.hardware import load_links
from recsmith.jobs.launch import launch
from recsmith.jobs.machine import free_cores
from recsmith.measuring.exchanges import Exchange
from recsmith.plans import Plan
from recsmith.sharding import Collective
from recsmith.verifying.steps import by_links, by_model, skewed_comm, waits, with_starts
from recsmith.verifying.verification import RankExchange

START_S = 120.0  # seconds, more than a job takes to start and to end
EXCHANGE_S = 30.0  # seconds, more than an exchange of one visit takes


def exchanges_of(plan: Plan) -> tuple[Exchange, Exchange]:
    """The forward and the backward exchange of a plan's ranks, with all fusion groups in one call each."""
    width = np.zeros(plan.cluster.world_size, dtype=np.int64)
    for shard in plan.shards():
        width[shard.rank] += shard.columns[1] - shard.columns[0]
    together = (0.0,) * len(width)
    forward, backward = (
        Exchange(
            number=0,
            forward=is_forward,
            batch_size=plan.workload.batch_size,
            width=tuple(width.tolist()),
            skew_s=together,
        )
        for is_forward in (True, False)
    )
    return forward, backward


def not_measured(plan: Plan, hardware: str) -> str:
    """Why the exchanges of a plan are not measured with this hardware; '' if they are."""
    ranks = plan.cluster.world_size
    unmeasured = next(
        (each for each in plan.placements if each.kind.forward != (Collective("all_to_all", "world"),)), None
    )
    if plan.cluster.replication is not None:
        return "the synchronisation of replicas is not measured"
    if ranks < 2:
        return "one rank exchanges nothing"
    if is_simulated(hardware):
        links = load_links(hardware).cluster(ranks)
        if (links.links, links.local_world_size) != (plan.cluster.links, plan.cluster.local_world_size):
            return f"the plan's cluster has other links than {hardware}, or other hosts"
    elif ranks > (devices := _devices(hardware)):
        return f"{ranks} ranks outnumber the {'cores' if hardware == 'cpu' else 'GPUs'} that may be used, {devices}"
    if unmeasured is not None:
        return f"{unmeasured.sharding_type} (table '{unmeasured.table}') does more than all-to-alls"
    if plan.workload.comm_bytes is not None:
        return f"comm_bytes is {list(plan.workload.comm_bytes)}, and fp32 is what is measured"
    narrow = next((kind for kind in plan.workload.comm_dtypes if kind not in (None, "fp32")), None)
    if narrow is not None:
        return f"comm_dtype is {narrow}, and fp32 is what is measured"
    return ""


def is_simulated(hardware: str) -> bool:
    """Whether the hardware's all-to-alls are simulated, so that each rank begins the forward one when it is ready."""
    return hardware.startswith("simulated:")


def _devices(hardware: str) -> int:
    if hardware.partition(":")[0] != "cuda":
        return free_cores()
    import torch

    return torch.cuda.device_count()


def measure_collectives(plans: Sequence[Plan], visits: int) -> list[Floats]:
    """Seconds of the exchanges of plans with the same number of ranks, P arrays (V, W, 2): medians of each visit.

    Raises:
        MissingExtra: PyTorch is missing.
        RecSmithError: a rank failed.
    """
    exchanges = [asdict(each) for plan in plans for each in exchanges_of(plan)]
    ranks = plans[0].cluster.world_size
    limit = START_S + EXCHANGE_S * visits * len(exchanges)
    arguments = {"exchanges": exchanges, "visits": visits}
    found = launch("recsmith.measuring.rank_worker:measure_exchanges", arguments, ranks=ranks, timeout_s=limit)
    seconds = np.array(found, dtype=np.float64).reshape(ranks, visits, len(plans), 2)
    return list(seconds.transpose(2, 1, 0, 3))


class SimulatedCollectives:
    """All-to-alls on a simulated GPU's links, and the predictions of the learned model of those links.

    The model is the one that ships for the GPU, for any noise of the links; most GPUs have none. hardware:
    simulated:<gpu>[?noise=0.03].
    """

    def __init__(self, hardware: str) -> None:
        self._links = load_links(hardware)
        name = COMM + hardware.partition("?")[0].replace(":", "-")
        self._model = by_model(load_comm_model(name)[0]) if name in shipped() else None

    def simulate(self, plan: Plan, kernels: Floats, seed: int) -> Floats:
        """Seconds (V, W, 2) of a plan's all-to-alls around its kernels (V, W, 2), in the form of `skewed_comm`."""
        forward, backward = exchanges_of(plan)
        return np.stack([
            skewed_comm(each, forward, backward, by_links(self._links, (seed, visit)))
            for visit, each in enumerate(kernels)
        ])  # fmt: skip

    def predict(self, plan: Plan, kernels: Floats) -> Floats | None:
        """The learned model's seconds (W, 2) around kernels (W, 2); None without a model."""
        return skewed_comm(kernels, *exchanges_of(plan), self._model) if self._model else None

    def by_rank(self, plan: Plan, kernels: Floats, comm: Floats) -> tuple[RankExchange, ...]:
        """Simulated and predicted seconds of each rank, medians over visits; () without a model.

        kernels, comm: (V, W, 2), comm as `simulate` returns it. The model predicts for the same starts.
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
