"""Parts of batches as arrays, which cross a pipe: the samples of a step that one window holds.

B samples, U distinct rows
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from recsmith._types import Ints, record
from recsmith.data import Batch, DataSchema, JaggedIds

ABOUT = "about"  # window, first slot of the step, corrupt samples


@record
class Part:
    """The samples of a step that a window holds. first: slot of the step. corrupt: samples passed over."""

    window: int
    first: int
    corrupt: int
    samples: Batch


def arrays_of(part: Part, schema: DataSchema, groups: Sequence[Sequence[str]]) -> dict[str, Any]:
    """A part as arrays by name; features and groups by their numbers."""
    samples = part.samples
    made: dict[str, Any] = {
        ABOUT: np.array([part.window, part.first, part.corrupt], np.int64),
        "dense": samples.dense, "labels": samples.labels, "sample_ids": samples.sample_ids,
    }  # fmt: skip
    for number, name in enumerate(schema.feature_names):
        bags = samples.ids[name]
        made |= {f"values.{number}": bags.values, f"lengths.{number}": bags.lengths}
        if bags.weights is not None:
            made[f"weights.{number}"] = bags.weights
    return made | {f"inverse.{number}": samples.inverse[group[0]] for number, group in enumerate(groups)}


def part_of(arrays: Mapping[str, Any], schema: DataSchema, groups: Sequence[Sequence[str]]) -> Part:
    """The part that such arrays are."""
    window, first, corrupt = arrays[ABOUT].tolist()
    ids = {
        name: JaggedIds(
            values=arrays[f"values.{number}"],
            lengths=arrays[f"lengths.{number}"],
            weights=arrays.get(f"weights.{number}"),
        )
        for number, name in enumerate(schema.feature_names)
    }
    inverse: dict[str, Ints] = {
        name: arrays[f"inverse.{number}"] for number, group in enumerate(groups) for name in group
    }
    samples = Batch(
        dense=arrays["dense"], ids=ids, labels=arrays["labels"], label_names=schema.labels,
        sample_ids=arrays["sample_ids"], inverse=inverse,
    )  # fmt: skip
    return Part(window=window, first=first, corrupt=corrupt, samples=samples)
