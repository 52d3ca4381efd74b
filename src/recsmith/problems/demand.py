"""The ids, bags and outputs of a batch for each table, as arrays.

Legend: T tables.
"""

from dataclasses import dataclass

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.workloads import Table, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Per table (T,): its shape, and what the local batch of one device asks of it in a step.

    ids: rows looked up. bags: embeddings returned (poolings; for sequences, ids).
    outputs: bags as TorchRec's estimator counts them, min(1, pooling factor) for each pooling.
    """

    rows: Ints
    dim: Ints
    element_bytes: Ints
    ids: Floats
    bags: Floats
    outputs: Floats
    pooled: Bools
    mean: Bools
    weighted: Bools
    int8: Bools

    @classmethod
    def of(cls, workload: Workload, tables: tuple[Table, ...]) -> "Demand":
        """The demand of a workload on these tables."""
        asked = np.array([_asked(table, workload.batch_size) for table in tables]).reshape(-1, 3)
        return cls(
            rows=np.array([table.num_embeddings for table in tables], dtype=np.int64),
            dim=np.array([table.embedding_dim for table in tables], dtype=np.int64),
            element_bytes=np.array([table.element_bytes for table in tables], dtype=np.int64),
            ids=asked[:, 0],
            bags=asked[:, 1],
            outputs=asked[:, 2],
            pooled=np.array([table.pooled for table in tables]),
            mean=np.array([table.pooling == "mean" for table in tables]),
            weighted=np.array([table.weighted for table in tables]),
            int8=np.array([table.data_type == "int8" for table in tables]),
        )


def _asked(table: Table, batch_size: int) -> tuple[float, float, float]:
    """(ids, bags, outputs) of one local batch, summed over features by TorchRec's own operations in its order."""
    asked = [(f.pooling_factor, f.num_poolings, f.batch_size or batch_size) for f in table.features]
    ids = sum([factor * poolings * batch for factor, poolings, batch in asked])
    bags = sum([poolings * batch for _, poolings, batch in asked])
    outputs = sum([min(1.0, factor) * poolings * batch for factor, poolings, batch in asked])
    return (ids, bags, outputs) if table.pooled else (ids, ids, ids)
