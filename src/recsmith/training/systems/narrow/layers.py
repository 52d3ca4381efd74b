"""Linear layers that multiply only some of their units; the other units are parked and return later.

A parked unit keeps its incoming weights. Its outgoing weights become zero. So a whole model and its narrowed form
compute the same, checkpoints are those of the whole model, and a unit that returns changes no output.

U units of a layer, K of them kept; o outputs and i inputs of a layer
"""

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import nn

from recsmith.errors import CorruptFile
from recsmith.files import Raw, decode, encode
from recsmith.training.step_clock import STEPS
from recsmith.training.systems.narrow.settings import LEAST_UNITS, NarrowSettings, NarrowState, Units
from recsmith.training.systems.narrow.units import units_of
from recsmith.units import format_time

KEPT = 1000  # newest steps of each kind whose median is reported
SUM = "sum"  # Adagrad's state, which no step makes smaller
SQUARES = (SUM, "exp_avg_sq", "max_exp_avg_sq", "square_avg")  # states by whose square roots optimizers divide


class NarrowedLinear(nn.Linear):
    """A linear layer with all weights (o, i), of which only some rows and columns are multiplied."""

    def __init__(self, layer: nn.Linear) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self.weight = layer.weight
        self.register_parameter("bias", cast(Any, layer.bias))
        self.rows: torch.Tensor | None = None  # its own units that are kept; None: all
        self.columns: torch.Tensor | None = None  # its inputs that are kept; None: all
        self._places: torch.Tensor | None = None  # indices of the multiplied weights in the flat weight

    def narrow(self) -> None:
        """Apply the current `rows` and `columns` to the following steps."""
        if self.rows is None and self.columns is None:
            self._places = None
            return
        rows, columns = self._all(self.rows, self.out_features), self._all(self.columns, self.in_features)
        self._places = rows[:, None] * self.in_features + columns

    def _all(self, kept: torch.Tensor | None, size: int) -> torch.Tensor:
        return torch.arange(size, device=self.weight.device) if kept is None else kept

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002 (the name that callers know)
        """Inputs (B, columns) -> (B, rows)."""
        if self._places is None:
            return super().forward(input)
        bias = cast(torch.Tensor | None, self.bias)
        if bias is not None and self.rows is not None:
            bias = bias[self.rows]
        return nn.functional.linear(input, _Taken.apply(self.weight, self._places), bias)  # pyright: ignore


class _Taken(torch.autograd.Function):
    """Takes weights by flat index; the gradient of all other weights is zero."""

    @staticmethod
    def forward(ctx: Any, weight: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(places)
        ctx.shape = weight.shape
        return weight.take(places)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        (places,) = ctx.saved_tensors
        return gradients[0].new_zeros(ctx.shape).put_(places, gradients[0]), None


class NarrowedLayers:
    """The layers of a model on this rank that narrow together. kept: units of each group that train; None: all."""

    def __init__(self, model: nn.Module, settings: NarrowSettings, units: Sequence[Units]) -> None:
        self.settings, self.units, self.steps = settings, units, 0
        self.layers = {name: _replaced(model, name) for name in _names(units)}
        self.kept: list[torch.Tensor] | None = None
        self.took = {narrow: deque[float](maxlen=KEPT) for narrow in (True, False)}  # seconds of the newest steps
        self.counts = Counter[bool]()  # of narrow and of whole steps
        self._last: float | None = None  # when the newest step began

    def begin(self, steps: int | None, kept: Raw | None) -> None:
        """Begin a job of this many steps, or continue from a checkpoint.

        Raises:
            UsageError: a phase would be too short.
            CorruptFile: the checkpoint is of other layers.
        """
        state = None if kept is None else decode(NarrowState, kept, "the checkpoint's `narrow`")
        self.steps = (steps if state is None else state.steps) or 0
        self.phases = self.settings.phases(self.steps)
        if state is None or state.kept is None:
            return
        sizes = [(each.width, self.settings.kept(each.width)) for each in self.units]
        if not state.fits(sizes):
            raise CorruptFile(
                "the checkpoint keeps other units of its layers than model.narrow has here; give model.narrow as it "
                "was, or another output folder"
            )
        self._put([torch.tensor(each, dtype=torch.int64) for each in state.kept])

    def to_raw(self) -> Raw:
        """The state that a checkpoint keeps (NarrowState)."""
        kept = None if self.kept is None else tuple(tuple(each.tolist()) for each in self.kept)
        return encode(NarrowState(steps=self.steps, kept=kept))

    def before_step(self, job: Any) -> None:
        """Narrow the layers, or make them whole, if a phase of a TrainingJob begins; and log it."""
        step = job.progress.step
        self._note(STEPS.now())
        done = self.before(step, job.sharded)
        if done is not None:
            job.log.write("narrow", {"step": step, "narrow": self.kept is not None})
            job.log.say({"note": f"step {step:,}: {done}"})

    def before(self, step: int, job: Any) -> str | None:
        """Narrow the layers, or make them whole, if a phase begins after `step` steps. Returns a line on it, or None.

        job: the ShardedJob, whose optimizer state and residuals are changed too.
        """
        phase = next((each for each in self.phases if each.first <= step < each.end), self.phases[-1])
        if phase.narrow == (self.kept is not None):
            return None
        with torch.no_grad():
            if phase.narrow:
                self._put(self._chosen())
                self._park(job)
            else:
                self._come_back(job)
                self._put(None)
        last = f"up to step {phase.end:,}" if step < phase.end else "for good"
        sizes = ", ".join(f"{self.settings.kept(each.width)} of {each.width}" for each in self.units)
        return f"narrow: {sizes} units train {last}" if phase.narrow else f"narrow: all units train {last}"

    def _note(self, now: float) -> None:
        """Record the seconds of the last step, since the next one begins."""
        if self._last is not None:
            narrow = self.kept is not None
            self.took[narrow].append(now - self._last)
            self.counts[narrow] += 1
        self._last = now

    def brought_line(self) -> str | None:
        """Seconds of narrow and of whole steps, as a line; None if there were no steps of one kind."""
        if len(self.counts) < 2:
            return None
        usual, before = median(self.took[True]), median(self.took[False])
        share = self.counts[True] / self.counts.total()
        return (
            f"narrow: {share:.0%} of the steps were narrow and took {format_time(usual)}, the others "
            f"{format_time(before)}: {share * (1 - usual / before):.0%} of a mean step is saved"
        )

    def _chosen(self) -> list[torch.Tensor]:
        """Choose the most important units of each group: by norm of incoming weights x norm of outgoing weights."""
        found: list[torch.Tensor] = []
        for units in self.units:
            into = self.layers[units.made_by].weight.norm(dim=1)
            out = torch.cat([self.layers[name].weight for name in units.read_by]).norm(dim=0)
            kept = torch.topk(into * out, self.settings.kept(units.width)).indices.sort().values
            if dist.is_initialized():
                dist.broadcast(kept, 0)
            found.append(kept)
        return found

    def _put(self, kept: list[torch.Tensor] | None) -> None:
        self.kept = kept
        for number, units in enumerate(self.units):
            made_by = self.layers[units.made_by]
            mine = None if kept is None else kept[number].to(made_by.weight.device)
            made_by.rows = mine
            for name in units.read_by:
                self.layers[name].columns = mine
        for layer in self.layers.values():
            layer.narrow()

    def _park(self, job: Any) -> None:
        """Set outgoing weights of parked units to zero, and moments and residuals of all parked weights."""
        states, hook = _states(job), _residuals(job)
        for layer, parameter, trains in self._trained():
            if parameter is layer.weight and layer.columns is not None:
                parameter[:, _parked(layer.columns, layer.in_features)] = 0
            for name, values in states.get(parameter, {}).items():
                if torch.is_tensor(values) and values.shape == parameter.shape and name != SUM:
                    values[~trains] = 0
            if parameter in hook:
                hook[parameter][~trains.flatten()] = 0

    def _come_back(self, job: Any) -> None:
        """Set second moments of returning weights, zero or outdated while parked, to the median of trained weights.

        Otherwise their first step would be divided by the root of almost nothing, and be several times too long.
        """
        states = _states(job)
        for _, parameter, trains in self._trained():
            for name, values in states.get(parameter, {}).items():
                if name in SQUARES and values is not None:
                    values[~trains] = values[trains].median()

    def _trained(self) -> Iterator[tuple[NarrowedLinear, torch.Tensor, torch.Tensor]]:
        """(layer, parameter, mask of its numbers that train) of all layers."""
        for layer in self.layers.values():
            rows = torch.ones(layer.out_features, dtype=torch.bool, device=layer.weight.device)
            columns = torch.ones(layer.in_features, dtype=torch.bool, device=layer.weight.device)
            if layer.rows is not None:
                rows[_parked(layer.rows, layer.out_features)] = False
            if layer.columns is not None:
                columns[_parked(layer.columns, layer.in_features)] = False
            yield layer, layer.weight, rows[:, None] & columns
            if cast(Any, layer.bias) is not None:
                yield layer, layer.bias, rows


def narrowed_layers(model: nn.Module, settings: object) -> NarrowedLayers | None:
    """The layers of a model that narrow; None if no layer can, or `auto` left model.narrow out."""
    if not isinstance(settings, NarrowSettings):
        return None
    units = [each for each in units_of(model) if each.width >= LEAST_UNITS]
    return NarrowedLayers(model, settings, units) if units else None


def _names(units: Sequence[Units]) -> list[str]:
    return list(dict.fromkeys(name for each in units for name in (each.made_by, *each.read_by)))


def _replaced(model: nn.Module, name: str) -> NarrowedLinear:
    """Replace the named layer of a model by a narrowed layer with the same weights."""
    made = NarrowedLinear(cast(nn.Linear, model.get_submodule(name)))
    model.set_submodule(name, made)
    return made


def _parked(kept: torch.Tensor, size: int) -> torch.Tensor:
    """The units that are not kept."""
    parks = torch.ones(size, dtype=torch.bool, device=kept.device)
    parks[kept] = False
    return parks.nonzero().flatten()


def _states(job: Any) -> dict[Any, dict[str, Any]]:
    """The state of the dense optimizer, by parameter."""
    return dict(dict(job.optimizer.optimizers)["dense"].state)


def _residuals(job: Any) -> dict[Any, torch.Tensor]:
    """This rank's unsent gradients, flat, by parameter, if only the largest cross ranks; else empty."""
    left = {} if job.hook is None else {name: state.left for name, state in job.hook.of.items()}
    return {each: left[name] for name, each in job.model.named_parameters() if name in left}
