"""The values that samples may hold: one rule for all readers of data and for served models.

Labels are probabilities, 0 to 1, or any finite number if the schema lists them in number_labels. Labels that
missing_labels lists may be missing, but no sample may lack all labels. Dense values and weights are finite. Ids are
rows of their tables.

B samples, n ids
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from recsmith._types import Bools, Ints
from recsmith.data.batch import Batch, DataSchema
from recsmith.data.source import BlockSource, SampleBlock
from recsmith.errors import CorruptFile

Faults = dict[str, tuple[Bools, str]]  # by kind of fault: which samples have it (B,), and what the first one holds
LABELS = "labels are 0 to 1; map other scales to it first"
NUMBERS = "labels that are numbers are finite"
WEIGHTS = "weights of samples are finite and 0 or more"
MOST_IDS = 2**63 - 1  # bound of the ids of a feature without a table
FINITE = "dense values and weights are finite numbers"
OFFERED = ("column_names", "column", "earlier", "lengths")  # what a format may offer beside `rows`, which is checked


def wrong_values(samples: Batch, schema: DataSchema) -> Faults:
    """Faults of labels, dense values and weights: which samples have each (B,), and the first value; empty if none."""
    found: dict[str, tuple[Bools, str]] = {}

    def note(what: str, rule: str, rows: Bools, value: float) -> None:
        found[f"{what} outside its range ({rule})"] = rows, f"{what} {value:.6g}, and {rule}"

    dense, dense_names = samples.dense, schema.dense
    found |= wrong_labels(samples, schema)
    finite = np.isfinite(dense)
    for at in np.flatnonzero(~finite.all(axis=0)).tolist():
        rows = ~finite[:, at]
        note(f"dense value '{dense_names[at]}'", FINITE, rows, float(dense[rows, at][0]))
    if samples.weights is not None:
        right = np.isfinite(samples.weights) & (samples.weights >= 0)
        if not right.all():
            note("weight of a sample", WEIGHTS, ~right, float(samples.weights[~right][0]))
    for name, bags in samples.ids.items():
        if bags.weights is not None and not np.isfinite(bags.weights).all():
            wrong = ~np.isfinite(bags.weights)
            owners = np.repeat(np.arange(len(bags.lengths)), bags.lengths)[wrong]
            of_bags = np.bincount(owners, minlength=len(bags.lengths)) > 0
            rows = of_bags[samples.inverse[name]] if name in samples.inverse else of_bags
            note(f"weight of '{name}'", FINITE, rows, float(bags.weights[wrong][0]))
    return found


def wrong_labels(samples: Batch, schema: DataSchema) -> Faults:
    """Faults of labels: which samples have each (B,), and the first wrong value."""
    found: dict[str, tuple[Bools, str]] = {}
    labels, names = samples.labels, samples.label_names
    right = (labels >= 0) & (labels <= 1)
    for at, name in enumerate(names):
        if name in schema.number_labels:
            right[:, at] = np.isfinite(labels[:, at])
        if name in schema.missing_labels:
            right[:, at] |= np.isnan(labels[:, at])
    for at in np.flatnonzero(~right.all(axis=0)).tolist():
        rule = NUMBERS if names[at] in schema.number_labels else LABELS
        rows, what = ~right[:, at], f"label '{names[at]}'"
        found[f"{what} outside its range ({rule})"] = rows, f"{what} {float(labels[rows, at][0]):.6g}, and {rule}"
    none: Bools = np.asarray(np.isnan(labels).all(axis=1))
    if schema.missing_labels and none.any():
        found["rows without any label"] = none, "no label; samples have one at least"
    return found


def in_domain(block: SampleBlock, schema: DataSchema, place: str) -> SampleBlock:
    """The block with samples whose values are not allowed marked as corrupt. place: where its rows are, for errors."""
    found = wrong_values(block.samples, schema)
    return without_faults(block, {what: (rows, f"has {said}") for what, (rows, said) in found.items()}, place)


def without_faults(block: SampleBlock, faults: Faults, place: str) -> SampleBlock:
    """The block with samples that have a fault marked as corrupt. place: where its rows are, for errors."""
    if not faults:
        return block
    rows = {int(mask.argmax()): text for mask, text in reversed(faults.values())}
    first = min(rows)
    return block.marked({cause: mask for cause, (mask, _) in faults.items()}, f"row {first} {place} {rows[first]}")


def id_outside(ids: npt.NDArray[np.integer[Any]], rows: int) -> int | None:
    """An id that is no row of its table: the least id if it is negative, else the largest; None if all are rows."""
    if not len(ids) or (ids.min() >= 0 and ids.max() < rows):
        return None
    return int(ids.min() if ids.min() < 0 else ids.max())


def check_ids(ids: npt.NDArray[np.integer[Any]], rows: int, what: str) -> None:
    """Refuse ids that are no rows of their table. what: the name of the ids in errors, such as "column 'user'".

    Raises:
        CorruptFile: an id is negative or too large.
    """
    wrong = id_outside(ids, rows)
    if wrong is not None and rows >= MOST_IDS:
        raise CorruptFile(
            f"{what} holds the id {wrong}, and raw ids are whole numbers from 0 on, below 2^63; give `ids: modulo`, or "
            "a vocabulary"
        )
    if wrong is not None:
        cure = "leave it out" if wrong < 0 else "give a larger num_embeddings"
        raise CorruptFile(f"{what} holds the id {wrong}, and its table has {rows:,} rows; {cure}, or `ids: modulo`")


class CheckedSource:
    """A source from outside RecSmith, whose blocks get the same checks as those of RecSmith's own formats."""

    def __init__(self, source: BlockSource, name: str) -> None:
        self.source, self.name = source, name
        self._table_rows = {each.name: each.num_embeddings for each in source.schema.features}
        for each in OFFERED:  # set here, because from Python 3.12 on isinstance of a protocol does not ask __getattr__
            if hasattr(source, each):
                setattr(self, each, getattr(source, each))
        if hasattr(source, "rows"):
            self.rows = self._rows

    def __getattr__(self, name: str) -> Any:
        """All other attributes are those of the wrapped source."""
        return getattr(self.source, name)

    def read(self, block: int) -> SampleBlock:
        """The samples of a block; raises CorruptFile if an id is outside its table."""
        return self._checked(self.source.read(block), f"of block {block} of '{self.name}'")

    def _rows(self, block: int, rows: Ints) -> SampleBlock:
        """The given rows of a block, in the given order; raises CorruptFile if an id is outside its table."""
        made: Any = self.source
        return self._checked(made.rows(block, rows), f"of {len(rows):,} rows of block {block} of '{self.name}'")

    def _checked(self, found: SampleBlock, place: str) -> SampleBlock:
        for name, bags in found.samples.ids.items():
            check_ids(bags.values, self._table_rows[name] or 2**63, f"{place}: feature '{name}'")
        return in_domain(found, self.source.schema, place)
