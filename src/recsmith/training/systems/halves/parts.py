"""Weights in two halves of 16 bits, as parts of a run: what does not go with them; without torch."""

from dataclasses import dataclass
from typing import Any, ClassVar

from recsmith.training.collectives import collectives_of
from recsmith.training.run.parts import (
    BAGS,
    FP32_PRODUCTS,
    GPU,
    LAYER_WEIGHTS,
    LAYERS,
    ROWS,
    Messages,
    NarrowTables,
    Owned,
    PlannedTables,
    Sequences,
    TableOptimizer,
    owns,
)
from recsmith.workloads.optimizers import SPLIT_OPTIMIZERS


@dataclass(frozen=True)
class HalfLayers:
    """Dense layers whose weights are bf16, by the optimizer that keeps the rest of them."""

    owns: ClassVar[Owned] = Owned({LAYERS, LAYER_WEIGHTS})
    name: str

    @property
    def label(self) -> str:
        """Its key and name."""
        return f"optimizers.dense.name: {self.name}"

    def refuses(self, other: Any, /) -> str | None:
        """Products in fp32, which bf16 weights do not go into, and gradients whose largest cross in fp32."""
        if other is FP32_PRODUCTS:
            return f"optimizers.dense.name {self.name} makes dense layers bf16; write model.precision: bf16 beside it"
        if isinstance(other, Messages) and getattr(collectives_of(other.comms), "dense", None) is not None:
            return (
                f"comms.dense sends gradients of fp32, and optimizers.dense.name {self.name} makes them bf16; drop one "
                "of them"
            )
        return None


@dataclass(frozen=True)
class SplitHalves:
    """Tables whose weights lie in two halves of 16 bits."""

    owns: ClassVar[Owned] = Owned({ROWS})
    label: str = "rows: split"

    def refuses(self, other: Any, /) -> str | None:
        """Optimizers and tables that are not looked up and updated in halves, and what keeps no fp32 weights."""
        if isinstance(other, TableOptimizer) and other.name not in SPLIT_OPTIMIZERS:
            return f"rows: split has no form of {other.name}; use {' or '.join(SPLIT_OPTIMIZERS)}, or leave rows out"
        if isinstance(other, NarrowTables):
            return (
                f"rows: split keeps weights in fp32, and table '{other.table}' has data_type {other.data_type}; leave "
                "its data_type out, and lookups read bf16"
            )
        if isinstance(other, Sequences):
            return f"table '{other.table}' has pooling none, which rows: split does not have yet; leave rows out"
        if owns(other, BAGS):
            return "rows: split does not take deduplicated features yet; drop data.deduplicate, or leave rows out"
        if other is GPU:
            return "rows: split is for CPUs; on GPUs leave rows out and give tables data_type fp16"
        if isinstance(other, PlannedTables) and other.copied:
            return (
                f"rows: split has no copies, and the plan copies table {other.copied} to every rank; use a plan "
                "without data_parallel, or leave rows out"
            )
        return None
