"""What a client asks for: the bodies of requests, and the workloads, clusters and rules that they name.

OpenAPI describes the bodies field by field. Bytes and seconds throughout.
"""

from dataclasses import replace
from typing import Any, Literal

from recsmith._types import noun
from recsmith.clusters import Cluster, catalogue, named_cluster
from recsmith.clusters.files import unknown_device
from recsmith.costs import DEFAULT_COST_MODEL
from recsmith.errors import UsageError, check_rules
from recsmith.files import did_you_mean
from recsmith.plans import Plan
from recsmith.problems import Apart, Constraints, PerRank, Space, TableRule, Together, constraints_from_raw
from recsmith.web.serving.sessions import Session
from recsmith.workloads import Workload, builtins, load_workload

MOST_MOVES = 10_000
LARGEST_SEED = 2**53  # numbers of JavaScript are exact below it
LONGEST_NAME = 60  # characters of an unknown name that an error shows


@noun
class SampleRequest:
    """A sample of tables like those of a production model."""

    tables: int
    seed: int = 0
    batch_size: int | None = None
    optimizer: str | None = None


@noun
class ProblemChanges:
    """What differs from a workload and a cluster; what is left out stays as it is.

    batch_size: samples per device and step. hbm_bytes: memory of each device. reserve_bytes: of it, kept free.
    hosts, local_world_size: of the cluster. Bandwidths: bytes per second per device, one direction.
    """

    batch_size: int | None = None
    optimizer: str | None = None
    hbm_bytes: int | None = None
    reserve_bytes: int | None = None
    hosts: int | None = None
    local_world_size: int | None = None
    intra_host_bandwidth: float | None = None
    inter_host_bandwidth: float | None = None


@noun
class ConstraintsBody:
    """What a plan must keep, as in a constraints file; memory and keep_exact as in `recsmith plan`."""

    rules: tuple[TableRule, ...] = ()
    together: tuple[Together, ...] = ()
    apart: tuple[Apart, ...] = ()
    per_rank: tuple[PerRank, ...] = ()
    memory: Literal["real", "torchrec"] = "real"
    keep_exact: bool = False


@noun
class SearchRequest:
    """A search to start: a workload on a cluster, or the problem of a plan that is kept here, and how to search.

    workload: a built-in name, or the id of one that is kept here. cluster: `<device>:<per host>[x<hosts>]`, or an id.
    plan: instead of both, the id of a plan whose problem is solved anew. start: whether the search begins with that
    plan, and so never ends with a worse one. constraints: those of the plan where they are left out. time_limit_s: None
    for a search that goes on until it is done. stay: whether the
    search goes on where its client has gone; otherwise it ends when nobody has asked for it for a while.
    """

    workload: str | None = None
    cluster: str | None = None
    plan: str | None = None
    start: bool = False
    name: str = ""
    changes: ProblemChanges | None = None
    constraints: ConstraintsBody | None = None
    space: Space | None = None
    planner: str = "auto"
    cost_model: str = DEFAULT_COST_MODEL
    seed: int = 0
    iterations: int | None = None
    time_limit_s: float | None = 30.0
    stay: bool = False

    def __post_init__(self) -> None:
        """Check that one problem is named."""
        named = (self.plan is not None, self.workload is not None and self.cluster is not None)
        check_rules(
            None if any(named) and not (self.plan and (self.workload or self.cluster))
            else "a search needs a workload and a cluster, or a plan alone; name one of the two",
            "start is the plan that a search begins with; name the plan" if self.start and not self.plan else None,
            None if 0 <= self.seed < LARGEST_SEED else f"seed is {self.seed}; seeds are whole numbers from 0 to 2^53",
        )  # fmt: skip


@noun
class PieceMove:
    """A column piece of a table goes to another device, or with its whole host to the host of that device.

    piece: 0 for the first, in order of the plan's widths.
    """

    table: str
    piece: int = 0
    rank: int


@noun
class PlanEdit:
    """Moves of pieces of a plan, one after the other, and changes of its problem."""

    moves: tuple[PieceMove, ...] = ()
    changes: ProblemChanges | None = None
    name: str = ""

    def __post_init__(self) -> None:
        many = f"an edit of {len(self.moves):,} moves is too long; send at most {MOST_MOVES:,}"
        check_rules(many if len(self.moves) > MOST_MOVES else None)


def workload_of(name: str, session: Session) -> Workload:
    """The workload of a built-in name or of an id; UsageError for another name, Refused (404) for an unknown id."""
    if name in builtins():
        return load_workload(name)
    if name.startswith("workload-"):
        return session.workloads.get(name)
    raise UsageError(f"no workload is called '{name[:LONGEST_NAME]}'{did_you_mean(name, list(builtins()))}")


def cluster_of(name: str, session: Session) -> Cluster:
    """The cluster of a catalogue's name or of an id; errors as workload_of."""
    if name.startswith("cluster-"):
        return session.clusters.get(name)
    named = named_cluster(name)
    if named is None:
        hint = unknown_device(name.lower()) if len(name) <= LONGEST_NAME else f"; known: {', '.join(catalogue())}"
        raise UsageError(f"no cluster is called '{name[:LONGEST_NAME]}'{hint}")
    return named


def changed(workload: Workload, cluster: Cluster, changes: ProblemChanges | None) -> tuple[Workload, Cluster]:
    """The two with the changes that are asked for; UsageError where one breaks a rule."""
    if changes is None:
        return workload, cluster
    workload = load_workload(workload, batch_size=changes.batch_size, optimizer=changes.optimizer)
    links = _given(changes, "intra_host_bandwidth", "inter_host_bandwidth")
    sizes = _given(changes, "hosts", "local_world_size")
    if sizes and isinstance(cluster.hbm_bytes, tuple) and changes.hbm_bytes is None:
        raise UsageError("the devices of this cluster differ in memory; give hbm_bytes with another number of devices")
    if sizes and cluster.replication is not None:
        raise UsageError("this cluster is one sharding group of a 2D job; its number of devices cannot be changed here")
    memory = _given(changes, "hbm_bytes", "reserve_bytes")
    return workload, replace(cluster, links=replace(cluster.links, **links), **sizes, **memory)


def _given(changes: ProblemChanges, *names: str) -> dict[str, Any]:
    found = {name: getattr(changes, name) for name in names}
    return {name: value for name, value in found.items() if value is not None}


def limits_of(rules: ConstraintsBody | None, space: Space | None) -> tuple[Space, Constraints]:
    """The space and the constraints that are asked for; the default ones where nothing is said."""
    if rules is None:
        return space or Space(), Constraints()
    return space or Space(), Constraints(
        rules=rules.rules, together=rules.together, apart=rules.apart, per_rank=rules.per_rank, memory=rules.memory,
        keep_exact=rules.keep_exact,
    )  # fmt: skip


def limits_of_plan(plan: Plan, rules: ConstraintsBody | None, space: Space | None) -> tuple[Space, Constraints]:
    """The space and the constraints of a plan, where nothing else is said."""
    own_space, own = constraints_from_raw(plan.constraints, "plan")
    return space or own_space, own if rules is None else limits_of(rules, None)[1]


def rules_of(constraints: Constraints) -> ConstraintsBody:
    """Constraints as the page keeps and sends them."""
    return ConstraintsBody(
        rules=constraints.rules, together=constraints.together, apart=constraints.apart, per_rank=constraints.per_rank,
        memory=constraints.memory, keep_exact=constraints.keep_exact,
    )  # fmt: skip
