"""Second-order training of dense layers: progressive L-BFGS and DANCE, as training steps and to refit a trained model.

See docs/optimizers.md and docs/daily.md. progressive_lbfgs.py and dance.py are the methods, on parameters as one vector
(flat.py). steps.py trains with them on cached outputs of tables (cached_tables.py); refit.py fits layers of a trained
model.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from recsmith._components import register
from recsmith.plans import Plan
from recsmith.training.seams.predicting import RunFacts, SystemLine
from recsmith.training.seams.system import STEP, System
from recsmith.training.systems.second_order.settings import Refitted
from recsmith.units import counted, format_time

if TYPE_CHECKING:
    from torch import nn

    from recsmith.prediction.job_step import JobStep
    from recsmith.training.job.job import TrainingJob
    from recsmith.training.run.run import Run
    from recsmith.training.seams.capabilities import Part
    from recsmith.training.sources.protocol import BatchSource

register(STEP, "progressive_lbfgs", "recsmith.training.systems.second_order.steps:ProgressiveLbfgsStep")
register(STEP, "dance", "recsmith.training.systems.second_order.steps:DanceStep")

PIPELINES = ("progressive_lbfgs", "dance")


class SecondOrder(System):
    """The system that trains dense layers by a second-order pipeline."""

    key = "pipeline"
    cards: ClassVar[Mapping[str, Any]] = {"refit": Refitted}

    def layer_parts(self, run: "Run", *, undecided: bool = False) -> Sequence["Part"]:
        """The pipeline as a part that trains layers, and the given settings that it would not use."""
        from recsmith.training.systems.second_order.parts import LayersByStep, unused_settings

        if not self.trains_layers(run):
            return ()
        unused = unused_settings(run, rest=self.tables_rest(run))
        return (LayersByStep(_named(run)[0]), *([unused] if unused.names else []))

    def data_parts(self, run: "Run") -> Sequence["Part"]:
        """The pipeline as a part of the run, because it computes the loss itself."""
        from recsmith.training.systems.second_order.parts import LayersByStep

        return (LayersByStep(_named(run)[0]),) if self.trains_layers(run) else ()

    def check_model(self, run: "Run", model: "nn.Module") -> None:
        """Refuse a model whose loss differs from pass to pass, by a running mean or dropout."""
        from recsmith.training.systems.second_order.flat import check_layers

        if self.trains_layers(run):
            check_layers(model, _named(run)[0])

    def trains_layers(self, run: "Run") -> bool:
        """Whether the run's pipeline is one of these methods."""
        return _named(run)[0] in PIPELINES

    def layer_state(self, run: "Run", numbers: int) -> int | None:
        """Bytes of the method's vectors, each as long as all dense layers; None for another pipeline."""
        from recsmith.training.systems.second_order.cost import vectors_of

        return 4 * numbers * vectors_of(run.pipeline) if self.trains_layers(run) else None

    def tables_rest(self, run: "Run") -> bool:
        """Whether tables are not trained: under DANCE, or if `tables` is rest."""
        name, settings = _named(run)
        return name == "dance" or (name in PIPELINES and settings.get("tables") == "rest")

    def change_told_step(self, run: "Run", plan: Plan, ranks: int, step: "JobStep") -> "JobStep":
        """The prediction for the first step, which passes over its samples several times."""
        from recsmith.training.systems.second_order.cost import changed_step

        return changed_step(run.pipeline, plan, ranks, step) if self.trains_layers(run) else step

    def more_bytes(self, run: "Run", plan: Plan) -> int:
        """Bytes of the vectors and ids of the batches that are kept."""
        from recsmith.training.systems.second_order.cost import kept_bytes

        return kept_bytes(run.pipeline, plan) if self.trains_layers(run) else 0

    def summary(self, run: "Run", facts: RunFacts) -> Sequence[SystemLine]:
        """How long the first step takes, and how many steps there are; `start_lines` says what a step does."""
        from recsmith.training.systems.second_order.cost import times_line
        from recsmith.training.systems.second_order.whole import whole_line

        if not self.trains_layers(run):
            return ()
        lines = [times_line(run.pipeline, facts.plan, facts.ranks, facts.step), whole_line(run, facts)]
        return [SystemLine(key="pipeline", on=True, said=line) for line in lines if line]

    def steps_notes(self, run: "Run", source: "BatchSource", ranks: int) -> Sequence[str]:
        """A note if the run has fewer steps than it takes to log scores or save a checkpoint."""
        from recsmith.training.systems.second_order.whole import batches_of_run, rare_line

        line = rare_line(run, batches_of_run(run, source, ranks), ranks) if self.trains_layers(run) else ""
        return [line] if line else []

    def brought(self, job: "TrainingJob") -> Mapping[str, str]:
        """How often steps passed over their samples and how long they took, compared with the predictions."""
        if not self.trains_layers(job.run):
            return {}
        from recsmith.training.systems.second_order.cost import step_work
        from recsmith.training.systems.second_order.steps import PASSED

        passed = PASSED.get(job.sharded.model)
        if passed is None or not passed.steps:
            return {}
        (name, _), ranks = _named(job.run), job.plan.cluster.job_world_size
        work, predicted = step_work(job.run.pipeline, job.run.data.local_batch_size(ranks), ranks), job.progress.told_s
        # nearly all of a step is passes over batches, so the prediction of the first is scaled by their number
        share = passed.batch_passes / passed.timed / (work.usual * work.batches)
        also = (
            ""
            if predicted is None
            else f"; {format_time(predicted * share)} were predicted for that many samples and passes"
        )
        after = " after the first" if passed.steps > 1 else ""
        first = f"{passed.smallest:,} to " if passed.smallest < passed.largest else ""
        sizes = f"{first}{passed.largest:,} samples"
        halved = f"; lengths of steps were halved {counted(passed.halvings, 'time')}" if passed.halvings else ""
        return {
            "step": f"a step{after} took {format_time(passed.seconds / passed.timed)} in the mean{also}",
            self.key: f"pipeline {name}: a step of {sizes} passed over them {passed.mean:,.1f} times in the mean; "
            f"about {work.usual:,.0f} and at most {work.most:,.0f} were predicted for the first{halved}",
        }

    def start_lines(self, run: "Run", plan: Plan) -> Sequence[str]:
        """Lines on what a step does, and on the quality that was measured for it."""
        from recsmith.training.systems.second_order.cost import quality_line, work_line

        if not self.trains_layers(run):
            return ()
        rest = self.tables_rest(run)
        work = work_line(run.pipeline, plan, plan.cluster.world_size)
        unused = "no optimizer that the run names is" if rest else "optimizers.dense is not"
        return (f"{work}{_resting(run) if rest else ''}; {unused} used", quality_line(run.pipeline))


def _resting(run: "Run") -> str:
    """What happens to tables that are not trained, as the end of a sentence."""
    fresh = "" if run.start_from is not None else ", so go on from a trained model (start_from): fresh ones stay random"
    return f"; tables rest as they are at the start{fresh}"


def _named(run: "Run") -> tuple[str, dict[str, Any]]:
    return run.step_named


SYSTEM = SecondOrder()
