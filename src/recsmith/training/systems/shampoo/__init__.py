"""Distributed Shampoo for dense layers (Shi et al. 2023, arXiv 2309.06497): docs/optimizers.md.

blocks.py divides layers into blocks and assigns them to ranks, and cost.py predicts what Shampoo costs and whether that
pays, both without torch. optimizer.py is the optimizer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from recsmith._components import register
from recsmith.training.seams.capabilities import FP32_WEIGHTS, LAYERS, MATRICES, Capabilities, RefusesNothing
from recsmith.training.seams.predicting import OpenRun
from recsmith.training.seams.registry import trains_layers
from recsmith.training.seams.system import PREDICTED, System

if TYPE_CHECKING:
    from recsmith.training.job.job import TrainingJob
    from recsmith.training.optimizers.settings import DenseOptimizer
    from recsmith.training.run.run import Run
    from recsmith.training.seams.capabilities import Part

register("optimizer", "shampoo", "recsmith.training.systems.shampoo.optimizer:ShampooOptimizer")
register("optimizer", "auto", "recsmith.training.systems.shampoo.optimizer:ShampooOptimizer")  # decided before
register(PREDICTED, "shampoo", "recsmith.training.systems.shampoo.cost:predicted_line")


@dataclass(frozen=True)
class FactoredLayers(RefusesNothing):
    """Dense layers trained by Shampoo, which keeps statistics of their rows and columns and computes roots in fp32."""

    owns: ClassVar[Capabilities] = Capabilities({LAYERS})
    needs: ClassVar[Capabilities] = Capabilities({MATRICES, FP32_WEIGHTS})
    cures: ClassVar[Mapping[str, str]] = {
        MATRICES: "use adam",
        FP32_WEIGHTS: "give its arguments another optimizer, or train the layers in fp32",
    }
    instead: ClassVar[str] = "use adam"
    name: str = "shampoo"

    @property
    def label(self) -> str:
        """The setting's key, and the optimizer's name as the run gives it, which may be auto."""
        return f"optimizers.dense.name: {self.name}"


class Shampoo(System):
    """The system that trains dense layers by Shampoo, if a run names it, or says auto and it costs little."""

    key = "optimizers.dense"

    def layer_parts(self, run: "Run", *, undecided: bool = False) -> Sequence["Part"]:
        """The layers that Shampoo trains, alone or inside an optimizer that wraps it."""
        from recsmith.training.systems.shampoo.cost import AUTO, SHAMPOO

        dense = run.optimizers.dense
        named = SHAMPOO in (dense.name, (dense.arguments or {}).get("optimizer"))
        if named:
            return (FactoredLayers(),)
        return (FactoredLayers(AUTO),) if undecided and dense.name == AUTO else ()

    def needs_step(self, run: "Run") -> bool:
        """Whether the run names Shampoo, or says auto."""
        from recsmith.training.systems.shampoo.cost import AUTO, SHAMPOO

        return run.optimizers.dense.name in (AUTO, SHAMPOO)

    def decide(self, made: OpenRun) -> OpenRun:
        """Decide whether to use Shampoo. With auto, the optimizer of a checkpoint is kept, since its state is there."""
        from recsmith.adapters.topology import device_type
        from recsmith.training.run.refusals import placed_parts, refusals
        from recsmith.training.systems.shampoo.cost import AUTO, SHAMPOO, optimizer_decided

        run, before, dense = made.run, made.before, made.run.optimizers.dense
        if dense.name not in (AUTO, SHAMPOO) or trains_layers(run):
            return made
        shampoo = _with(run, replace(dense, name=SHAMPOO))
        refused = next(refusals(placed_parts(shampoo, made.priced, device_type())), None)
        decided, lines, added = optimizer_decided(dense, made.shapes, made.priced, made.step, refused=refused)
        if dense.name == AUTO and before is not None and before.optimizers.dense.name != decided.name:
            decided = replace(before.optimizers.dense, learning_rate=dense.learning_rate, clip_norm=dense.clip_norm)
            lines = [f"optimizers.dense, which is auto, stays {decided.name}, whose state the checkpoint has"]
            added = optimizer_decided(decided, made.shapes, made.priced, made.step)[2]
        step = made.step and replace(made.step, optimizer_s=made.step.optimizer_s + added)
        return replace(made, run=_with(run, decided), step=step).with_lines(self.key, decided.name == SHAMPOO, lines)

    def brought(self, job: "TrainingJob") -> Mapping[str, str]:
        """Seconds of an update, compared with the prediction."""
        from recsmith.training.optimizers.dense import inner_optimizer
        from recsmith.training.systems.shampoo.cost import SHAMPOO, brought_line

        optimizer = (
            inner_optimizer(job.sharded.optimizer, "blocks") if job.run.optimizers.dense.name == SHAMPOO else None
        )
        if optimizer is None or not optimizer.took.times:
            return {}
        shapes = [tuple(each.shape) for group in optimizer.param_groups for each in group["params"]]
        return {self.key: brought_line(optimizer.settings, shapes, job.plan.cluster, optimizer.took.mean_s)}


def _with(run: "Run", dense: "DenseOptimizer") -> "Run":
    return replace(run, optimizers=replace(run.optimizers, dense=dense))


SYSTEM = Shampoo()
