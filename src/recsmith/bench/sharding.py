"""The sharding experiment of NeuroShard: every planner's plans of every task, measured under equal conditions.

First all plans are made, then they are measured (visits.py), so that planning does not disturb the measurements. All
tasks are visited before any is visited again, so that a slow minute affects one visit of a task and not all.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from recsmith._types import noun
from recsmith.adapters.installed import require_fbgemm
from recsmith.bench.journal import BenchSettings, MeasuredVisit, RunStore, open_run_store
from recsmith.bench.plans import Attempt, attempt, bound_of, check_planners
from recsmith.bench.tasks import draw_family_tasks
from recsmith.bench.visits import PlacedTask, measure_visit, place_task
from recsmith.clusters import load_cluster
from recsmith.errors import UsageError
from recsmith.hardware import load_hardware
from recsmith.learning.policies.tasks import PlacementTask, PlacementTasks
from recsmith.verifying.visits import open_hardware

KINDS = "cpu, cuda:<gpu> or simulated:<gpu>[?noise=0.03]"
CPU_BATCH = 4096  # samples of all devices in a step if a CPU measures, which is slower; not tuned further
BOUNDED = 10  # tasks of a row with a bound, in a run of learned planners: each bound takes a second or two
GPU_BATCH = 65_536  # samples of all devices in a step: the paper's


@noun
class BenchProgress:
    """Progress of a run. what: planning, bounding or measuring; done of total: attempts, tasks, or visits."""

    what: str
    done: int
    total: int
    elapsed_s: float


@noun
class BenchResults:
    """The results at the end of a run. bounds: seconds by task. complete: whether nothing is left to do."""

    settings: BenchSettings
    drawn: tuple[PlacementTasks, ...]
    attempts: dict[tuple[str, str], Attempt]
    measured: dict[tuple[str, int], MeasuredVisit]
    bounds: dict[str, float]
    complete: bool


def global_batch_of(hardware: str) -> int:
    """Samples of all devices in a step, on this hardware."""
    return CPU_BATCH if hardware == "cpu" else GPU_BATCH


def bench_sharding(
    settings: BenchSettings,
    path: Path,
    *,
    budget_s: float | None = None,
    plan_only: bool = False,
    on_progress: Callable[[BenchProgress], None] | None = None,
) -> BenchResults:
    """Plan and measure what the folder does not hold yet; Ctrl-C and the budget end the run early.

    plan_only: measure nothing; the hardware need not be present.

    Raises:
        UsageError: a name is unknown, the hardware cannot be measured, or the folder has other settings.
        MissingExtra: PyTorch or FBGEMM is missing.
    """
    device = device_of(settings.hardware)
    drawn = tuple(
        draw_family_tasks(settings.family, row, settings.tasks, settings.seed, device, settings.global_batch)
        for row in settings.rows
    )
    check_planners(settings.planners, settings.cost_model, drawn[0].tasks[0])
    ends = None if budget_s is None else time.monotonic() + budget_s
    with open_run_store(path, settings) as store:
        run = _BenchRun(store, settings, _by_turns(drawn), ends, on_progress or (lambda _: None))
        try:
            complete = run.plan() and run.bound() and run.measure(plan_only)
        except KeyboardInterrupt:
            complete = False
        return BenchResults(
            settings=settings, drawn=drawn, attempts=store.attempts, measured=store.measured, bounds=store.bounds,
            complete=complete,
        )  # fmt: skip


def device_of(hardware: str) -> str:
    """The device for whose clusters tasks are planned; UsageError for unknown hardware. A GPU need not be present."""
    if hardware == "cpu":
        require_fbgemm()
        return "cpu"
    kind, _, device = hardware.partition(":")
    if kind not in ("cuda", "simulated") or not device:
        raise UsageError(f"bench sharding measures {KINDS}, such as cuda:h200 or simulated:h100, not '{hardware}'")
    if kind == "cuda":
        return load_cluster(device).device.name
    load_hardware(hardware)
    return device.partition("?")[0]


def _by_turns(drawn: Sequence[PlacementTasks]) -> list[PlacementTask]:
    """The first task of every row, then the second ..., so that an interrupted run has covered all rows."""
    return [task for place in zip(*(row.tasks for row in drawn), strict=True) for task in place]


class _BenchRun:
    """The phases of a run; each returns whether it was completed."""

    def __init__(
        self,
        store: RunStore,
        settings: BenchSettings,
        tasks: list[PlacementTask],
        ends: float | None,
        on_progress: Callable[[BenchProgress], None],
    ) -> None:
        self._store, self._settings, self._tasks, self._ends = store, settings, tasks, ends
        self._on_progress, self._begun = on_progress, time.monotonic()

    def plan(self) -> bool:
        """Make every planner's attempt at every task."""
        wanted = [(task, planner) for task in self._tasks for planner in self._settings.planners]
        for done, (task, planner) in enumerate(wanted):
            if (task.name, planner) in self._store.attempts:
                continue
            if self._over:
                return False
            self._report("planning", done, len(wanted))
            self._store.add_attempt(task.name, attempt(planner, task, self._settings.cost_model, self._settings.seed))
        return True

    def bound(self) -> bool:
        """Compute a bound for the first tasks of every row, in a run of learned planners."""
        wanted = self._tasks[: BOUNDED * len(self._settings.rows)] if self._settings.family == "learned" else []
        for done, task in enumerate(wanted):
            if task.name in self._store.bounds:
                continue
            if self._over:
                return False
            self._report("bounding", done, len(wanted))
            self._store.add_bound(task.name, bound_of(task, self._settings.cost_model))
        return True

    def measure(self, plan_only: bool) -> bool:
        """Measure every visit of the plans of every task; with plan_only, only say whether none is left."""
        wanted = [(task, visit) for visit in range(self._settings.visits) for task in self._tasks]
        left = [(task, visit) for task, visit in wanted if (task.name, visit) not in self._store.measured]
        if not left or self._over or plan_only:
            return not left
        placed = {task.name: self._placed(task) for task in self._tasks}
        hardware = open_hardware(self._settings.hardware, [load for task in placed.values() for load in task.all_loads])
        for done, (task, visit) in enumerate(left, start=len(wanted) - len(left)):
            if self._over:
                return False
            self._report("measuring", done, len(wanted))
            self._store.add_visit(measure_visit(hardware, placed[task.name], visit))
        return True

    def _placed(self, task: PlacementTask) -> PlacedTask:
        attempts = [self._store.attempts[task.name, planner] for planner in self._settings.planners]
        return place_task(task, [each for each in attempts if each.placements], self._settings.seed)

    @property
    def _over(self) -> bool:
        return self._ends is not None and time.monotonic() >= self._ends

    def _report(self, what: str, done: int, total: int) -> None:
        self._on_progress(BenchProgress(what=what, done=done, total=total, elapsed_s=time.monotonic() - self._begun))
