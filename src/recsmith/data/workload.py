"""Workloads for the planner from what datasets hold, and generated data like that of a workload."""

from recsmith.data.generator import GeneratedFeature, GeneratorSpec
from recsmith.data.schema import DataFeature, DataSchema
from recsmith.errors import UsageError
from recsmith.workloads import AccessProfile, Feature, Table, Workload
from recsmith.workloads.optimizers import OptimizerName

EMBEDDING_DIM = 64  # of every table, unless another is given
FULL_BAG = 1.0  # ids in a bag, where their mean is not known


def schema_workload(
    schema: DataSchema,
    *,
    batch_size: int,
    embedding_dim: int = EMBEDDING_DIM,
    optimizer: OptimizerName = "rowwise_adagrad",
    name: str = "",
) -> Workload:
    """The workload of a model with a table for each feature of a dataset, as the planner takes it.

    Raises:
        UsageError: how many rows a feature's table needs is not known.
    """
    unknown = next((each.name for each in schema.features if each.num_embeddings is None), None)
    if unknown is not None:
        raise UsageError(f"the rows of feature '{unknown}' are not known; give its num_embeddings in the spec")
    tables = tuple(_table(each, embedding_dim) for each in schema.features)
    return Workload(batch_size=batch_size, optimizer=optimizer, tables=tables, name=name)


def _table(feature: DataFeature, embedding_dim: int) -> Table:
    pooling = FULL_BAG if feature.pooling_factor is None else feature.pooling_factor
    return Table(
        name=feature.name,
        num_embeddings=feature.num_embeddings or 1,
        embedding_dim=embedding_dim,
        features=(Feature(name=feature.name, pooling_factor=pooling, weighted=feature.weighted),),
        access=None if feature.zipf is None else AccessProfile(zipf=feature.zipf),
    )


def generator_like(workload: Workload, *, num_samples: int, dense: int = 13, seed: int = 0) -> GeneratorSpec:
    """Generated data that reads the tables of a workload: a feature for each of its own, as many ids, as unevenly.

    Bags of a fractional pooling factor are Poisson. A table without a Zipf exponent has the fitted one.
    """
    features = tuple(
        GeneratedFeature(
            name=feature.name,
            num_embeddings=table.num_embeddings,
            pooling_factor=feature.pooling_factor,
            lengths="fixed" if feature.pooling_factor == int(feature.pooling_factor) else "poisson",
            zipf=table.access.zipf if table.access else None,
        )
        for table in workload.tables
        for feature in table.features
    )
    return GeneratorSpec(num_samples=num_samples, features=features, dense=dense, seed=seed)
