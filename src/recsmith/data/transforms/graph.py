"""Applies a sequence of transforms: to a schema, to batches, and to the blocks of a source."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from recsmith._types import Bools, Ints
from recsmith.data.batch import Batch, DataFeature, DataSchema, JaggedIds, Singles, ValueMeaning
from recsmith.data.deduplication import with_runs_once
from recsmith.data.source import BlockSource, GrowingSource, SampleBlock
from recsmith.data.transforms.declared import (
    CALENDAR,
    Bucketize,
    Calendar,
    First,
    HashIds,
    MapIds,
    NGram,
    OneHot,
    ScatterIds,
    Transform,
    operation,
    transform_to_raw,
)  # fmt: skip
from recsmith.data.transforms.operations import bucket, dense_of, ids_of
from recsmith.errors import CorruptFile, UsageError
from recsmith.files import did_you_mean

Sparse = HashIds | ScatterIds | First | NGram | MapIds | Calendar


class TransformGraph:
    """Transforms of a schema's samples, applied in order: each may read what earlier ones wrote.

    The attribute `schema` is the schema of the transformed samples.

    Raises:
        UsageError: a transform reads a feature or a column that does not exist, or overwrites one of another kind.
    """

    def __init__(self, schema: DataSchema, transforms: Sequence[Transform]) -> None:
        self.before, self.transforms = schema, tuple(transforms)
        for number, transform in enumerate(self.transforms):
            schema = _schema_after(schema, transform, f"transform {number + 1} ({operation(transform)})")
        before = schema.values or ValueMeaning()
        made = (*before.transforms, *(transform_to_raw(each) for each in self.transforms))
        self.schema = replace(schema, values=replace(before, transforms=made))

    @property
    def read_features(self) -> tuple[str, ...]:
        """Features of the input schema that at least one transform reads."""
        read = {each.feature for each in self.transforms if isinstance(each, Sparse)}
        return tuple(name for name in self.before.feature_names if name in read)

    def apply(self, samples: Batch) -> tuple[Batch, dict[str, Bools]]:
        """(transformed samples, by what is wrong with them those for which a transform has no result (B,)).

        Of deduplicated features only the distinct bags are transformed. Cost: a few passes over ids and values.
        """
        state = _State(samples, self.before.dense)
        for transform in self.transforms:
            state.take(transform)
        return state.batch(self.schema), state.wrong


def first_problem(wrong: dict[str, Bools], sample_ids: Ints) -> str:
    """What is wrong with the first sample for which a transform has no result."""
    row, problem = min(((int(mask.argmax()), problem) for problem, mask in wrong.items()), key=lambda each: each[0])
    return f"{problem} of sample {int(sample_ids[row]):,}"


class _State:
    """The ids, dense columns and wrong samples of a block after the transforms applied so far."""

    def __init__(self, samples: Batch, dense: tuple[str, ...]) -> None:
        self.samples, self.ids, self.inverse = samples, dict(samples.ids), dict(samples.inverse)
        self.dense: dict[str, Singles] = {name: samples.dense[:, at] for at, name in enumerate(dense)}
        self.wrong: dict[str, Bools] = {}

    def take(self, transform: Transform) -> None:
        if isinstance(transform, Sparse):
            bags, wrong = ids_of(transform, self.ids[transform.feature])
            row = self.inverse.get(transform.feature)
            self._keep_ids(transform.into or transform.feature, bags, row)
            self._note(wrong if wrong is None or row is None else wrong[row], transform, transform.feature)
        elif isinstance(transform, Bucketize):
            bags, wrong = bucket(transform, self.dense[transform.dense])
            self._keep_ids(transform.into, bags, None)
            self._note(wrong, transform, transform.dense)
        else:
            columns, wrong = dense_of(transform, self.dense[transform.dense])
            self.dense.update(zip(_columns(transform), columns, strict=True))
            self._note(wrong, transform, transform.dense)

    def batch(self, schema: DataSchema) -> Batch:
        columns = [self.dense[name] for name in schema.dense]
        nothing = np.zeros((len(self.samples), 0), np.float32)
        return replace(
            self.samples, ids={name: self.ids[name] for name in schema.feature_names}, inverse=self.inverse,
            dense=np.stack(columns, axis=1) if columns else nothing,
        )  # fmt: skip

    def _keep_ids(self, name: str, bags: JaggedIds, row: "np.ndarray[tuple[int], np.dtype[np.int64]] | None") -> None:
        self.ids[name] = bags
        self.inverse.pop(name, None)
        if row is not None:
            self.inverse[name] = row

    def _note(self, wrong: Bools | None, transform: Transform, name: str) -> None:
        if wrong is not None and wrong.any():
            problem = f"{operation(transform)} has no outcome for '{name}'"
            self.wrong[problem] = wrong | self.wrong.get(problem, False)


def _schema_after(schema: DataSchema, transform: Transform, what: str) -> DataSchema:
    if isinstance(transform, Sparse):
        known = {feature.name: feature for feature in schema.features}
        if transform.feature not in known:
            near = did_you_mean(transform.feature, list(known))
            raise UsageError(f"{what} reads feature '{transform.feature}', which is not there{near}")
        return _with_feature(schema, _feature(transform, known[transform.feature]), what)
    if transform.dense not in schema.dense:
        near = did_you_mean(transform.dense, list(schema.dense))
        raise UsageError(f"{what} reads dense column '{transform.dense}', which is not there{near}")
    if isinstance(transform, Bucketize):
        rows = len(transform.borders) + 1
        made = DataFeature(name=transform.into, num_embeddings=rows, pooling_factor=1.0, single=True)
        return _with_feature(schema, made, what)
    taken = next((n for n in _columns(transform) if n in (*schema.feature_names, *schema.labels)), None)
    if taken is not None:
        raise UsageError(f"{what} writes dense column '{taken}', which is no dense column; give another name (into)")
    new = tuple(name for name in _columns(transform) if name not in schema.dense)
    return replace(schema, dense=(*schema.dense, *new))


def _with_feature(schema: DataSchema, made: DataFeature, what: str) -> DataSchema:
    if made.name in (*schema.dense, *schema.labels):
        raise UsageError(f"{what} writes feature '{made.name}', which is no feature; give another name (into)")
    if made.name in schema.feature_names:
        kept = (made if each.name == made.name else each for each in schema.features)
        return replace(schema, features=tuple(kept))
    return replace(schema, features=(*schema.features, made))


def _feature(transform: Sparse, read: DataFeature) -> DataFeature:
    """The feature that a transform of ids writes."""
    name, mean = transform.into or transform.feature, read.pooling_factor
    if isinstance(transform, First):
        shorter = mean is not None and mean > transform.count
        return replace(read, name=name, pooling_factor=float(transform.count) if shorter else mean)
    if isinstance(transform, NGram):
        return DataFeature(name=name, num_embeddings=transform.num_embeddings)
    if isinstance(transform, Calendar):
        rows = CALENDAR[transform.part]
    else:
        rows = transform.num_embeddings if isinstance(transform, HashIds | ScatterIds) else len(transform.ids) + 1
    return replace(read, name=name, num_embeddings=rows, zipf=None)


def _columns(transform: Transform) -> list[str]:
    assert not isinstance(transform, Sparse | Bucketize)
    name = transform.into or transform.dense
    return [f"{name}_{at}" for at in range(len(transform.values))] if isinstance(transform, OneHot) else [name]


class TransformedSource:
    """The blocks of another source, transformed.

    wrong: `skip` counts samples without a result as corrupt, and allows a rank to skip max_wrong further samples in an
    epoch; `stop` raises CorruptFile, which names the transform and the sample.
    """

    def __init__(
        self, source: BlockSource, transforms: Sequence[Transform], wrong: Literal["skip", "stop"] = "stop",
        max_wrong: int = 0,
    ) -> None:  # fmt: skip
        self.source, self.wrong, self.graph = source, wrong, TransformGraph(source.schema, transforms)
        self.schema, self.max_corrupt = self.graph.schema, source.max_corrupt + (max_wrong if wrong == "skip" else 0)

    @property
    def num_samples(self) -> int | None:
        """Number of samples; None if they have not been counted yet."""
        return self.source.num_samples

    @property
    def files(self) -> tuple[tuple[int, int], ...]:
        """Ranges of blocks that can only be read one after the other, each as (first, last + 1)."""
        return self.source.files

    @property
    def digest(self) -> str:
        """Digest of the data, the transforms and `wrong`."""
        return self._digest_of(self.source.digest)

    def _digest_of(self, source: str) -> str:
        transforms = json.dumps([transform_to_raw(each) for each in self.graph.transforms], sort_keys=True)
        return hashlib.sha256(f"{source} {self.wrong} {transforms}".encode()).hexdigest()[:16]

    def earlier(self) -> dict[str, int]:
        """By the digest that the data had with fewer files, the number of blocks that it had then."""
        earlier = self.source.earlier() if isinstance(self.source, GrowingSource) else {}
        return {self._digest_of(digest): blocks for digest, blocks in earlier.items()}

    def sizes(self) -> Ints:
        """Number of samples in each block."""
        return self.source.sizes()

    def read(self, block: int) -> SampleBlock:
        """The transformed samples of a block; runs of equal bags are transformed once, if a feature has many."""
        found = self.source.read(block)
        samples, wrong = self.graph.apply(with_runs_once(found.samples, self.graph.read_features))
        if found.valid is not None:  # a corrupt row holds values that its format filled in
            wrong = {problem: mask & found.valid for problem, mask in wrong.items()}
        wrong, found = {problem: mask for problem, mask in wrong.items() if mask.any()}, replace(found, samples=samples)
        if not wrong:
            return found
        first = first_problem(wrong, samples.sample_ids)
        if self.wrong == "stop":
            raise CorruptFile(f"{first}; mend it, or pass over such samples with `wrong: skip`")
        return found.marked({f"samples where {problem}": mask for problem, mask in wrong.items()}, first)
