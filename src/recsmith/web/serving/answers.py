"""The bodies of answers, as OpenAPI describes them field by field, in bytes and seconds throughout."""

from typing import Any, Literal

from recsmith._types import record
from recsmith.analyses.scaling import Point
from recsmith.plans import Placement, StepCost
from recsmith.problems import Space
from recsmith.reports.plans import Slowest
from recsmith.training.results.arms import ArmRow
from recsmith.training.results.watched import RunAlarm
from recsmith.web.serving.edits import HandDraft, ProblemChanges
from recsmith.web.serving.requests import ConstraintsBody

Ending = Literal["done", "failed", "cancelled"]
EventKind = Literal["queued", "started", "bound", "improved", "done", "failed", "cancelled"]


@record
class Refusal:
    """Why a request was refused, in one sentence."""

    error: str


@record
class NamedChoice:
    """A planner or cost model that can be requested: what it does, and what it needs besides RecSmith."""

    name: str
    about: str
    needs: str


@record
class WorkloadSummary:
    """A workload that can be planned: a built-in one, or one kept here. id: how a search request names it.

    data_types: data types of its tables, the most frequent first. numbered: tables whose names occurred twice and now
    have numbers. assumed: fields that its file did not state, and that may be changed.
    """

    id: str
    name: str
    tables: int
    weight_bytes: int
    batch_size: int
    optimizer: str
    data_types: tuple[str, ...]
    numbered: int
    assumed: tuple[str, ...]


@record
class ClusterSummary:
    """A cluster that can be planned for: a device of the catalogue, or a cluster kept here. id: its name in requests.

    For the catalogue, the id is the device alone; `<id>:<per host>x<hosts>` names more devices.
    """

    id: str
    name: str
    device: str
    hosts: int
    local_world_size: int
    hbm_bytes: int
    reserve_bytes: int
    intra_host_bandwidth: float
    inter_host_bandwidth: float


@record
class LimitsOfServer:
    """The limits on what a client may request."""

    upload_bytes: int
    most_tables: int
    most_devices: int
    longest_search_s: float
    kept_plans: int


@record
class Choices:
    """All choices of the page. folder: where plans are kept; null if they are kept in memory.

    read_only: whether the address that was opened allows no changes.
    """

    version: str
    folder: str | None
    workloads: tuple[WorkloadSummary, ...]
    clusters: tuple[ClusterSummary, ...]
    planners: tuple[NamedChoice, ...]
    cost_models: tuple[NamedChoice, ...]
    sharding_types: tuple[str, ...]
    compute_kernels: tuple[str, ...]
    data_types: tuple[str, ...]
    optimizers: tuple[str, ...]
    limits: LimitsOfServer
    read_only: bool = False


@record
class PlanSummary:
    """A plan that is kept here. origin: where it comes from, in words. gap: None if nothing bounds it.

    parent: id of the plan that it was made from. made: seconds since 1970. unwritten: why it is not yet written to its
    folder; empty if it is.
    """

    id: str
    name: str
    note: str
    origin: str
    parent: str | None
    unwritten: str
    made: float
    workload: str
    cluster: str
    tables: int
    devices: int
    batch_size: int
    planner: str
    cost_model: str
    total_s: float
    bound_s: float | None
    gap: float | None
    mean_s: float
    largest_hbm_bytes: int
    hbm_capacity_bytes: int
    overfull: tuple[int, ...]
    digest: str
    elapsed_s: float | None
    iterations: int | None
    truncated: bool
    notes: tuple[str, ...]


@record
class StreamSummary:
    """Ways to train on a stream, as `recsmith bench online` compared them. chosen: the arm that pays."""

    id: str
    name: str
    arms: int
    seeds: int
    chosen: str


@record
class ArmCurve:
    """An arm's NE in each period, scored by the model trained before it: (period, mean over seeds)."""

    name: str
    points: tuple[tuple[float, float], ...]


@record
class StreamView:
    """A stream in detail: its arms in figures and curves, and why one of them pays."""

    summary: StreamSummary
    because: str
    rows: tuple[ArmRow, ...]
    curves: tuple[ArmCurve, ...]


@record
class SweepSummary:
    """A sweep over numbers of devices, as `recsmith sweep -o FILE.json` wrote it. said: its first knee in words."""

    id: str
    name: str
    points: int
    said: str


@record
class SweepView:
    """A sweep in detail: its points and, in words, its knees and the fewest devices for a step."""

    summary: SweepSummary
    planner: str
    cost_model: str
    space: str
    fixed: str
    left: int
    knees: tuple[str, ...]
    fewest: tuple[str, ...]
    points: tuple[Point, ...]


@record
class RunSummary:
    """A training run whose folder is shown. step: the newest. written: time of the log's last change, in Unix time."""

    id: str
    name: str
    folder: str
    step: int
    ended: bool
    written: float


@record
class RunPlan:
    """The plan that a run trains under, and the predicted step of its embeddings. bound_s: null without a bound."""

    digest: str
    cluster: str
    tables: int
    devices: int
    batch_size: int
    planner: str
    cost_model: str
    step_s: float
    bound_s: float | None
    gap: float | None
    cost: StepCost


@record
class MeasuredStep:
    """Means over the newest log lines of training: seconds of a whole step with dense layers, and of its parts."""

    lines: int
    step_s: float
    samples_per_s: float | None
    data_s: float | None
    forward_s: float | None
    backward_s: float | None


@record
class RunCurve:
    """Values in a log by step, such as `train logloss`; for long runs only one of several lines."""

    name: str
    points: tuple[tuple[int, float], ...]


@record
class RunView:
    """A training run in detail, while it trains. trouble: why its plan is not shown. damaged: unreadable log lines.

    predicted_s: predicted seconds of a whole step, as the job logged them at its start; null on GPUs.

    more: whether the log has more lines than were read so far, which the next request reads.
    """

    summary: RunSummary
    plan: RunPlan | None
    trouble: str
    predicted_s: float | None
    measured: MeasuredStep | None
    curves: tuple[RunCurve, ...]
    alarms: tuple[RunAlarm, ...]
    damaged: int
    more: bool


@record
class RunningSummary:
    """The plan that a job runs today, as TorchRec writes it: it has no cost before its tables and devices are named.

    devices: the least number of ranks that it can have.
    """

    id: str
    name: str
    tables: int
    devices: int


@record
class Opened:
    """What a file held, which is now kept here; constraints are returned instead, because the page keeps them.

    notes: what to know about how it was read, in sentences. A log holds a running plan in addition to its workload.
    """

    kind: Literal["workload", "cluster", "plan", "constraints", "stream", "sweep", "running"]
    name: str
    notes: tuple[str, ...] = ()
    workload: WorkloadSummary | None = None
    cluster: ClusterSummary | None = None
    plan: PlanSummary | None = None
    constraints: ConstraintsBody | None = None
    stream: StreamSummary | None = None
    sweep: SweepSummary | None = None
    running: RunningSummary | None = None


@record
class DeletedPlan:
    """A plan whose deletion can be undone."""

    id: str
    name: str


@record
class UnreadFile:
    """A file in the folder that looks like a plan and cannot be read, and why."""

    file: str
    why: str


@record
class Shelves:
    """Everything kept here: plans of the folder (without one, of this client), and what this client opened."""

    workloads: tuple[WorkloadSummary, ...]
    clusters: tuple[ClusterSummary, ...]
    plans: tuple[PlanSummary, ...]
    streams: tuple[StreamSummary, ...]
    sweeps: tuple[SweepSummary, ...]
    runs: tuple[RunSummary, ...]
    deleted: tuple[DeletedPlan, ...]
    unread: tuple[UnreadFile, ...]


@record
class PlanView:
    """A plan in detail: its summary, cluster and constraints, and its placements with rows and columns.

    draft: changes by hand that are not kept as a plan yet. question: the request of its search, if it has one.
    notes: further remarks, in the sentences of terminal and report. typically: the range of the step time by measured
    errors, in words. valid_for: the space of the bound in words.
    devices_per_host: devices of a host, if the cluster's device is in the catalogue.
    """

    summary: PlanSummary
    notes: tuple[str, ...]
    typically: str
    slowest: Slowest
    valid_for: str
    devices_per_host: int | None
    cluster: ClusterSummary
    constraints: dict[str, Any]
    draft: HandDraft
    question: dict[str, Any] | None
    data: dict[str, Any]


@record
class PricedEdit:
    """What a changed plan costs: cost and memory of every device. overfull: ranks that need more than they have.

    bound_s: None if nothing bounds it. broken: rules that the plan breaks, in sentences. placements: of moved tables.
    """

    cost: StepCost
    bound_s: float | None
    gap: float | None
    slowest: Slowest
    overfull: tuple[int, ...]
    broken: tuple[str, ...]
    placements: tuple[Placement, ...]


@record
class TableSeconds:
    """For each table name, by how many seconds the device that spends most on the table would be faster without it."""

    seconds: dict[str, float]


@record
class TableAlone:
    """What a table costs the step of a plan: the step without it, and its best other placement if all others stay.

    other, other_s: that placement in words and its step; null if no other placement fits.
    """

    table: str
    step_s: float
    without_s: float
    other: str | None
    other_s: float | None


@record
class SearchState:
    """A search. plan: the id of its plan, once there is one. error: why there is none."""

    id: str
    state: EventKind
    name: str
    plan: str | None
    error: str | None


@record
class SearchStates:
    """The searches of a client, the oldest first."""

    searches: tuple[SearchState, ...]


@record
class Fix:
    """A change of an infeasible problem that may help: in words, and the fields to change in the search request."""

    text: str
    changes: ProblemChanges | None = None
    space: Space | None = None


@record
class SearchEvent:
    """One event of a search: `id`, `event` and `data` of a server-sent event; `data` is this object.

    elapsed_s: since the search started. total_s: of the best plan so far. bound_s: no plan costs less. fixes: changes
    that may help if no plan exists.
    """

    seq: int
    kind: EventKind
    elapsed_s: float = 0.0
    total_s: float | None = None
    bound_s: float | None = None
    waiting: int | None = None
    error: str | None = None
    plan: PlanSummary | None = None
    fixes: tuple[Fix, ...] = ()


@record
class PlacedOtherwise:
    """A table that two plans place differently, with both placements in words."""

    table: str
    before: str | None
    after: str | None
    moved_bytes: int


@record
class SideBySide:
    """Plans side by side; the others are compared with the first one.

    settings: settings in which their requests differ, by name: a text for each plan.
    """

    plans: tuple[PlanSummary, ...]
    settings: dict[str, tuple[str, ...]]
    differences: tuple["PlanDifference", ...]


@record
class PlanDifference:
    """What changed from the first plan to another: tables, bytes to move, and how their problems differ.

    changes: the first of the `changed` tables, at most 500.
    """

    plan: str
    changed: int
    unchanged: int
    moved_bytes: int
    changes: tuple[PlacedOtherwise, ...]
    other_problem: tuple[str, ...]
