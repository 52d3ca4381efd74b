"""Reads a dumped ShardingPlan.

    json.dump(model.plan._serialize(), open("running.json", "w"))     # model: a DistributedModelParallel

The dump is `{"plan": {module: {table: {sharding_type, compute_kernel, ranks, shards}}}}` (torchrec 1.8,
distributed/types.py).
"""

from recsmith._types import noun
from recsmith.files import Raw, decode
from recsmith.plans.running.tables import RunningPlan, RunningTable, plan_of, rectangle, table_of


@noun
class _Shard:
    shard_offsets: tuple[int, int]
    shard_sizes: tuple[int, int]
    placement: str


@noun
class _Parameter:
    sharding_type: str
    compute_kernel: str
    ranks: tuple[int, ...] | None = None
    shards: tuple[_Shard, ...] | None = None


@noun
class _Dump:
    plan: dict[str, dict[str, _Parameter]]


def is_dump(raw: Raw) -> bool:
    """Whether plain data is a dumped ShardingPlan."""
    return set(raw) == {"plan"}


def read_dump(raw: Raw, source: str) -> RunningPlan:
    """The plan of a dumped ShardingPlan; CorruptFile where it is none."""
    modules = decode(_Dump, raw, source).plan
    return plan_of(
        [
            _table(module, name, parameter, source)
            for module, parameters in modules.items()
            for name, parameter in parameters.items()
        ]
    )


def _table(module: str, name: str, parameter: _Parameter, source: str) -> RunningTable:
    shards = [
        rectangle(name, shard.shard_offsets, shard.shard_sizes, shard.placement, source)
        for shard in parameter.shards or ()
    ]
    return table_of(module, name, parameter.sharding_type, parameter.compute_kernel, parameter.ranks, shards, source)
