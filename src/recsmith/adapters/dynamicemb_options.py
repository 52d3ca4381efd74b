"""Converts dynamic tables (tables of ids without end) to and from the options of NVIDIA's dynamicemb.

The package is corelib/dynamicemb of NVIDIA/recsys-examples, the facts are from its DynamicEmb_APIs.md (June 2026).
`score_strategy` TIMESTAMP and STEP evict the least recently seen id, LFU the least frequent one, NO_EVICTION none.
`FrequencyAdmissionStrategy(threshold=...)` keeps rarer ids out. `global_hbm_for_values` bytes of values, with their
optimizer state, are on the devices and the rest in host memory; keys are always on the devices. The package needs a
GPU, so these functions take its objects, or the same fields as plain data, and return plain data.
"""

import math
from collections.abc import Mapping
from typing import Any

from recsmith.errors import UsageError
from recsmith.sharding.memory import STATE_BYTES
from recsmith.workloads import Dynamic, Table
from recsmith.workloads.dynamic import Eviction
from recsmith.workloads.optimizers import find_optimizer

STRATEGIES: dict[str, Eviction] = {"TIMESTAMP": "lru", "STEP": "lru", "LFU": "lfu", "NO_EVICTION": "none"}
WRITTEN: dict[Eviction, str] = {"lru": "TIMESTAMP", "lfu": "LFU", "none": "NO_EVICTION"}
BUCKET = 128  # rows per bucket by default; each rank has a whole number of buckets


def dynamic_of_options(options: Any, table: str) -> Dynamic:
    """The eviction and admission of ids under DynamicEmbTableOptions, given as the object or as its fields by name.

    Raises:
        UsageError: there are several score strategies or a custom score, so that the evicted ids are not known; or ids
            are admitted by a strategy without a threshold.
    """
    names = _strategies(_field(options, "score_strategy"))
    if set(names) == {"TIMESTAMP", "LFU"}:
        names = ("LFU",)  # ids are ranked by frequency; the timestamps are only used for dumps
    if len(names) != 1 or names[0] not in STRATEGIES or _field(options, "score_function") is not None:
        scored = " with a score_function" if _field(options, "score_function") is not None else ""
        raise UsageError(
            f"dynamicemb options of table '{table}' have score_strategy {', '.join(names)}{scored}, by which nobody "
            f"knows which id loses its row; take one of {', '.join(STRATEGIES)}"
        )
    strategy = _field(options, "admit_strategy")
    threshold = 1 if strategy is None else _field(strategy, "threshold")
    if not isinstance(threshold, int):
        raise UsageError(
            f"dynamicemb options of table '{table}' admit ids by {type(strategy).__name__}, which has no threshold; "
            "take FrequencyAdmissionStrategy"
        )
    return Dynamic(evict=STRATEGIES[names[0]], admit=max(1, threshold))


def options_of_table(table: Table, *, world_size: int, optimizer: str, on_device: float = 1.0) -> dict[str, Any]:
    """The fields of DynamicEmbTableOptions for a dynamic table, as plain data.

    Args:
        table: the table, which has `dynamic`.
        world_size: number of ranks.
        optimizer: RecSmith's name of the optimizer, whose state is stored with the values.
        on_device: fraction of the values in device memory, such as the cache factor of a plan.

    Raises:
        UsageError: the table has no `dynamic`, or an eviction that dynamicemb lacks, such as by age.
    """
    if table.dynamic is None:
        raise UsageError(f"table '{table.name}' has no ids without end; give it `dynamic`")
    if table.dynamic.evict not in WRITTEN:
        raise UsageError(
            f"dynamicemb evicts no ids by {table.dynamic.evict}, and table '{table.name}' does; take "
            f"{', '.join(WRITTEN)}"
        )
    kept = find_optimizer(optimizer)
    rows = BUCKET * math.ceil(math.ceil(table.num_embeddings / world_size) / BUCKET)  # per rank
    value = table.embedding_dim * table.element_bytes + STATE_BYTES * (
        kept.element_states * table.embedding_dim + kept.row_states
    )
    made: dict[str, Any] = {
        "score_strategy": WRITTEN[table.dynamic.evict], "bucket_capacity": BUCKET,
        "global_hbm_for_values": math.ceil(rows * world_size * value * on_device), "caching": on_device < 1,
    }  # fmt: skip
    if table.dynamic.admit > 1:
        made["admit_strategy"] = {"name": "FrequencyAdmissionStrategy", "threshold": table.dynamic.admit}
    return made


def _field(value: Any, name: str) -> Any:
    if isinstance(value, Mapping):
        return value.get(name)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return getattr(value, name, None)


def _strategies(value: Any) -> tuple[str, ...]:
    """Names of one or several strategies, given as text or as members of the package's enum; TIMESTAMP by default."""
    several: tuple[Any, ...] = (
        tuple(value) if isinstance(value, tuple | list) else ("TIMESTAMP" if value is None else value,)
    )
    return tuple(str(getattr(each, "name", each)) for each in several)
