"""A plan as its page draws it: every table with its pieces, where each lies, and how large it is."""

from recsmith.files import Raw, encode
from recsmith.plans import Placement, Plan, inexact_tables
from recsmith.sharding import Span
from recsmith.workloads import Table


def plan_data(plan: Plan) -> Raw:
    """Plain data: seconds and bytes of every device, and the tables in order of their names."""
    tables = {table.name: table for table in plan.workload.tables}
    return {
        "cost": encode(plan.cost),
        "bound": encode(plan.bound) | {"value_s": plan.bound.value_s},
        "tables": [_table(tables[placement.table], placement, plan) for placement in plan.placements],
        "inexact": inexact_tables(plan),
        "batch_size": plan.workload.batch_size,
        "optimizer": plan.workload.optimizer,
        "hosts": plan.cluster.hosts,
        "local_world_size": plan.cluster.local_world_size,
    }


def _table(table: Table, placement: Placement, plan: Plan) -> Raw:
    """A table. ranks: the first of each column piece, which covers `span` of them: 1, those of a host, or all."""
    kind = placement.kind
    targets = kind.targets(placement.ranks, plan.cluster)
    span = kind.coverage(plan.cluster)
    return {
        "name": table.name,
        "rows": table.num_embeddings,
        "columns": table.embedding_dim,
        "weight_bytes": table.weight_bytes,
        "ids": sum(feature.pooling_factor * feature.num_poolings for feature in table.features),
        "sharding_type": placement.sharding_type,
        "compute_kernel": placement.compute_kernel,
        "widths": list(placement.widths_of(table.embedding_dim)),
        "ranks": [target * span for target in targets],
        "span": span,
        "movable": kind.span != Span.WORLD,
    }
