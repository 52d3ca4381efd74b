"""Bytes of what a rank has of a batch wherever tables are stored: its own samples' ids, and the embeddings for them."""

from recsmith.problems.demand import Demand
from recsmith.workloads import Table, Workload

BAG_BYTES = 16  # a length and an offset of each bag, int64 each
OUTPUT_BYTES = 4  # embeddings arrive as fp32


def local_batch_bytes(table: Table, workload: Workload) -> tuple[float, float]:
    """(bytes of ids, lengths and offsets, bytes of outputs) that a table adds to the local batch of a step."""
    asked = Demand.of(workload, (table,))
    ids, bags = float(asked.ids[0]), float(workload.batch_size * len(table.features))
    given = float(asked.bags[0]) * table.embedding_dim * OUTPUT_BYTES
    return ids * (12 if table.weighted else 8) + bags * BAG_BYTES, given
