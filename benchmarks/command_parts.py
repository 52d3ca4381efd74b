"""Where the CPU seconds of one `recsmith plan` go: a part of benchmarks/planning.py.

    python benchmarks/command_parts.py dlrm-v2 --cluster h100:8 --cost-model analytic

What a part calls of another part counts for the other, and each thread's own clock is read; so the parts add up to the
CPU seconds of the process.
"""

import json
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from io import StringIO
from threading import local
from typing import Any

PARTS = {
    "problem": ("planning.plan.load_workload", "planning.plan.load_cluster", "problems.build_problem"),
    "cost model": ("planning.plan.find_cost_model", "costs.analytic.AnalyticCostModel.compile",
                   "costs.best.BestCostModel.compile", "costs.neural.model.NeuralCostModel.compile"),
    "first bound": ("bounds.first._best_of_lifts",),
    "drafts": ("planners.auto.drafts.Drafts.work",),
    "first plans": ("planners.auto.annealing_turns.starts_of", "planners.auto.annealing_turns.halving_of"),
    "annealing": ("planners.annealing.kernel.Cooling.go_on",),
    "tighter bound": ("bounds.lower_bound._tightest", "planners.auto.annealing_turns.heaviest_table"),
    "rest of the search": ("planning.plan.plan_with",),
    "plan": ("planning.plan.make_plan",),
}  # fmt: skip
"""Functions of each part; what they call of another part counts there."""
START, REST = "start", "printing"  # Python and imports before the command; and what is left
NAMES = (START, *PARTS, REST)


class Clock:
    """CPU seconds of each part, without those of the parts that it calls."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._thread = local()

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, whose seconds count for a part."""

        @wraps(function)
        def call(*values: Any, **named: Any) -> Any:
            inner, self._thread.inner = getattr(self._thread, "inner", 0.0), 0.0
            begun = time.thread_time()
            try:
                return function(*values, **named)
            finally:
                took = time.thread_time() - begun
                self.seconds[part] += took - self._thread.inner
                self._thread.inner = inner + took

        return call


def parts_of(words: list[str]) -> dict[str, float]:
    """The parts of `recsmith plan` with these words, run in a process of its own."""
    command = [sys.executable, __file__, *words]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def one(words: list[str]) -> dict[str, float]:
    """CPU seconds of the parts of `recsmith plan` with these words, run in this process."""
    from recsmith.cli import main as recsmith

    clock = Clock()
    import_module("recsmith.planning.plan")
    started = time.process_time()
    for part, functions in PARTS.items():
        for each in functions:
            place, name = _place_of(each)
            setattr(place, name, clock.timed(part, getattr(place, name)))
    printed, sys.stdout, sys.argv = sys.stdout, StringIO(), ["recsmith", "plan", *words]
    try:
        recsmith()
    except SystemExit:
        pass
    finally:
        sys.stdout = printed
    spent = time.process_time()
    parts = {part: clock.seconds[part] for part in PARTS}
    return {START: started, **parts, REST: spent - started - sum(parts.values())}


def _place_of(path: str) -> tuple[Any, str]:
    """The module or class that holds a function, and its name."""
    *modules, name = path.split(".")
    holder = [modules.pop()] if modules[-1][0].isupper() else []
    place = import_module(".".join(("recsmith", *modules)))
    for each in holder:
        place = getattr(place, each)
    return place, name


if __name__ == "__main__":
    print(json.dumps(one(sys.argv[1:])))
