"""Report what goes wrong in a job while it trains: `watch` of a run (docs/watch.md).

settings.py holds the settings of a run, and cost.py predicts the seconds that a watch adds to a step. looking.py sums
up what a rank sees of its steps, and anomalies.py is the watcher. rows_in_time.py checks whether tables have enough
rows, and plan_watch.py whether another plan pays. alarm_log.py reads alarms from the log. Sketches of ids are written
by streaming/sketch_files.py.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from recsmith._components import register
from recsmith.plans import Plan
from recsmith.training.seams.predicting import RunFacts, SystemLine
from recsmith.training.seams.registry import first_of, systems
from recsmith.training.seams.system import WATCHER, System
from recsmith.training.systems.watch.settings import ANOMALIES, watch_settings, watcher_spec

if TYPE_CHECKING:
    from recsmith.prediction.job_step import JobStep
    from recsmith.training.job.job import TrainingJob
    from recsmith.training.run.run import Run
    from recsmith.training.sources.protocol import BatchSource

register(WATCHER, ANOMALIES, "recsmith.training.systems.watch.anomalies:AnomalyWatcher")
register(WATCHER, "plan_watch", "recsmith.training.systems.watch.plan_watch:WatchedPlan")


class Watch(System):
    """The system that watches a job for anomalies (`watch`)."""

    key = "watch"
    untold = True
    settings = str | dict[str, Any]
    about = (
        "auto reports what goes wrong, such as a broken feed or another hot set (docs/watch.md); a mapping of settings "
        "may act, too; none watches nothing"
    )

    def wrong(self, run: "Run") -> Iterable[str | None]:
        """Refuse invalid settings, and the action replan if the plan is a file, which is never planned anew."""
        settings = watch_settings(run.watch)
        if settings is not None and "replan" in settings.actions.values() and run.plan not in ("auto", "torchrec"):
            yield (
                f"watch.actions asks for replan, and plan is the file '{run.plan}', which a job that is started again "
                "would train under once more; write plan: auto, or leave replan out"
            )

    def watchers(self, run: "Run") -> Sequence[Any]:
        """The watcher that `watch` stands for."""
        return watcher_spec(run.watch)

    def brought(self, job: "TrainingJob") -> Mapping[str, str]:
        """How many alarms the watch raised, and of which kinds."""
        if watch_settings(job.run.watch) is None or job.log.rank:
            return {}
        from recsmith.training.systems.watch.alarm_log import told_line

        return {self.key: told_line(job.output)}

    def change_told_step(self, run: "Run", plan: Plan, ranks: int, step: "JobStep") -> "JobStep":
        """Add the predicted seconds of watching to a step."""
        from recsmith.training.systems.watch.cost import watch_s_of

        settings = watch_settings(run.watch)
        if settings is None:
            return step
        return replace(step, trainer_s=step.trainer_s + watch_s_of(settings, plan, ranks))

    def summary(self, run: "Run", facts: RunFacts) -> Sequence[SystemLine]:
        """The seconds that watching adds to a step, and which settings would take less."""
        from recsmith.training.systems.watch.cost import cost_line

        settings = watch_settings(run.watch)
        if settings is None or facts.step is None:
            return ()
        line = cost_line(settings, facts.plan, facts.ranks, facts.step.step_s)
        return (SystemLine(key=self.key, on=True, said=line),)

    def notes(self, run: "Run", source: "BatchSource", steps: int | None) -> Sequence[str]:
        """The step from which the watch can report problems, and whether it continues from an earlier state."""
        settings = watch_settings(run.watch)
        if settings is None:
            return ()
        schema = source.schema
        settings.check_features(schema.feature_names)
        states, path = first_of(each.watched_before(run) for each in systems()) or ({}, "")
        state = states.get(ANOMALIES, {})
        problem = settings.why_anew(state, schema.labels)
        lines = [settings.told_from(steps, 0 if problem else state["signals"]["_looks"], path)]
        if problem:
            lines += [f"begins anew: {problem}"] if state else []
        elif columns := settings.told_columns(state, schema.feature_names, schema.dense):
            lines.append(columns)
        return [f"watch: {each}" for each in lines]


SYSTEM = Watch()
