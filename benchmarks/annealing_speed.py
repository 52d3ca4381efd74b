"""Compiled annealing beside NumPy's: the same problem, the same first plans, the same CPU seconds.

    python benchmarks/annealing_speed.py [WORKLOAD CLUSTER]    # dlrm-v2 h100:8 by default; two minutes of CPU time
    python benchmarks/annealing_speed.py 100 h100:8x2          # as many sampled tables, seed 0

Both begin with the drafts of planner `auto`, which are not counted; what each makes of them before it changes anything
is. NumPy's annealing cools many plans together, the compiled one halves them successively, both in turns that each take
twice as many steps, as in `auto`. The clock is the CPU time of the process, all threads together. The table holds the
best step found by then, predicted by cost model `analytic`, in the median of three seeds; nothing ran on a GPU.
"""

import statistics
import sys
import time

import numpy as np

from recsmith.bounds import LowerBound, lower_bound
from recsmith.bounds.relaxation import shared_relaxation
from recsmith.clusters import load_cluster
from recsmith.costs import Evaluator, cost_model
from recsmith.planners.annealing import successive_halving as halving
from recsmith.planners.annealing.kernel import Cooling
from recsmith.planners.annealing.population import AnnealingOptions
from recsmith.planners.annealing.population_annealing import Annealing
from recsmith.planners.annealing.starts import starts_of
from recsmith.planners.auto.annealing_turns import LEAST_STEPS, MOST_STEPS, STEPS
from recsmith.planners.auto.drafts import Drafts
from recsmith.planners.auto.improvement import StoppingRule
from recsmith.planners.protocol import Search
from recsmith.planners.search.device_state import DeviceState
from recsmith.problems import build_problem
from recsmith.workloads import load_workload
from recsmith.workloads.sample import sample_workload

AFTER_S = (0.1, 0.3, 1.0, 3.0, 10.0)  # CPU seconds after which the best step is noted
SEEDS = (0, 1, 2)
FEW = 10  # steps of NumPy's annealing, or thousands of the compiled one, between two looks at the clock


class Race:
    """The best step after each of AFTER_S, and how many changes of one plan have been tried."""

    def __init__(self, first_s: float) -> None:
        self.best_s, self.changes, self.marks = first_s, 0, list[float]()
        self.begun = time.process_time()

    @property
    def goes_on(self) -> bool:
        """Whether there are marks to come."""
        return len(self.marks) < len(AFTER_S)

    def note(self, best_s: float, changes: int) -> None:
        """The best step of an annealing that has tried so many changes more; it counts for the marks to come."""
        gone = time.process_time() - self.begun
        while self.goes_on and gone >= AFTER_S[len(self.marks)]:
            self.marks.append(self.best_s)
        self.best_s, self.changes = min(self.best_s, best_s), self.changes + changes

    @property
    def rate(self) -> float:
        """Changes a CPU second."""
        return self.changes / (time.process_time() - self.begun)


def main() -> None:
    """Both kinds of annealing on one problem, as a table."""
    workload, cluster = sys.argv[1:3] or ("dlrm-v2", "h100:8")
    tables = sample_workload(int(workload), 0) if workload.isdigit() else load_workload(workload)
    evaluator = cost_model("analytic").compile(build_problem(tables, load_cluster(cluster)))
    bound = lower_bound(evaluator)
    print(f"{workload} on {cluster}, proven bound {(bound.bound.value_s or 0) * 1e3:.4f} ms\n")
    print(f"| annealing | changes a second | drafts | {' | '.join(f'{each:g} s' for each in AFTER_S)} |")
    print(f"|{'---|' * (len(AFTER_S) + 3)}")
    for name, run in (("NumPy", numpy_race), ("compiled", compiled_race)):
        rows, rates, first_s = list[list[float]](), list[float](), 0.0
        for seed in SEEDS:
            drafts = _drafts(evaluator, bound, seed)
            first_s = drafts.starts[0][0]
            race = run(drafts)
            rows.append(race.marks)
            rates.append(race.rate)
        cells = " | ".join(f"{statistics.median(each) * 1e3:.4f} ms" for each in zip(*rows, strict=True))
        print(f"| {name} | {statistics.median(rates):,.0f} | {first_s * 1e3:.4f} ms | {cells} |", flush=True)


def _drafts(evaluator: Evaluator, bound: LowerBound, seed: int) -> Drafts:
    search, devices = Search(evaluator, seed=seed), DeviceState(evaluator)
    size = len(evaluator.problem.tables) * len(devices.free)
    stopping = StoppingRule(search, bound.bound.value_s or 0.0, size)
    drafts = Drafts(search, devices, shared_relaxation(evaluator, bound.linear), stopping, [])
    drafts.work()
    return drafts


def numpy_race(drafts: Drafts) -> Race:
    """Turns of NumPy's annealing, each from the best drafts and from what the turns before found."""
    race, turn = Race(drafts.starts[0][0]), 0
    options = AnnealingOptions(drafts.devices, drafts.relaxation)
    least = min(MOST_STEPS, LEAST_STEPS + STEPS * len(drafts.problem.tables))
    while race.goes_on:
        starts = [draft for _, _, draft in drafts.starts if options.usable and options.reaches(draft)]
        if not starts:
            sys.exit("NumPy's annealing does not take part in this problem: it reaches none of the drafts")
        annealing, steps = Annealing(drafts.devices, options, starts, drafts.seed + turn), least * 2**turn
        for first in range(0, steps, FEW):
            annealing.cool(first, min(first + FEW, steps), steps)
            race.note(annealing.best_s, FEW * len(annealing.plans))
            if not race.goes_on:
                break
        drafts.keep(annealing.assignment())
        turn += 1
    return race


def compiled_race(drafts: Drafts) -> Race:
    """Turns of the compiled annealing."""
    race = Race(drafts.starts[0][0])

    class Watched(Cooling):
        """A cooling that tells the race how far it is."""

        def go_on(self, first: int, last: int, steps: int, heat: tuple[float, float]) -> None:
            for begin in range(first, last, FEW * 1000):
                end = min(begin + FEW * 1000, last)
                super().go_on(begin, end, steps, heat)
                race.note(self.best_s if np.isfinite(self.best_s) else race.best_s, end - begin)

    halving.Cooling = Watched
    begun, known = [(each[0], each[2]) for each in drafts.starts], lower_bound(drafts.evaluator)
    starts = starts_of(drafts.devices, drafts.relaxation, known, begun)
    made = halving.halving_of(drafts.devices, drafts.relaxation, starts, drafts.seed)
    assert made is not None, "the compiled annealing is missing: install RecSmith where there is a C compiler"
    while race.goes_on:
        made.run(lambda _: not race.goes_on, lambda: race.goes_on)
    return race


if __name__ == "__main__":
    main()
