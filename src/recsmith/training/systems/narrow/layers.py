"""Linear layers that multiply some of their units, and what happens to the others: parking, and coming back.

A unit that is parked keeps the weights that lead to it. Those that lead from it become zero, so a whole model and its
narrowed one compute the same, checkpoints are those of the whole model, and a unit that comes back changes no output.

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

KEPT = 1000  # steps of a kind, the newest, whose median is told
SUM = "sum"  # Adagrad's, which no step makes smaller
SQUARES = (SUM, "exp_avg_sq", "max_exp_avg_sq", "square_avg")  # by whose roots optimizers divide


class NarrowedLinear(nn.Linear):
    """A linear layer with all weights (o, i), of which it multiplies those of some rows and columns."""

    def __init__(self, layer: nn.Linear) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self.weight = layer.weight
        self.register_parameter("bias", cast(Any, layer.bias))
        self.rows: torch.Tensor | None = None  # units of its own that are kept; None: all
        self.columns: torch.Tensor | None = None  # units that it reads
        self._places: torch.Tensor | None = None  # of the weights that are multiplied, in the flat weight

    def narrow(self) -> None:
        """Multiply rows and columns as they are set from here on."""
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
    """Weights at some places; the gradient of all others is zero."""

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
        """Begin a job of so many steps, or go on where a checkpoint says that it was.

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
        """What a checkpoint keeps (NarrowState)."""
        kept = None if self.kept is None else tuple(tuple(each.tolist()) for each in self.kept)
        return encode(NarrowState(steps=self.steps, kept=kept))

    def before_step(self, job: Any) -> None:
        """Narrow, or be whole again, where a phase of a TrainingJob begins; and say so."""
        step = job.progress.step
        self._note(STEPS.now())
        done = self.before(step, job.sharded)
        if done is not None:
            job.log.write("narrow", {"step": step, "narrow": self.kept is not None})
            job.log.say({"note": f"step {step:,}: {done}"})

    def before(self, step: int, job: Any) -> str | None:
        """Narrow, or be whole again, where a phase begins after `step` steps; what was done, for people.

        job: the ShardedJob, whose optimizer and residuals follow.
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
        """A step begins: the one before is over."""
        if self._last is not None:
            narrow = self.kept is not None
            self.took[narrow].append(now - self._last)
            self.counts[narrow] += 1
        self._last = now

    def brought_line(self) -> str | None:
        """What narrow steps took beside whole ones; None where one kind had no step."""
        if len(self.counts) < 2:
            return None
        usual, before = median(self.took[True]), median(self.took[False])
        share = self.counts[True] / self.counts.total()
        return (
            f"narrow: {share:.0%} of the steps were narrow and took {format_time(usual)}, the others "
            f"{format_time(before)}: {share * (1 - usual / before):.0%} of a mean step is saved"
        )

    def _chosen(self) -> list[torch.Tensor]:
        """The units of largest importance: the product of the norms of weights that lead to them and from them."""
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
        """Weights from parked units become zero, and so do moments and residuals of all that is parked."""
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
        """Squares of gradients, zero or old while units were parked, become the median of those that trained.

        A first step that is divided by the root of almost nothing would be several times as long as any other.
        """
        states = _states(job)
        for _, parameter, trains in self._trained():
            for name, values in states.get(parameter, {}).items():
                if name in SQUARES and values is not None:
                    values[~trains] = values[trains].median()

    def _trained(self) -> Iterator[tuple[NarrowedLinear, torch.Tensor, torch.Tensor]]:
        """(layer, parameter, which of its numbers train) of all layers."""
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
    """The layers of a model that narrow, as a run's model.narrow says; None where it does not, or auto left it out."""
    if not isinstance(settings, NarrowSettings):
        return None
    units = [each for each in units_of(model) if each.width >= LEAST_UNITS]
    return NarrowedLayers(model, settings, units) if units else None


def _names(units: Sequence[Units]) -> list[str]:
    return list(dict.fromkeys(name for each in units for name in (each.made_by, *each.read_by)))


def _replaced(model: nn.Module, name: str) -> NarrowedLinear:
    """The layer of a name, which a narrowed one of the same weights stands for from here on."""
    made = NarrowedLinear(cast(nn.Linear, model.get_submodule(name)))
    model.set_submodule(name, made)
    return made


def _parked(kept: torch.Tensor, size: int) -> torch.Tensor:
    """The units that are not kept."""
    parks = torch.ones(size, dtype=torch.bool, device=kept.device)
    parks[kept] = False
    return parks.nonzero().flatten()


def _states(job: Any) -> dict[Any, dict[str, Any]]:
    """What the optimizer of dense layers keeps, by parameter."""
    return dict(dict(job.optimizer.optimizers)["dense"].state)


def _residuals(job: Any) -> dict[Any, torch.Tensor]:
    """What this rank has not sent yet of gradients, flat, where the largest alone cross ranks."""
    left = {} if job.hook is None else {name: state.left for name, state in job.hook.of.items()}
    return {each: left[name] for name, each in job.model.named_parameters() if name in left}
