"""Plans of five small tables, and the model around them."""

from dataclasses import replace
from functools import cache

import recsmith
from recsmith.plans import Plan
from recsmith.prediction.models import Model

DLRM = Model(kind="dlrm")
ROWS = (1000, 4000, 500, 20_000, 800)
POOLING = (3.0, 1.0, 20.0, 7.0, 2.0)


def a_plan(ranks: tuple[int, ...], rows: tuple[int, ...] = ROWS) -> Plan:
    """Whole tables on these ranks, of as many as that takes and of two at least."""
    made = _planned(max(2, 1 + max(ranks)), rows)
    placements = tuple(replace(old, ranks=(ranks[int(old.table[1:])],)) for old in made.placements)
    return replace(made, placements=placements, digest="")


@cache
def _planned(world: int, rows: tuple[int, ...]) -> Plan:
    tables = tuple(
        recsmith.Table(name=f"t{i}", num_embeddings=each, embedding_dim=16,
                       features=(recsmith.Feature(name=f"f{i}", pooling_factor=POOLING[i]),))
        for i, each in enumerate(rows)
    )  # fmt: skip
    workload = recsmith.Workload(batch_size=64, optimizer="sgd", tables=tables)
    space = recsmith.Space(types=("table_wise",), kernels=("fused",))
    return recsmith.plan(workload, f"cpu:{world}", planner="size_greedy", space=space).plan
