"""Compare a job's plan with its measured kernels and its data, and continue under another plan if that pays."""

from dataclasses import replace

from recsmith.adapters.running_job import SEARCH_S, SKIP, STEPS, PlanWatch
from recsmith.data.deduplication import expanded
from recsmith.files import Raw
from recsmith.plans import Plan
from recsmith.problems import constraints_from_raw, constraints_to_raw
from recsmith.training.batches import as_tensors
from recsmith.training.job.job import TrainingJob
from recsmith.training.job.plan_rules import loadable_rules
from recsmith.training.watchers.protocol import Seen, Watcher, Wish
from recsmith.units import format_time


class WatchedPlan(Watcher):
    """Watches some steps and, if another plan pays for the remaining steps, asks for it.

    skip: steps before measuring. steps: steps that are measured. search_s: seconds for planning anew on rank 0, while
    other ranks wait.
    """

    def __init__(self, *, steps: int = STEPS, skip: int = SKIP, search_s: float = SEARCH_S) -> None:
        self.steps, self.skip, self.search_s = steps, skip, search_s
        self._watch: PlanWatch | None = None
        self._done = False

    @property
    def done(self) -> bool:
        """Whether all steps were watched."""
        return self._done

    def look(self, seen: Seen) -> Wish | None:
        """Count a step. At the last watched step, return the wish for another plan if it pays."""
        job = seen.job
        if self._done or job.total_steps is None:
            return None
        if self._watch is None:
            self._watch = PlanWatch(job.sharded.model, loadable(job.plan), steps=self.steps, skip=self.skip)
            return None  # hooks are called from the next step on
        for place in seen.outcome.places[-1:]:
            self._done = self._watch.step(as_tensors(expanded(place.samples), job.features))
        watch, self._watch = self._watch, None if self._done else self._watch
        return self._wish(watch, job) if self._done and seen.step < job.total_steps else None

    def _wish(self, watch: PlanWatch, job: TrainingJob) -> Wish | None:
        """The wish that follows from the watch, on all ranks."""
        left = (job.total_steps or 0) - job.progress.step
        report = watch.report(steps_left=left, search_s=self.search_s)
        job.log.say({"note": f"plan_watch: a step costs {format_time(report.running_s)} under the plan, predicted"})
        if report.plan is None:
            return None
        saved = f"{format_time(report.saved_s)} less for the {left:,} steps that are left"
        return Wish("replan", f"another plan takes {saved}, predicted, its move counted", report.plan)

    def leave(self) -> None:
        """Forget the model; steps under the next plan are counted from the first one."""
        self._watch = None

    def to_raw(self) -> Raw | None:
        """Whether the watch is over, so that a job that continues does not watch again."""
        return {"done": True} if self._done else None

    def from_raw(self, raw: Raw) -> None:
        """Continue from a saved state."""
        self._done = bool(raw.get("done"))


def loadable(plan: Plan) -> Plan:
    """The plan with constraints on new plans, so that they can load its state."""
    space, limits = constraints_from_raw(plan.constraints, "the plan")
    limits = replace(limits, keep_exact=True, rules=(*limits.rules, *loadable_rules(plan)))
    return replace(plan, constraints=constraints_to_raw(space, limits))
