"""A step that trains dense layers itself, as a part of a run: what does not go with it; without torch."""

from dataclasses import dataclass, fields
from typing import Any, ClassVar

from recsmith._components import known
from recsmith.training.collectives import collectives_of
from recsmith.training.optimizers import AUTO, KIND
from recsmith.training.optimizers.settings import DenseOptimizer, RunOptimizers, SparseOptimizer
from recsmith.training.run import Run
from recsmith.training.run.parts import (
    LAYER_WEIGHTS,
    LAYERS,
    NO_LAYERS,
    PRODUCTS,
    STEP,
    Messages,
    Owned,
    RefusesNothing,
    owns,
)


@dataclass(frozen=True)
class LayersByStep:
    """A pipeline that trains dense layers itself, by gradients and Hessians of the whole sample."""

    owns: ClassVar[Owned] = Owned({LAYERS, STEP})
    instead: ClassVar[str] = "write pipeline: base"
    name: str

    @property
    def label(self) -> str:
        """Its key and name."""
        return f"pipeline: {self.name}"

    def refuses(self, other: Any, /) -> str | None:
        """Models without layers, precisions in which a loss is not surely lower, and what trains layers too."""
        if other is NO_LAYERS:
            return f"pipeline is {self.name}, which trains dense layers, and the model has none; write pipeline: base"
        if owns(other, PRODUCTS, LAYER_WEIGHTS):
            return (
                f"pipeline is {self.name}, whose line search compares losses that bf16 cannot tell apart; train dense "
                "layers in fp32"
            )
        if isinstance(other, UnusedSettings):
            return (
                f"pipeline is {self.name}, which trains dense layers by a line search of its own, so that "
                f"{other.label} would have no effect; leave {'it' if len(other.names) == 1 else 'them'} out"
            )
        if owns(other, LAYERS):
            return f"pipeline is {self.name}, and {other.label} would train the same layers; drop one of them"
        if isinstance(other, Messages) and getattr(collectives_of(other.comms), "dense", None) is not None:
            return (
                f"comms.dense sends the largest gradients, and pipeline {self.name} needs sums of all; drop one of them"
            )
        return None


@dataclass(frozen=True)
class UnusedSettings(RefusesNothing):
    """Settings of optimizers that a run gives and its pipeline does not use, such as optimizers.dense.clip_norm."""

    names: tuple[str, ...]

    @property
    def label(self) -> str:
        """Their keys."""
        return ", ".join(self.names)


def unused_settings(run: Run, *, rest: bool) -> tuple[str, ...]:
    """Settings of optimizers that a run gives, and a pipeline that trains layers by itself does not use.

    rest: tables rest, too, and use none.
    """
    given, plain = run.optimizers, RunOptimizers()
    dense = [
        f"optimizers.dense.{each.name}"
        for each in fields(DenseOptimizer)
        if each.name != "name" and getattr(given.dense, each.name) != getattr(plain.dense, each.name)
    ]
    if given.dense.name not in {plain.dense.name, *known(KIND)} - {AUTO}:  # which are refused for reasons of their own
        dense.insert(0, "optimizers.dense.name")
    if not rest:
        return tuple(dense)
    sparse = [
        f"optimizers.sparse.{each.name}"
        for each in fields(SparseOptimizer)
        if getattr(given.sparse, each.name) != getattr(plain.sparse, each.name)
    ]
    schedule = [
        f"optimizers.{name}"
        for name in ("warmup_steps", "decay_start", "decay_steps")
        if getattr(given, name) != getattr(plain, name)
    ]
    return (*dense, *sparse, *schedule)
