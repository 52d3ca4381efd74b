"""Shapes of the dense layers of a run's model, before it is built; without torch."""

from recsmith.data import DataSchema
from recsmith.prediction.models import Model, layer_shapes
from recsmith.training.run import RunModel
from recsmith.training.run.tables import tables_of

PAIRS = "dlrm"  # the model that multiplies all pairs of features


def shapes_of(model: RunModel, schema: DataSchema) -> list[tuple[int, ...]]:
    """Shapes of the dense parameters of a built-in model for data with a schema; empty for other models."""
    widths = [table.embedding_dim or model.embedding_dim for table in tables_of(model, schema) for _ in table.features]
    dense, width, columns = max(1, len(schema.dense)), model.embedding_dim, sum(widths)
    if model.name == "deepfm":
        rows = ((model.hidden, dense), (width, model.hidden), (model.factors, columns + width),
                (1, width + model.factors + 1))  # fmt: skip
        return [shape for row in rows for shape in (row, (row[0],))]
    if model.name not in ("dlrm", "dlrm_dcn"):
        return []
    described = Model(
        kind="dlrm" if model.name == PAIRS else "dlrm_dcn", dense_features=dense, bottom=model.bottom, top=model.top,
        cross_layers=model.cross_layers, cross_rank=model.cross_rank,
    )  # fmt: skip
    return layer_shapes(described, len(widths), width)
