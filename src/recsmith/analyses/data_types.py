"""Compares data types of all tables: bytes, the fewest devices that hold the tables, and seconds of a step.

Each form is planned on the same cluster by the same search. The fewest devices are searched among parts of a host and
whole hosts like the cluster's, by trying to place all tables in few pieces, as planners do first. A plan was found for
this number; fewer devices may suffice. FBGEMM trains no tables in bf16, so bf16 is planned as fp16, which has equal
bytes. On CPUs there are two forms of bf16: weights in bf16 only, which are smaller but train to other values; and rows
in halves (`rows: split`), which take the memory of fp32 and are read as bf16.
"""

from bisect import bisect_left
from dataclasses import replace
from typing import Any, get_args

import numpy as np

from recsmith._types import noun
from recsmith.clusters import Cluster, load_cluster
from recsmith.costs import cost_model as find_cost_model
from recsmith.costs.protocol import parts_of, rule_of
from recsmith.errors import UsageError
from recsmith.files import Source, did_you_mean
from recsmith.planning import plan
from recsmith.planning.feasibility import has_plan
from recsmith.planning.simulate import price_plan
from recsmith.plans import PARTS, Plan
from recsmith.problems import problem_of
from recsmith.sharding.memory import STATE_BYTES
from recsmith.workloads import Workload, load_workload
from recsmith.workloads.data_types import DataType
from recsmith.workloads.optimizers import OPTIMIZERS

KEY = "data_type"
PLANNED_AS: dict[DataType, DataType] = {"fp32": "fp32", "fp16": "fp16", "bf16": "fp16"}
ALONE = "bf16 alone is planned as fp16, which has as many bytes: FBGEMM 1.8 trains no tables in bf16"
HALVES = "in halves (rows: split) trains in fp32; its step is that of fp32 with the lookups of bf16"


@noun
class DataTypeForm:
    """Tables in one data type, with their plan for the cluster.

    name: name of the form. plan: its plan for the cluster. weight_bytes, state_bytes: bytes of all tables, each counted
    once. devices: the fewest devices for which a plan was found. step_s: seconds of a step. note: a remark on the
    numbers.
    """

    name: str
    plan: Plan
    weight_bytes: int
    state_bytes: int
    devices: int
    step_s: float
    note: str = ""

    @property
    def fullest_bytes(self) -> int:
        """Bytes on the fullest device."""
        return max(device.hbm_bytes for device in self.plan.cost.per_device)


def parse_data_type(text: str) -> DataType:
    """The data type named by a change such as 'data_type=bf16'; UsageError if it names none."""
    key, _, value = text.partition("=")
    known = [kind for kind in get_args(DataType) if kind in PLANNED_AS]
    if key.strip() != KEY:
        raise UsageError(f"--what-if '{text[:60]}' changes nothing that plan knows ({KEY}); write {KEY}=bf16")
    if value.strip() not in known:
        raise UsageError(
            f"--what-if '{text[:60]}' has no data type{did_you_mean(value.strip(), known)}; one of {', '.join(known)}"
        )
    return value.strip()  # type: ignore[return-value]


def compare_data_types(
    workload: Workload | Source, cluster: Cluster | Source, *, data_type: DataType, **search: Any
) -> tuple[DataTypeForm, ...]:
    """The tables as given, in another data type and, for bf16 in place of fp32 on CPUs, in halves.

    search: further arguments of `plan`.

    Raises:
        UsageError, Infeasible, NoPlanFound: as `plan` does for either form.
    """
    given, where = load_workload(workload), load_cluster(cluster)
    planned = PLANNED_AS[data_type]
    changed = replace(given, tables=tuple(replace(table, data_type=planned) for table in given.tables))
    kinds = sorted({table.data_type for table in given.tables})
    forms = [_form(f"as given ({', '.join(kinds)})", given, where, search)]
    forms.append(_form(data_type if data_type != "bf16" else "bf16 alone", changed, where, search))
    if data_type != "bf16":
        return tuple(forms)
    forms[1] = replace(forms[1], note=ALONE)
    if where.device.kind == "cpu" and kinds == ["fp32"] and all(OPTIMIZERS[each].splits for each in given.optimizers):
        forms.append(_in_halves(forms[0], changed))
    return tuple(forms)


def _form(name: str, workload: Workload, cluster: Cluster, search: dict[str, Any]) -> DataTypeForm:
    found = plan(workload, cluster, **search).plan
    kept = [(table, OPTIMIZERS[workload.optimizer_of(table)]) for table in workload.tables]
    state = sum(
        table.num_embeddings * (each.element_states * table.embedding_dim + each.row_states) for table, each in kept
    )
    return DataTypeForm(
        name=name, plan=found, weight_bytes=workload.weight_bytes, state_bytes=STATE_BYTES * state,
        devices=_fewest_devices(found), step_s=found.cost.step_s,
    )  # fmt: skip


def _in_halves(given: DataTypeForm, narrow: Workload) -> DataTypeForm:
    """The plan as given, with the lookups of the narrow tables: the forward pass reads two bytes of a weight."""
    parts = parts_of(given.plan.cost)
    lookups = parts_of(price_plan(replace(given.plan, workload=narrow)))
    forward = PARTS.index("forward_compute_s")
    parts[:, forward] = np.minimum(parts[:, forward], lookups[:, forward])
    step_s = rule_of(given.plan.cost, given.plan.cost_model).step_seconds(parts) + given.plan.cost.sequences_s
    return replace(given, name="in halves", step_s=step_s, note=HALVES)


def _fewest_devices(found: Plan) -> int:
    """The fewest devices of the plan's kind for which a plan was found; at most the cluster's own number."""
    cluster, model = found.cluster, find_cost_model(found.cost_model)
    if isinstance(cluster.hbm_bytes, tuple) or cluster.replication is not None:
        return cluster.world_size  # devices differ in memory, or form sharding groups
    problem, local = problem_of(found), cluster.local_world_size
    sizes = [(count, 1) for count in range(1, local + 1)] + [(local, hosts) for hosts in range(2, cluster.hosts + 1)]
    first = bisect_left(
        sizes[:-1], True, key=lambda size: has_plan(problem, model, local_world_size=size[0], hosts=size[1])
    )
    return sizes[first][0] * sizes[first][1]
