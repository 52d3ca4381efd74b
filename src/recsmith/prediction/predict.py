"""Predicts the time of a step: a graph is changed as asked, walked, and accounted for."""

from dataclasses import dataclass

from recsmith.prediction.accounts import RankAccount, account
from recsmith.prediction.critical_path import critical_path, terms_of
from recsmith.prediction.graph import Collective, Graph
from recsmith.prediction.walk import Walk, walk
from recsmith.prediction.what_if import Latency, WhatIf, apply_what_ifs


@dataclass(frozen=True)
class Prediction:
    """A predicted step. terms: what the critical path is made of, the largest first; they add up to step_s.

    measured_s: of the steps that the graph was captured from, before any what-if. unchanged_s: predicted without the
    what-ifs; None where there are none. notes: what is worth knowing.
    """

    walk: Walk
    ranks: list[RankAccount]
    terms: dict[str, float]
    measured_s: float | None
    notes: tuple[str, ...] = ()
    unchanged_s: float | None = None

    @property
    def step_s(self) -> float:
        """Seconds of the step."""
        return self.walk.step_s

    @property
    def kernels_s(self) -> float:
        """What a sum of kernels says instead: all kernels and collectives of the rank that has most, one by one."""
        sums = [0.0] * len(self.walk.graph.ranks)
        for rank, event in self.walk.graph.kernels():
            sums[rank] += event.work_s or event.seconds
        return max(sums, default=0.0) + sum(each.seconds for each in self.walk.graph.collectives)


def no_latency(_: Collective) -> float:
    """Where the latency of collectives is not known, all of their time belongs to the link."""
    return 0.0


def predict_graph(
    graph: Graph, what_ifs: tuple[WhatIf, ...] = (), notes: tuple[str, ...] = (), latency: Latency = no_latency
) -> Prediction:
    """The step of a graph after some changes; UsageError where its ranks never meet."""
    walked = walk(apply_what_ifs(graph, what_ifs, latency))
    unchanged = walk(graph).step_s if what_ifs else None
    return Prediction(walk=walked, ranks=account(walked), terms=terms_of(critical_path(walked)),
                      measured_s=graph.measured_s, notes=notes, unchanged_s=unchanged)  # fmt: skip
