"""Which inputs of a dense layer come from which feature or column, in the built-in models; imports no torch.

With a new feature, the first layer after the features has more inputs. By these names, weights of the former inputs are
loaded at their new positions.
"""

from itertools import combinations

from recsmith.data import DataSchema
from recsmith.training.run import RunModel
from recsmith.training.run.tables import tables_of

DENSE = "dense columns"  # name of the inputs that the first layers make of dense columns


def inputs_of(model: RunModel, schema: DataSchema) -> list[list[str]]:
    """Names of the inputs of the layer that reads columns, and of the one that reads features, each in order.

    Empty for models that are not known here.
    """
    columns = [f"column {name}" for name in schema.dense]
    if model.table_module is not None or model.compression:
        return []
    features = list[str]()
    for table in tables_of(model, schema):
        if table.pooling != "none":
            features += [f"{name}@{table.name}" if name in features else name for name in table.features]
    if model.name == "dlrm":
        pairs = ["*".join(sorted(pair)) for pair in combinations([DENSE, *features], 2)]
        return [columns, [*_numbered(DENSE, model.embedding_dim), *pairs]]
    if model.name in ("dlrm_dcn", "deepfm"):
        return [columns, [each for name in (DENSE, *features) for each in _numbered(name, model.embedding_dim)]]
    return []


def _numbered(name: str, count: int) -> list[str]:
    return [f"{name} {number}" for number in range(count)]
