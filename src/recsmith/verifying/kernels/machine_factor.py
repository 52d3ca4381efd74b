"""This machine's factor: what its kernels take for reference samples, over what a cost model predicts for them.

A cost model knows another machine than the one that measures, or only a device's figures; its kernels are compared with
measured ones once they are multiplied by this one factor.
"""

import warnings
from collections.abc import Sequence
from typing import get_args

import numpy as np

from recsmith._types import Floats, noun
from recsmith.clusters import Cluster
from recsmith.costs import CostModel
from recsmith.costs.pricing import group_seconds, one_device
from recsmith.hardware import Case, default_scale, scale_of
from recsmith.measuring.compute.cases import Cases
from recsmith.measuring.intervals import Interval, bootstrap_median
from recsmith.plans import Plan
from recsmith.workloads.data_types import DataType
from recsmith.workloads.optimizers import OPTIMIZERS

REFERENCES = 20  # samples: trade-off, more narrow the factor's interval and take longer; not tuned further
REFERENCE_SEED = 1  # the measurements that ship are of seed 0: no cost model was trained on these


@noun
class MachineFactor:
    """Measured seconds over predicted ones: the median of some samples, and how far the middle half of them spreads."""

    median: Interval
    quartiles: tuple[float, float]
    samples: int


def reference_cases(plans: Sequence[Plan], hardware: str) -> list[Case]:
    """The first 20 cases of a seed at the hardware's scale, of the plans' optimizers and data types.

    Their work is drawn evenly in its logarithm (measuring/compute/cases.py).
    """
    optimizers = {plan.workload.optimizer for plan in plans}
    data_types = {table.data_type for plan in plans for table in plan.workload.tables}
    cases = Cases(
        seed=REFERENCE_SEED,
        scale=scale_of(default_scale(hardware)),
        optimizers=tuple(each.name for each in OPTIMIZERS.values() if each.name in optimizers),
        data_types=tuple(word for word in get_args(DataType) if word in data_types),
    )
    return [cases.case(number) for number in range(REFERENCES)]


def factor_of(
    model: CostModel, cluster: Cluster, cases: Sequence[Case], seconds: Sequence[tuple[float, float]], seed: int
) -> MachineFactor:
    """The factor of cases that took so many seconds, forward and backward; fewer seconds than cases are the first."""
    device = one_device(cluster)
    ratios: list[float] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of references beyond a model's range; for plans the warning has been given
        for case, measured in zip(cases, seconds, strict=False):
            ratios.append(sum(measured) / float(group_seconds(model, case.workload, device).sum()))
    found: Floats = np.array(ratios)
    low, high = np.percentile(found, (25, 75)).tolist()
    return MachineFactor(median=bootstrap_median(found, seed), quartiles=(low, high), samples=len(found))
