"""How each field of TorchRec's ParameterConstraints is treated: carried into the sharding plan, counted, or refused.

TorchRec's own planner copies some fields from the constraints of a table to its ParameterSharding (to_sharding_plan of
torchrec/distributed/planner/planners.py, 1.8), where the job reads them. These fields are carried unchanged.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import fields, replace
from typing import Any

from torchrec.distributed.planner import ParameterConstraints
from torchrec.distributed.types import CacheParams

from recsmith.adapters.embedding_collections import Collection, table_names
from recsmith.adapters.field_policies import FieldPolicy, carried, check_values, counted, refused
from recsmith.clusters import Cluster
from recsmith.errors import UsageError
from recsmith.files import did_you_mean
from recsmith.plans import Cache
from recsmith.problems import TableRule
from recsmith.sharding import DEVICE_KERNELS, KERNEL_NAMES

FIELDS: dict[str, FieldPolicy] = {
    "sharding_types": counted("a rule: the types that the table may have"),
    "compute_kernels": counted("a rule: the kernels that the table may have, even those that the space leaves out"),
    "min_partition": counted("a rule: no column piece is narrower"),
    "pooling_factors": counted("ids of a sample and feature"),
    "num_poolings": counted("poolings of a sample and feature"),
    "batch_sizes": counted("samples of a step, feature by feature"),
    "is_weighted": counted("ids have weights, as in a weighted collection"),
    "cache_params": carried("field by field, as the rows below say"),
    "enforce_hbm": carried("True is counted too: the table gets no kernel with weights outside device memory"),
    "stochastic_rounding": carried("planning does not depend on it"),
    "bounds_check_mode": carried("planning does not depend on it"),
    "feature_names": refused("they must be the table's own, in the order of the model; give these, or leave them out"),
    "output_dtype": carried("planning counts outputs as fp32, which no output type of FBGEMM exceeds"),
    "device_group": refused("it must be the kind of the cluster's devices; plan tables of other devices separately"),
    "key_value_params": carried("only kernel key_value reads them; planning counts its cache without their limits"),
    "use_virtual_table": refused("it must agree with the table's configuration; change it, or leave it out"),
}  # fmt: skip

CACHE_FIELDS: dict[str, FieldPolicy] = {
    "load_factor": counted("a rule: the share of rows that a cache holds; carried too, unless the plan sets it"),
    "algorithm": carried("planning counts all algorithms the same way"),
    "reserved_memory": carried("planning does not count it; keep memory free with reserve_bytes"),
    "precision": carried("planning counts the cache in the type of the weights"),
    "prefetch_pipeline": carried("planning counts no memory for it; keep some free with reserve_bytes"),
    "stats": carried("planning takes hit rates from access profiles instead"),
    "multipass_prefetch_config": carried("planning counts no memory for it; keep some free with reserve_bytes"),
}  # fmt: skip


def check_constraints(
    constraints: Mapping[str, ParameterConstraints], found: Sequence[Collection], cluster: Cluster
) -> None:
    """Refuse constraints that a plan would drop silently.

    Raises:
        UsageError: a refused field is not at its default, the model lacks a table, or an object is not TorchRec's.
    """
    if not isinstance(constraints, Mapping):
        raise UsageError(f"constraints are {type(constraints).__name__}; give a dictionary of ParameterConstraints")
    tables = [name for collection in found for name in (*collection.configs, *collection.virtual)]
    for name, limits in constraints.items():
        if not isinstance(limits, ParameterConstraints):
            raise UsageError(f"constraints of table '{name}' are {type(limits).__name__}; give ParameterConstraints")
        if name not in tables:
            raise UsageError(
                f"the constraints name table '{name}', which is not among those planned; give constraints only for "
                f"tables of the model that a sharder shards{did_you_mean(name, tables)}"
            )
        _check_fields(name, limits, FIELDS, _agreeing(name, found, cluster))
        if limits.cache_params is not None:
            _check_fields(name, limits.cache_params, CACHE_FIELDS, {})


def _agreeing(name: str, found: Sequence[Collection], cluster: Cluster) -> dict[str, list[Any]]:
    """Values of refused fields that are accepted because they state a fact, such as the table's own feature names."""
    every = [collection.configs | collection.virtual for collection in found]
    configs = [each[name] for each in every if name in each]
    virtual = any(name in collection.virtual for collection in found)
    same = [config.feature_names for config in configs if config.feature_names == configs[0].feature_names]
    return {
        "feature_names": same if len(same) == len(configs) else [], "device_group": [cluster.device.kind],
        "use_virtual_table": [True] if virtual else [],
    }  # fmt: skip


def _check_fields(
    table: str,
    given: ParameterConstraints | CacheParams,
    policies: Mapping[str, FieldPolicy],
    agreeing: Mapping[str, list[Any]],
) -> None:
    """Refuse the first field that is not at its default, has the policy 'refused', and states no fact (`agreeing`)."""
    default = type(given)()
    values = {field.name: getattr(given, field.name) for field in fields(given)}
    changed = {
        name: value
        for name, value in values.items()
        if value != getattr(default, name) and value not in agreeing.get(name, [])
    }
    kind = "CacheParams" if isinstance(given, CacheParams) else "ParameterConstraints"
    check_values(f"constraints of table '{table}'", changed, policies, shown=f"{kind}.{{}}")


def carried_fields(limits: ParameterConstraints | None, cache: Cache | None) -> dict[str, Any]:
    """The fields of ParameterSharding that a table's constraints set; a planned cache overrides their load factor."""
    given = {
        name: deepcopy(getattr(limits, name)) for name, policy in FIELDS.items() if limits and policy.kind == "carried"
    }
    if cache is not None:
        given["cache_params"] = replace(given.get("cache_params") or CacheParams(), load_factor=cache.load_factor)
    return given


def rules_of(constraints: Mapping[str, ParameterConstraints], found: Sequence[Collection]) -> tuple[TableRule, ...]:
    """The rules that TorchRec's constraints impose, for every table of the given name.

    Raises:
        UsageError: a type, kernel, width or load factor is not known, or enforce_hbm leaves no kernel.
    """
    names = table_names(found)
    return tuple(
        rule
        for own, limits in constraints.items()
        for (_, name), full in names.items()
        if name == own and (rule := _rule(full, limits))
    )


def _rule(table: str, limits: ParameterConstraints) -> TableRule | None:
    """The limits on types, kernels, widths and caches of one table; None if there are none."""
    kernels, factors = _kernels(table, limits), _cache_factors(limits)
    if not (limits.sharding_types or kernels or limits.min_partition or factors):
        return None
    try:
        return TableRule(
            tables=table, sharding_types=tuple(limits.sharding_types) if limits.sharding_types else None,
            compute_kernels=kernels, min_width=limits.min_partition, cache_factors=factors,
        )  # fmt: skip
    except UsageError as error:
        raise UsageError(f"constraints of table '{table}': {error}") from None


def _kernels(table: str, limits: ParameterConstraints) -> tuple[str, ...] | None:
    """The kernels that a table may have; None if any kernel is allowed."""
    allowed = tuple(limits.compute_kernels or ())
    if not limits.enforce_hbm:
        return allowed or None
    kept = tuple(kernel for kernel in allowed or KERNEL_NAMES if kernel in DEVICE_KERNELS)
    if not kept:
        raise UsageError(
            f"constraints of table '{table}': enforce_hbm=True keeps weights in device memory, and its only kernels, "
            f"{', '.join(allowed)}, keep them elsewhere; allow fused, or leave enforce_hbm out"
        )
    return kept


def _cache_factors(limits: ParameterConstraints) -> tuple[float, ...] | None:
    """The single load factor that the constraints set for a cache; None if they set none."""
    factor = limits.cache_params.load_factor if limits.cache_params else None
    return None if factor is None else (factor,)
