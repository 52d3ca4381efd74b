"""Compresses a workload's tables: gives the workload of physical tables that planner, simulator and sweep see."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from recsmith._types import noun
from recsmith.embeddings.compression import (
    CompressionRule,
    Dial,
    LogicalTable,
    method_of,
    methods_with_dials,
    transforms_of,
)
from recsmith.embeddings.transforms import EmbeddingTransform, Lookup, parameters, physical
from recsmith.errors import UsageError
from recsmith.workloads import AccessProfile, Feature, Table, Workload

STEPS = 50  # bisection steps in the search for a factor or temperature
CLOSE = 0.995  # share of a target that counts as reached: 4 ids per quotient make tables only 3.9999 times smaller


@noun
class Compressed:
    """A workload whose tables are compressed by rules.

    workload: the workload of physical tables. stored: names of the tables that are compressed. parameters_before,
    parameters_after: number of parameters of the original and of the compressed tables, including those of the modules
    that combine vectors. dense: number of parameters of these modules.
    """

    workload: Workload
    rules: tuple[CompressionRule, ...]
    stored: tuple[str, ...]
    parameters_before: int
    parameters_after: int
    dense: int

    @property
    def factor(self) -> float:
        """Compression factor: parameters before / parameters after."""
        return self.parameters_before / self.parameters_after


def compress(workload: Workload, rules: Sequence[CompressionRule]) -> Compressed:
    """The workload with its tables compressed by rules; for each table the first rule that fits it is used.

    A physical table gets all ids of its feature, or an equal share if ids are distributed over several lookups. A
    table's Zipf exponent is kept for its largest part; measured access counts are dropped, because they do not hold for
    physical tables.

    Raises:
        UsageError: a table cannot be stored as its rule says.
    """
    unpooled = [table.name for table in workload.tables if not table.pooled]
    transforms = transforms_of(rules, workload_tables(workload), unpooled)
    made = [part for table in workload.tables for part in _physical(table, transforms.get(table.name))]
    before = sum(table.num_embeddings * table.embedding_dim for table in workload.tables)
    whole = sum(t.num_embeddings * t.embedding_dim for t in workload.tables if t.name not in transforms)
    return Compressed(
        workload=replace(workload, tables=tuple(made)),
        rules=tuple(rules),
        stored=tuple(transforms),
        parameters_before=before,
        parameters_after=whole + sum(parameters(transform) for transform in transforms.values()),
        dense=sum(transform.dense_parameters for transform in transforms.values()),
    )


def workload_tables(workload: Workload) -> list[LogicalTable]:
    """The tables of a workload in the form that rules take."""
    return [LogicalTable(table.name, table.num_embeddings, table.embedding_dim) for table in workload.tables]


def compress_to(workload: Workload, target: float, method: str = "quotient_remainder", **fields: object) -> Compressed:
    """The workload compressed to `target` times fewer parameters, by the mildest setting of a method that reaches it.

    fields: fields of CompressionRule, except the one that the target decides.

    Raises:
        UsageError: the method cannot reach the target, or has no setting for it.
    """
    dial = method_of(method).dial
    if dial is None:
        *others, last = methods_with_dials()
        raise UsageError(f"{method} has no setting that a target decides; take {', '.join(others)} or {last}")

    def found(setting: float) -> Compressed:
        return compress(workload, [CompressionRule(method=method, **{dial.field: setting, **fields})])  # type: ignore[arg-type]

    return mildest(dial, target, found, method)


def mildest(dial: Dial, target: float, found: Callable[[float], Compressed], method: str) -> Compressed:
    """The workload at the mildest setting of a dial that reaches the target, by bisection.

    Args:
        dial: the field to set, and its range.
        target: compression factor to reach.
        found: compresses the workload with a setting.
        method: name of the method, for errors.

    Raises:
        UsageError: no setting reaches the target.
    """
    low, high, best = dial.low, dial.high, found(dial.high)
    if not best.factor >= CLOSE * target:
        raise UsageError(
            f"{method} makes these tables at most {best.factor:.3g} times smaller, and the target is {target:g}; lower "
            "the target or above_rows, or take another method"
        )
    for _ in range(STEPS):
        middle = dial.between(low, high)
        if not low < middle < high:
            break
        tried = found(middle)
        low, high, best = (low, middle, tried) if tried.factor >= CLOSE * target else (middle, high, best)
    return best


def _physical(table: Table, transform: EmbeddingTransform | None) -> list[Table]:
    """The physical tables of a logical table."""
    if transform is None:
        return [table]
    access = table.access if table.access is not None and table.access.zipf is not None else None
    return [
        _part_table(table, transform, number, access if number == _skewed(transform) else None)
        for number in range(len(transform.parts))
    ]


def _skewed(transform: EmbeddingTransform) -> int:
    """Number of the part whose rows are read with about the skew of the whole table: the largest part."""
    return max(range(len(transform.parts)), key=lambda k: transform.parts[k].num_embeddings)


def _part_table(table: Table, transform: EmbeddingTransform, number: int, access: AccessProfile | None) -> Table:
    part = transform.parts[number]
    lookups = [lookup for lookup in transform.lookups if lookup.part == number]
    return replace(
        table,
        name=physical(table.name, part.name),
        num_embeddings=part.num_embeddings,
        embedding_dim=part.embedding_dim,
        pooling="sum" if table.pooled else "none",
        access=access,
        features=tuple(_feature(feature, lookup) for feature in table.features for lookup in lookups),
    )


def _feature(feature: Feature, lookup: Lookup) -> Feature:
    """The physical feature of a lookup; a bag's ids are divided evenly among the lookups that share them."""
    share = feature.pooling_factor / lookup.among
    return replace(feature, name=physical(feature.name, lookup.name), pooling_factor=share)
