"""Bytes that a rank's own batch takes in a step, in addition to the lookups of its shards, by content."""

from collections.abc import Sequence

from recsmith._types import noun
from recsmith.plans import Placement
from recsmith.problems.memory import local_batch_bytes
from recsmith.workloads import Workload

ALL_TO_ALL = ("table_wise", "column_wise")  # pooled outputs arrive as columns, which the backward pass sorts by rank


@noun
class BatchParts:
    """Bytes of the local batch, of the embeddings returned for it, and of their gradients.

    gradients: gradients until they are sent; those sent by an all-to-all count twice, for the copy sorted by rank.
    kept: gradients of sequences that are still there while rows are looked up for the update.
    """

    ids: float
    outputs: float
    gradients: float
    kept: float


def batch_parts(workload: Workload, placements: Sequence[Placement], world_size: int) -> BatchParts:
    """The batch parts of every rank; a single rank sends nothing, because its lookups are its outputs."""
    types = {placement.table: placement.sharding_type for placement in placements}
    ids, outputs, gradients, kept = 0.0, 0.0, 0.0, 0.0
    for table in workload.tables:
        asked, given = local_batch_bytes(table, workload)
        outputs += given
        if world_size > 1 and types[table.name] != "data_parallel":  # data_parallel looks up in the local batch itself
            ids += asked
            if table.pooled:
                gradients += given * (2 if types[table.name] in ALL_TO_ALL else 1)
            else:
                kept += given
                gradients += 0.0 if types[table.name] in ALL_TO_ALL else given
    return BatchParts(ids=ids, outputs=outputs, gradients=gradients, kept=kept)
