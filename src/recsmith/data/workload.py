"""Workloads for the planner, counted from datasets or taken from their schemas, and generated data like a workload."""

import math
import warnings

import numpy as np

from recsmith.data.batch import DataFeature, DataSchema, JaggedIds
from recsmith.data.dataset import Dataset
from recsmith.data.figures import distinct_bags, first_samples
from recsmith.data.generator.spec import GeneratedFeature, GeneratorSpec
from recsmith.errors import UsageError
from recsmith.workloads import AccessProfile, Feature, Table, Workload
from recsmith.workloads.optimizers import OptimizerName
from recsmith.workloads.row_blocks import access_of_ids

EMBEDDING_DIM = 64  # default embedding dimension of every table
REPEATED = 1.5  # samples per distinct bag from which a feature is deduplicated: there is no step here to price it by
FULL_BAG = 1.0  # ids in a bag if their mean is not known


def schema_workload(
    schema: DataSchema,
    *,
    batch_size: int,
    embedding_dim: int = EMBEDDING_DIM,
    optimizer: OptimizerName = "rowwise_adagrad",
    name: str = "",
) -> Workload:
    """The planner's workload of a model with one table per feature, from a dataset's schema alone.

    Raises:
        UsageError: the number of rows of a feature's table is not known.
    """
    unknown = next((each.name for each in schema.features if each.num_embeddings is None), None)
    if unknown is not None:
        raise UsageError(f"the rows of feature '{unknown}' are not known; give its num_embeddings in the spec")
    tables = tuple(_declared_table(each, embedding_dim) for each in schema.features)
    return Workload(batch_size=batch_size, optimizer=optimizer, tables=tables, name=name)


def _declared_table(feature: DataFeature, embedding_dim: int) -> Table:
    pooling = FULL_BAG if feature.pooling_factor is None else feature.pooling_factor
    return Table(
        name=feature.name,
        num_embeddings=feature.num_embeddings or 1,
        embedding_dim=embedding_dim,
        features=(Feature(name=feature.name, pooling_factor=pooling, weighted=feature.weighted),),
        access=None if feature.zipf is None else AccessProfile(zipf=feature.zipf),
    )


def generator_like(workload: Workload, *, num_samples: int, dense: int = 13, seed: int = 0) -> GeneratorSpec:
    """Spec of generated data like a workload's: its features, with as many ids per bag, read with the same skew.

    Bag lengths are Poisson if the pooling factor is fractional; weights are uniform between 0 and 1. A table without a
    Zipf exponent gets the fitted one. Data has no notion of shared tables, so a table that several features read causes
    a warning: a model made from the data's schema has one table for each of them.
    """
    shared = {table.name: [each.name for each in table.features] for table in workload.tables if table.features[1:]}
    if shared:
        text = "; ".join(f"'{name}': {', '.join(features)}" for name, features in shared.items())
        warnings.warn(
            f"generated data has a table for each feature, and these are read by several ({text}); give a model of "
            "your own the shared tables",
            stacklevel=2,
        )
    features = tuple(
        GeneratedFeature(
            name=feature.name,
            num_embeddings=table.num_embeddings,
            pooling_factor=feature.pooling_factor,
            lengths="fixed" if feature.pooling_factor == int(feature.pooling_factor) else "poisson",
            zipf=table.access.zipf if table.access else None,
            weighted=feature.weighted,
        )
        for table in workload.tables
        for feature in table.features
    )
    return GeneratorSpec(num_samples=num_samples, features=features, dense=dense, seed=seed)


def counted_workload(
    dataset: Dataset,
    *,
    batch_size: int,
    samples: int,
    embedding_dim: int = EMBEDDING_DIM,
    optimizer: OptimizerName = "rowwise_adagrad",
    deduplicate: bool = False,
    name: str = "",
) -> Workload:
    """The workload of a model with one table per feature, counted in the first `samples` samples or more.

    deduplicate: features with at least 1.5 samples per distinct bag in a batch look up the distinct bags only, so their
    batch is smaller by that factor. A training run, whose step is known, decides by the step's cost instead.

    Raises:
        UsageError: there are no samples, or the number of rows of a feature's table is not known.
    """
    read, _, _ = first_samples(dataset, samples)
    if not len(read):
        raise UsageError("the data holds no samples; name data that has some")
    tables = tuple(
        _counted_table(feature, read.ids[feature.name], batch_size, embedding_dim, deduplicate)
        for feature in dataset.schema.features
    )
    return Workload(batch_size=batch_size, optimizer=optimizer, tables=tables, name=name)


def _counted_table(
    feature: DataFeature, bags: JaggedIds, batch_size: int, embedding_dim: int, deduplicate: bool
) -> Table:
    if feature.num_embeddings is None:
        raise UsageError(f"the rows of feature '{feature.name}' are not known; give its num_embeddings in the spec")
    samples = len(bags.lengths)
    if deduplicate:
        bags = _repeating(bags, batch_size)
    of_batch = math.ceil(batch_size * len(bags.lengths) / samples)
    return Table(
        name=feature.name,
        num_embeddings=feature.num_embeddings,
        embedding_dim=embedding_dim,
        features=(
            Feature(
                name=feature.name,
                pooling_factor=len(bags.values) / len(bags.lengths),
                weighted=feature.weighted,
                batch_size=None if len(bags.lengths) == samples else of_batch,
            ),
        ),
        access=access_of_ids(bags.values, feature.num_embeddings, _ends(bags, of_batch)),
    )


def _ends(bags: JaggedIds, of_batch: int) -> list[int]:
    """Where the ids of each batch of `of_batch` bags end."""
    return np.cumsum(bags.lengths, dtype=np.int64)[of_batch - 1 : -1 : of_batch].tolist()


def _repeating(bags: JaggedIds, batch_size: int) -> JaggedIds:
    """The distinct bags of each batch if enough bags repeat and that saves ids; otherwise all bags."""
    rows = distinct_bags(bags, batch_size)
    found = bags.take(rows)
    gains = len(bags.lengths) >= REPEATED * len(rows) and len(found.values) < len(bags.values)
    return found if gains else bags
