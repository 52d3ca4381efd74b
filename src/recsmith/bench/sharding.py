"""The sharding experiment of NeuroShard: every planner's plans of every task, measured side by side.

First all plans are made, then they are measured: what planning costs does not disturb what is measured. Plans of a task
take turns (measuring/steps.py): every visit measures each distinct load of a rank once, those of all planners one after
the other, so that a slow minute falls on all of them alike.

Kernels are measured, one rank after another on one device. Collectives are not, where as many devices as ranks are not
at hand: they are priced by cost model `analytic` for the task's cluster, by the same formula for every planner.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from recsmith._types import Floats, noun
from recsmith.bench.book import Book, Measured, Settings, open_book
from recsmith.bench.plans import Attempt, attempt, check_planner
from recsmith.bench.tasks import SPACE, Drawn, Task, draw_tasks, parse_rows
from recsmith.costs import cost_model, price
from recsmith.errors import UsageError
from recsmith.hardware import load_hardware
from recsmith.hardware.installed import require_fbgemm
from recsmith.measuring.loads import loads_of
from recsmith.measuring.run import origin
from recsmith.measuring.steps import measure_steps, open_for
from recsmith.plans import Bound, Plan, StepCost
from recsmith.problems import build_problem, constraints_to_raw, footprint_of
from recsmith.problems.space import Constraints

CPU_BATCH, GPU_BATCH = 4096, 65_536  # samples of all devices; the second is the paper's
COMM_MODEL = "analytic"


@noun
class Progress:
    """How far a run is. what: planning or measuring; done of total: attempts, or tasks."""

    what: str
    done: int
    total: int
    elapsed_s: float


@noun
class Outcome:
    """What is known at the end of a run. complete: whether nothing is left to do."""

    settings: Settings
    drawn: tuple[Drawn, ...]
    attempts: dict[tuple[str, str], Attempt]
    measured: dict[str, Measured]
    complete: bool


def global_batch_of(hardware: str) -> int:
    """Samples of all devices and a step."""
    return CPU_BATCH if hardware == "cpu" else GPU_BATCH


def bench_sharding(
    settings: Settings,
    path: Path,
    *,
    budget_s: float | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> Outcome:
    """Plan and measure what the folder does not hold yet; Ctrl-C and the budget end it early.

    Raises:
        UsageError: unknown words, hardware that cannot be measured, or a folder of other settings.
        MissingExtra: PyTorch or FBGEMM is missing.
    """
    device = device_of(settings.hardware)
    for word in settings.planners:
        check_planner(word, settings.cost_model)
    ends = None if budget_s is None else time.monotonic() + budget_s
    with open_book(path, settings) as book:
        drawn = tuple(_draw(settings, device))
        run = _Run(book, settings, _turns(drawn), ends, on_progress or _silent)
        try:
            complete = run.plan() and run.measure()
        except KeyboardInterrupt:
            complete = False
        return Outcome(
            settings=settings, drawn=drawn, attempts=book.attempts, measured=book.measured, complete=complete
        )


def device_of(hardware: str) -> str:
    """The device whose clusters tasks are placed on; an error where the hardware cannot be measured here."""
    if hardware == "cpu":
        require_fbgemm()
        return "cpu"
    kind, _, device = hardware.partition(":")
    if kind != "simulated" or not device:
        raise UsageError(f"bench sharding measures cpu or simulated:<gpu>, such as simulated:h100, not '{hardware}'")
    load_hardware(hardware)
    return device.partition("?")[0]


def _draw(settings: Settings, device: str) -> list[Drawn]:
    return [
        draw_tasks(row, settings.tasks, settings.seed, device, settings.global_batch)
        for row in parse_rows(settings.rows)
    ]


def _turns(drawn: Sequence[Drawn]) -> list[Task]:
    """The first task of every row, then the second ..., so that a run that is ended has seen all rows."""
    return [task for place in zip(*(row.tasks for row in drawn), strict=True) for task in place]


def _silent(_: Progress) -> None:
    """Nobody listens."""


class _Run:
    """The two phases of a run; each says whether it came to its end."""

    def __init__(
        self, book: Book, settings: Settings, tasks: list[Task], ends: float | None, tell: Callable[[Progress], None]
    ) -> None:
        self._book, self._settings, self._tasks, self._ends, self._tell = book, settings, tasks, ends, tell
        self._begun = time.monotonic()

    def plan(self) -> bool:
        """Every planner's attempt at every task."""
        wanted = [(task, word) for task in self._tasks for word in self._settings.planners]
        for done, (task, word) in enumerate(wanted):
            if (task.name, word) in self._book.attempts:
                continue
            if self._over:
                return False
            self._say("planning", done, len(wanted))
            self._book.note(task.name, attempt(word, task, self._settings.cost_model, self._settings.seed))
        return True

    def measure(self) -> bool:
        """The plans of every task."""
        for done, task in enumerate(self._tasks):
            if task.name in self._book.measured:
                continue
            if self._over:
                return False
            self._say("measuring", done, len(self._tasks))
            attempts = [self._book.attempts[task.name, word] for word in self._settings.planners]
            measured = measure_task(self._settings, task, attempts)
            if measured is None:
                return False
            self._book.add(measured)
        return True

    @property
    def _over(self) -> bool:
        return self._ends is not None and time.monotonic() >= self._ends

    def _say(self, what: str, done: int, total: int) -> None:
        self._tell(Progress(what=what, done=done, total=total, elapsed_s=time.monotonic() - self._begun))


def measure_task(settings: Settings, task: Task, attempts: Sequence[Attempt]) -> Measured | None:
    """What the plans of a task take; None where Ctrl-C came before all visits were made."""
    begun = time.monotonic()
    plans = _plans(task, [each for each in attempts if each.placements])
    loads = [loads_of(plan, settings.seed) for plan in plans.values()]
    hardware = open_for(settings.hardware, [load for ranks in loads for load in ranks])
    steps = measure_steps(hardware, loads, settings.visits) if loads else None
    if steps is not None and not steps.complete:
        return None
    where = origin(time.monotonic() - begun, hardware.name, hardware.device, hardware.versions)
    return Measured(
        task=task.name,
        kernels=dict(zip(plans, steps.kernels, strict=True)) if steps else {},
        comm={word: _comm(plan.cost) for word, plan in plans.items()},
        probe_s=tuple(steps.probe_s.tolist()) if steps else (),
        device=where["device"], versions=where["versions"], date=where["date"], elapsed_s=where["elapsed_s"],
    )  # fmt: skip


def _plans(task: Task, attempts: Sequence[Attempt]) -> dict[str, Plan]:
    """The attempts as plans, priced by COMM_MODEL; no bound is sought."""
    model = cost_model(COMM_MODEL)
    problem = build_problem(task.workload, task.cluster, SPACE)
    evaluator = model.compile(problem)
    bound = Bound(value_s=None, kind="not sought", space=SPACE.describe())
    return {
        each.planner: Plan(
            workload=task.workload, cluster=task.cluster, constraints=constraints_to_raw(SPACE, Constraints()),
            placements=each.placements, planner=each.planner, cost_model=model.name,
            cost=price(evaluator, footprint_of(problem, each.placements)), bound=bound, gap=None,
        )
        for each in attempts
    }  # fmt: skip


def _comm(cost: StepCost) -> Floats:
    """Seconds of each rank's collectives (W, 2), forward and backward."""
    return np.array([[device.forward_comm_s, device.backward_comm_s] for device in cost.per_device])
