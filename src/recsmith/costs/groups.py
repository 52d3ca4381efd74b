"""Seconds of one fusion group on one device by a cost model, to compare with measured cases."""

from dataclasses import replace

import numpy as np

from recsmith._types import Floats
from recsmith.clusters import Cluster
from recsmith.costs.protocol import CostModel
from recsmith.problems import Space, build_problem
from recsmith.workloads import Workload

ROOM = 2**45  # bytes of device memory (32 TiB), more than any measured group needs


def one_device(cluster: Cluster) -> Cluster:
    """A single device of a cluster, with memory for anything."""
    return replace(cluster, local_world_size=1, hosts=1, hbm_bytes=ROOM, reserve_bytes=0)


def group_seconds(model: CostModel, workload: Workload, device: Cluster) -> Floats:
    """Seconds (2,), forward and backward, of all tables of a workload as one group on one device; about 10 ms."""
    problem = build_problem(workload, device, Space(types=("table_wise",), kernels=("fused",), widths="torchrec"))
    evaluator = model.compile(problem)
    modes = np.arange(len(problem.tables))
    terms = evaluator.terms(modes, problem.demand.dim[problem.modes.table])
    return evaluator.head(terms.sum(axis=0, keepdims=True))[0, :2]
