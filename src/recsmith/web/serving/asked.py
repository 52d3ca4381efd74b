"""Finds what a request names: workloads, clusters and rules, by built-in names, ids of kept objects, and plans."""

from dataclasses import replace
from typing import Any

from recsmith.clusters import Cluster, catalogue, named_cluster
from recsmith.clusters.files import unknown_device
from recsmith.errors import UsageError
from recsmith.files import did_you_mean
from recsmith.plans import Plan
from recsmith.problems import Constraints, Space, constraints_from_raw
from recsmith.problems.plain_reserve import estimated_anew
from recsmith.web.serving.edits import ProblemChanges
from recsmith.web.serving.requests import ConstraintsBody
from recsmith.web.serving.sessions import Session
from recsmith.workloads import Workload, builtins, load_workload

LONGEST_NAME = 60  # characters of an unknown name that an error shows


def workload_of(name: str, session: Session) -> Workload:
    """The workload of a built-in name or an id; UsageError for any other name, Refused (404) for an unknown id."""
    if name in builtins():
        return load_workload(name)
    if name.startswith("workload-"):
        return session.workloads.get(name)
    raise UsageError(f"no workload is called '{name[:LONGEST_NAME]}'{did_you_mean(name, list(builtins()))}")


def cluster_of(name: str, session: Session) -> Cluster:
    """The cluster of a catalogue name or an id; errors as in workload_of."""
    if name.startswith("cluster-"):
        return session.clusters.get(name)
    named = named_cluster(name)
    if named is None:
        hint = unknown_device(name.lower()) if len(name) <= LONGEST_NAME else f"; known: {', '.join(catalogue())}"
        raise UsageError(f"no cluster is called '{name[:LONGEST_NAME]}'{hint}")
    return named


def changed(workload: Workload, cluster: Cluster, changes: ProblemChanges | None) -> tuple[Workload, Cluster]:
    """The workload and the cluster with the requested changes; UsageError if one breaks a rule."""
    if changes is None:
        return workload, cluster
    before, workload = workload, load_workload(workload, batch_size=changes.batch_size, optimizer=changes.optimizer)
    links = _given(changes, "intra_host_bandwidth", "inter_host_bandwidth")
    sizes = _given(changes, "hosts", "local_world_size")
    if sizes and isinstance(cluster.hbm_bytes, tuple) and changes.hbm_bytes is None:
        raise UsageError("the devices of this cluster differ in memory; give hbm_bytes with another number of devices")
    if sizes and cluster.replication is not None:
        raise UsageError("this cluster is one sharding group of a 2D job; its number of devices cannot be changed here")
    memory = _given(changes, "hbm_bytes", "reserve_bytes")
    made = replace(cluster, links=replace(cluster.links, **links), **sizes, **memory)
    return workload, estimated_anew(made, before, workload)


def _given(changes: ProblemChanges, *names: str) -> dict[str, Any]:
    found = {name: getattr(changes, name) for name in names}
    return {name: value for name, value in found.items() if value is not None}


def limits_of(rules: ConstraintsBody | None, space: Space | None) -> tuple[Space, Constraints]:
    """The space and constraints of a request, or the default ones if it has none."""
    if rules is None:
        return space or Space(), Constraints()
    return space or Space(), Constraints(
        rules=rules.rules, together=rules.together, apart=rules.apart, per_rank=rules.per_rank, memory=rules.memory,
        keep_exact=rules.keep_exact,
    )  # fmt: skip


def limits_of_plan(plan: Plan, rules: ConstraintsBody | None, space: Space | None) -> tuple[Space, Constraints]:
    """The space and constraints of a request, or those of the plan if it has none."""
    own_space, own = constraints_from_raw(plan.constraints, "plan")
    return space or own_space, own if rules is None else limits_of(rules, None)[1]


def rules_of(constraints: Constraints) -> ConstraintsBody:
    """Constraints in the form that the page keeps and sends."""
    return ConstraintsBody(
        rules=constraints.rules, together=constraints.together, apart=constraints.apart, per_rank=constraints.per_rank,
        memory=constraints.memory, keep_exact=constraints.keep_exact,
    )  # fmt: skip
