"""What a run refuses whose pipeline trains dense layers itself; without torch."""

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
        """The key and the name of the pipeline."""
        return f"pipeline: {self.name}"

    @property
    def stands(self) -> str:
        """How the pipeline differs from others: it takes several batches, and sums all gradients itself."""
        return f"pipeline {self.name} takes several batches, and sums all gradients for a line search of its own"

    def refuses(self, other: Any, /) -> str | None:
        """Why this part refuses settings that the pipeline would not use."""
        if isinstance(other, UnusedSettings):
            trains = f"trains dense layers by a line search of its own and would not use {', '.join(other.layers)}"
            rests = f"lets tables rest and would not use {', '.join(other.tables)}"
            why = " and ".join([*([trains] if other.layers else []), *([rests] if other.tables else [])])
            return f"pipeline is {self.name}, which {why}; {other.cure}"
        return None


@dataclass(frozen=True)
class UnusedSettings(RefusesNothing):
    """Optimizer settings that a run gives and its pipeline does not use, such as optimizers.dense.clip_norm.

    layers: keys for dense layers. tables: keys for tables and schedules.
    """

    layers: tuple[str, ...]
    tables: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """All keys."""
        return (*self.layers, *self.tables)

    @property
    def label(self) -> str:
        """All keys as a text."""
        return ", ".join(self.names)

    @property
    def cure(self) -> str:
        """The advice to leave these settings out, or to set their groups to null."""
        groups = sorted({name.rpartition(".")[0] for name in self.names} - {"optimizers"})
        null = " and ".join(f"{group}: null" for group in groups)
        return f"leave {'it' if len(self.names) == 1 else 'them'} out" + (f" ({null})" if null else "")


def unused_settings(run: Run, *, rest: bool) -> UnusedSettings:
    """Optimizer settings that a run gives although its pipeline trains layers itself and does not use them.

    rest: whether tables are not trained either, so that their settings are unused, too.
    """
    given, plain = run.optimizers, RunOptimizers()
    dense = [
        f"optimizers.dense.{each.name}"
        for each in fields(DenseOptimizer)
        if each.name != "name" and getattr(given.dense, each.name) != getattr(plain.dense, each.name)
    ]
    if given.dense.name not in {plain.dense.name, *known(KIND)} - {AUTO}:  # those are refused for other reasons
        dense.insert(0, "optimizers.dense.name")
    if not rest:
        return UnusedSettings(tuple(dense), ())
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
    return UnusedSettings(tuple(dense), (*sparse, *schedule))
