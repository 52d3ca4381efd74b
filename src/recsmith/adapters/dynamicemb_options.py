"""Options of NVIDIA's dynamicemb (corelib/dynamicemb of NVIDIA/recsys-examples) to and from tables of ids without end.

Facts are of its DynamicEmb_APIs.md (June 2026): `score_strategy` TIMESTAMP and STEP evict what was seen longest ago,
LFU what was seen least, NO_EVICTION nothing; `FrequencyAdmissionStrategy(threshold=...)` keeps rarer ids out;
`global_hbm_for_values` bytes of values, with their optimizer state, are on the devices, the rest in host memory, and
keys are on the devices in any case. The package needs a GPU: these functions take its objects, or the same fields as
plain data, and give plain data.
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
BUCKET = 128  # rows of a bucket where nothing is said: rows of a rank are whole buckets


def dynamic_of_options(options: Any, table: str) -> Dynamic:
    """How ids get rows under some DynamicEmbTableOptions, given as the object or as its fields by name.

    Raises:
        UsageError: the score is customized, which says nothing of who loses a row, or there are several.
    """
    names = _strategies(_field(options, "score_strategy"))
    if set(names) == {"TIMESTAMP", "LFU"}:
        names = ("LFU",)  # ranked by frequency; the times are for dumps
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
    """The fields of DynamicEmbTableOptions for a table of ids without end, as plain data.

    on_device: share of the values that devices hold, such as the cache factor of a plan.

    Raises:
        UsageError: the table has no ids without end, or evicts by age, which dynamicemb does not.
    """
    if table.dynamic is None:
        raise UsageError(f"table '{table.name}' has no ids without end; give it `dynamic`")
    if table.dynamic.evict not in WRITTEN:
        raise UsageError(
            f"dynamicemb evicts no ids by {table.dynamic.evict}, and table '{table.name}' does; take "
            f"{', '.join(WRITTEN)}"
        )
    kept = find_optimizer(optimizer)
    rows = BUCKET * math.ceil(math.ceil(table.num_embeddings / world_size) / BUCKET)  # of a rank
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
    """Names of one strategy or several, as text or members of the package's enum."""
    several: tuple[Any, ...] = (
        tuple(value) if isinstance(value, tuple | list) else ("TIMESTAMP" if value is None else value,)
    )
    return tuple(str(getattr(each, "name", each)) for each in several)
