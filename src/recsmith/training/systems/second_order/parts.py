"""A step that trains dense layers itself, as a part of a run: what does not go with it; without torch."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from recsmith._components import known
from recsmith.training.optimizers import AUTO, KIND
from recsmith.training.optimizers.settings import DenseOptimizer, RunOptimizers, SparseOptimizer
from recsmith.training.run import Run
from recsmith.training.seams import capabilities as job
from recsmith.training.seams.capabilities import Capabilities, RefusesNothing

BY_LOSSES = "its line search compares losses that bf16 cannot tell apart, so train dense layers in fp32"


@dataclass(frozen=True)
class LayersByStep:
    """A pipeline that trains dense layers itself, by gradients and Hessians of the whole sample."""

    owns: ClassVar[Capabilities] = Capabilities({job.LAYERS, job.STEP})
    needs: ClassVar[Capabilities] = Capabilities({job.MATRICES, job.FP32_WEIGHTS, job.FP32_PRODUCTS_NEEDED, job.LOSS})
    lacks: ClassVar[Capabilities] = Capabilities({job.GRADIENTS, job.ONE_BATCH})
    cures: ClassVar[Mapping[str, str]] = {
        job.MATRICES: "write pipeline: base",
        job.FP32_WEIGHTS: BY_LOSSES,
        job.FP32_PRODUCTS_NEEDED: BY_LOSSES,
    }
    instead: ClassVar[str] = "write pipeline: base"
    name: str

    @property
    def label(self) -> str:
        """Its key and name."""
        return f"pipeline: {self.name}"

    @property
    def stands(self) -> str:
        """What it takes, and what becomes of gradients."""
        return f"pipeline {self.name} takes several batches, and sums all gradients for a line search of its own"

    def refuses(self, other: Any, /) -> str | None:
        """Settings that it would not use."""
        if isinstance(other, UnusedSettings):
            return (
                f"pipeline is {self.name}, which trains dense layers by a line search of its own, so that "
                f"{other.label} would have no effect; leave {'it' if len(other.names) == 1 else 'them'} out"
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
