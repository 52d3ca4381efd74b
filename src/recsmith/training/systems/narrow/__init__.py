"""Dense layers that train only some of their units for a time, and end at full size: `model.narrow` of a run.

Du et al. 2021 (arXiv 2105.01064): train some units of each layer, let the others return, and repeat with another
choice, so that most steps are cheap and no capacity is lost. settings.py says when, and units.py which units can be
left out together. layers.py parks units and lets them return. cost.py predicts what that saves, and deciding.py decides
whether it pays.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from recsmith.analyses.advice import Switch
from recsmith.training.seams.in_jobs import attached_in
from recsmith.training.seams.predicting import OpenRun
from recsmith.training.seams.registry import trains_layers
from recsmith.training.seams.system import System
from recsmith.training.systems.narrow.settings import NarrowSettings, NarrowState

if TYPE_CHECKING:
    from torch import nn

    from recsmith.training.job.job import TrainingJob
    from recsmith.training.run.run import Run
    from recsmith.training.seams.capabilities import Part


class Narrow(System):
    """The system that narrows dense layers for a time (`model.narrow`)."""

    key = "model.narrow"
    settings = NarrowSettings | Literal["auto"]
    about = "steps in which dense layers multiply a part of their units (docs/narrow.md); auto: where that pays"
    kept, state = "narrow", NarrowState

    def layer_parts(self, run: "Run", *, undecided: bool = False) -> Sequence["Part"]:
        """Narrowed layers, and the dense optimizer, which must leave parked units unchanged."""
        from recsmith.training.systems.narrow.parts import FewerUnits, LayerOptimizer, optimizer_to_park_under

        if run.model.narrow is None or (run.model.narrow == "auto" and not undecided):
            return ()
        optimizer = None if trains_layers(run) else optimizer_to_park_under(run.optimizers.dense)
        return (FewerUnits(), *(() if optimizer is None else (LayerOptimizer(*optimizer),)))

    def switches(self, run: "Run") -> Sequence[Switch]:
        """Offer narrow layers with the default settings."""
        made = Switch(
            name="narrow dense layers", change="model.narrow: {}", settings=("model.narrow={}",),
            quality="0.0009 ± 0.0011 of AUC on MovieLens (five seeds)", page="narrow.md",
        )  # fmt: skip
        return (made,) if run.model.narrow is None else ()

    def needs_step(self, run: "Run") -> bool:
        """Whether the run asks for narrow layers."""
        return run.model.narrow is not None

    def decide(self, made: OpenRun) -> OpenRun:
        """Decide whether layers are narrow, if the run says auto, and predict the step with them."""
        if made.run.model.narrow is None:
            return made
        from recsmith.training.systems.narrow.deciding import with_narrow

        run, lines, step = with_narrow(made)
        return replace(made, run=run, step=step).with_lines(self.key, run.model.narrow is not None, lines)

    def attached(self, run: "Run", model: "nn.Module") -> Any:
        """The layers of the model that narrow."""
        from recsmith.training.systems.narrow.layers import narrowed_layers

        return None if run.model.narrow is None else narrowed_layers(model, run.model.narrow)

    def brought(self, job: "TrainingJob") -> Mapping[str, str]:
        """Seconds of narrow steps, compared with whole ones."""
        from recsmith.training.systems.narrow.layers import NarrowedLayers

        layers = attached_in(job, self.kept, NarrowedLayers)
        said = None if layers is None else layers.brought_line()
        return {} if said is None else {self.key: said}


SYSTEM = Narrow()
