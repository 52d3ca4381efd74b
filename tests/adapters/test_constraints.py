"""Every field of TorchRec's ParameterConstraints is carried, counted or refused; none is dropped silently."""

import dataclasses
from typing import Any

import pytest

from recsmith import Space
from recsmith.errors import UsageError

pytestmark = pytest.mark.usefixtures("torchrec")
CACHES = Space(kernels=("fused", "dense", "fused_uvm_caching"))
ROWS = 1000


def _model() -> Any:
    import torch
    from torchrec import EmbeddingBagCollection, EmbeddingBagConfig

    table = EmbeddingBagConfig(name="t", embedding_dim=16, num_embeddings=ROWS, feature_names=["f", "g"])
    other = EmbeddingBagConfig(name="u", embedding_dim=8, num_embeddings=10, feature_names=["h"])
    model = torch.nn.Module()
    model.pooled = EmbeddingBagCollection(tables=[table, other], device=torch.device("meta"))
    return model


def _limits(**fields: Any) -> dict[str, Any]:
    from torchrec.distributed.planner import ParameterConstraints

    return {"t": ParameterConstraints(**fields)}


def _planned(cluster: str = "h100:1", space: Space | None = None, **fields: Any) -> tuple[Any, Any]:
    """(the planner after planning, ParameterSharding of table t)."""
    from recsmith.torchrec import RecSmithPlanner

    planner = RecSmithPlanner(
        cluster, batch_size=16, planner="cost_greedy", constraints=_limits(**fields), space=space or Space()
    )
    return planner, planner.plan(_model()).plan["pooled"]["t"]  # type: ignore[index]


def _values() -> dict[str, Any]:
    """A value of each field that is not its default."""
    from torchrec.distributed.types import BoundsCheckMode, CacheParams, KeyValueParams
    from torchrec.modules.embedding_configs import DataType

    return {
        "sharding_types": ["row_wise"], "compute_kernels": ["dense"], "min_partition": 16,
        "pooling_factors": [3.0, 0.5], "num_poolings": [2.0, 1.0], "batch_sizes": [8, 4], "is_weighted": True,
        "cache_params": CacheParams(load_factor=0.3), "enforce_hbm": True, "stochastic_rounding": False,
        "bounds_check_mode": BoundsCheckMode.FATAL, "feature_names": ["g", "f"], "output_dtype": DataType.FP16,
        "device_group": "cpu", "key_value_params": KeyValueParams(l2_cache_size=1), "use_virtual_table": True,
    }  # fmt: skip


def _cache_values() -> dict[str, Any]:
    from fbgemm_gpu.split_table_batched_embeddings_ops_common import MultiPassPrefetchConfig
    from torchrec.distributed.types import CacheAlgorithm, CacheStatistics
    from torchrec.modules.embedding_configs import DataType

    class Statistics(CacheStatistics):
        expected_lookups = property(lambda self: 0.5)  # pyright: ignore[reportAssignmentType]
        cacheability = property(lambda self: 0.5)  # pyright: ignore[reportAssignmentType]

        def expected_miss_rate(self, clf: float) -> float:
            return 1 - clf

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Statistics)

    return {
        "algorithm": CacheAlgorithm.LFU, "load_factor": 0.3, "reserved_memory": 2.0**20, "precision": DataType.FP16,
        "prefetch_pipeline": True, "stats": Statistics(), "multipass_prefetch_config": MultiPassPrefetchConfig(),
    }  # fmt: skip


def _names(noun: str) -> list[str]:
    """The fields of ParameterConstraints or CacheParams, read without TorchRec where it is not installed."""
    fields = {
        "ParameterConstraints": "sharding_types compute_kernels min_partition pooling_factors num_poolings batch_sizes "
        "is_weighted cache_params enforce_hbm stochastic_rounding bounds_check_mode feature_names output_dtype "
        "device_group key_value_params use_virtual_table",
        "CacheParams": "algorithm load_factor reserved_memory precision prefetch_pipeline stats "
        "multipass_prefetch_config",
    }
    return fields[noun].split()


def test_every_field_is_tested_and_what_is_carried_is_what_a_sharding_plan_can_hold() -> None:
    from torchrec.distributed.planner import ParameterConstraints
    from torchrec.distributed.types import CacheParams, ParameterSharding

    from recsmith.adapters.constraints import CACHE_FIELDS, FIELDS

    for noun, fates, values in (
        (ParameterConstraints, FIELDS, _values()),
        (CacheParams, CACHE_FIELDS, _cache_values()),
    ):
        assert set(fates) == set(_names(noun.__name__)) == set(values)
    written = {field.name for field in dataclasses.fields(ParameterSharding)}
    decided = {"sharding_type", "compute_kernel", "ranks", "sharding_spec"}
    carried = {name for name, fate in FIELDS.items() if fate.kind == "carried"}
    assert carried == written - decided


COUNTED = {  # what planning has of each counted field: of the planner's result
    "sharding_types": lambda plan, table: [p.sharding_type for p in plan.placements if p.table == "t"] == ["row_wise"],
    "compute_kernels": lambda plan, table: [p.compute_kernel for p in plan.placements if p.table == "t"] == ["dense"],
    "min_partition": lambda plan, table: plan.constraints["rules"][0]["min_width"] == 16,
    "pooling_factors": lambda plan, table: [f.pooling_factor for f in table.features] == [3.0, 0.5],
    "num_poolings": lambda plan, table: [f.num_poolings for f in table.features] == [2.0, 1.0],
    "batch_sizes": lambda plan, table: [f.batch_size for f in table.features] == [8, 4],
    "is_weighted": lambda plan, table: table.weighted,
}


@pytest.mark.parametrize("name", _names("ParameterConstraints"))
def test_every_field_is_carried_counted_or_refused(name: str) -> None:
    from recsmith.adapters.constraints import FIELDS

    value = _values()[name]
    if FIELDS[name].kind == "refused":
        with pytest.raises(UsageError, match=f"constraints of table 't': ParameterConstraints.{name} is ") as error:
            _planned(**{name: value})
        assert repr(value)[:30] in str(error.value)
        assert FIELDS[name].note in str(error.value)
        return
    planner, parameter = _planned(**{name: value})
    if FIELDS[name].kind == "carried":
        assert getattr(parameter, name) == value
    else:
        plan = planner.result.plan
        table = next(table for table in plan.workload.tables if table.name == "t")
        assert COUNTED[name](plan, table)


@pytest.mark.parametrize("kernel", ["fused", "fused_uvm_caching"])
@pytest.mark.parametrize("name", _names("CacheParams"))
def test_every_field_of_a_cache_is_carried_with_the_planned_load_factor(name: str, kernel: str) -> None:
    from torchrec.distributed.types import CacheParams

    value = _cache_values()[name]
    given = CacheParams(**{name: value})
    _, parameter = _planned(space=CACHES, compute_kernels=[kernel], cache_params=given)
    assert parameter.compute_kernel == kernel
    assert getattr(parameter.cache_params, name) == value
    assert (parameter.cache_params.load_factor is not None) == (kernel != "fused" or name == "load_factor")
    assert given == CacheParams(**{name: value})  # the job's own constraints are left as they are


def test_what_is_carried_is_what_torchrecs_own_planner_writes() -> None:
    from torchrec.distributed.planner import EmbeddingShardingPlanner, Topology
    from torchrec.distributed.sharding_plan import get_default_sharders
    from torchrec.distributed.types import CacheParams

    from recsmith.adapters.constraints import FIELDS
    from recsmith.adapters.torchrec_planner import quiet
    from recsmith.torchrec import RecSmithPlanner

    names = [name for name, fate in FIELDS.items() if fate.kind == "carried"]
    fields = {name: value for name, value in _values().items() if name in names}
    limits = _limits(**fields | {"cache_params": CacheParams(**_cache_values())})
    topology = Topology(world_size=1, compute_device="cuda")
    ours = RecSmithPlanner(topology, batch_size=16, planner="cost_greedy", constraints=limits).plan(_model())
    with quiet():
        planner = EmbeddingShardingPlanner(topology=topology, batch_size=16, constraints=limits, stats=[], debug=False)
        theirs = planner.plan(_model(), get_default_sharders())
    for table in ("t", "u"):
        mine, other = ours.plan["pooled"][table], theirs.plan["pooled"][table]  # type: ignore[index]
        assert mine.compute_kernel != "fused_uvm_caching"
        assert {name: getattr(mine, name) for name in names} == {name: getattr(other, name) for name in names}


def test_a_field_of_a_later_version_is_refused_unless_it_is_at_its_default() -> None:
    from torchrec.distributed.planner import ParameterConstraints
    from torchrec.distributed.types import CacheParams

    from recsmith.torchrec import RecSmithPlanner

    @dataclasses.dataclass
    class Later(ParameterConstraints):
        moon_phase: str = "new"

    @dataclasses.dataclass
    class LaterCache(CacheParams):
        colour: str | None = None

    def plan(limits: Any) -> Any:
        return RecSmithPlanner("h100:1", planner="cost_greedy", constraints={"t": limits}).plan(_model())

    assert plan(Later(cache_params=LaterCache()))
    with pytest.raises(UsageError, match=r"ParameterConstraints\.moon_phase is 'full'; .* leave it out"):
        plan(Later(moon_phase="full"))
    with pytest.raises(UsageError, match=r"CacheParams\.colour is 'red'"):
        plan(Later(cache_params=LaterCache(colour="red")))


def test_what_is_so_anyway_is_not_refused() -> None:
    for cluster, kind in (("h100:1", "cuda"), ("cpu:1", "cpu")):
        planner, _ = _planned(cluster, feature_names=["f", "g"], device_group=kind)
        assert len(planner.result.plan.placements) == 2


def test_tables_in_device_memory_get_no_kernel_of_host_memory() -> None:
    _, parameter = _planned(space=CACHES, enforce_hbm=True, compute_kernels=["fused", "fused_uvm_caching"])
    assert (parameter.compute_kernel, parameter.enforce_hbm) == ("fused", True)
    with pytest.raises(UsageError, match="enforce_hbm=True keeps weights in device memory"):
        _planned(space=CACHES, enforce_hbm=True, compute_kernels=["fused_uvm_caching"])


@pytest.mark.parametrize(
    "fields",
    [{"sharding_types": ["twisted"]}, {"compute_kernels": ["ssd_virtual_table"]}, {"min_partition": 2}],
    ids=["type", "kernel", "width"],
)
def test_values_that_are_not_known_are_refused_with_the_table(fields: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="constraints of table 't': "):
        _planned(**fields)


def test_a_table_that_is_not_planned_is_refused() -> None:
    from recsmith.torchrec import RecSmithPlanner

    planner = RecSmithPlanner("h100:1", constraints={"tt": _limits()["t"]})
    with pytest.raises(UsageError, match=r"name table 'tt', which is not among those planned.*did you mean 't'"):
        planner.plan(_model())


def test_constraints_hold_for_every_table_of_a_name() -> None:
    from support.jobs import TwoCollections
    from torchrec.distributed.planner import ParameterConstraints

    from recsmith.torchrec import RecSmithPlanner

    limits = {"t0": ParameterConstraints(sharding_types=["row_wise"], stochastic_rounding=True)}
    plan = RecSmithPlanner("h100:2", planner="cost_greedy", constraints=limits).plan(TwoCollections())
    for path in ("pooled", "weighted"):
        parameter = plan.plan[path]["t0"]  # type: ignore[index]
        assert (parameter.sharding_type, parameter.stochastic_rounding) == ("row_wise", True)


def test_a_plan_with_carried_fields_reads_back() -> None:
    from torchrec.distributed.types import CacheParams

    from recsmith.torchrec import from_sharding_plan, to_sharding_plan

    fields = {"cache_params": CacheParams(load_factor=0.3), "stochastic_rounding": False}
    plan = _planned(**fields)[0].result.plan
    made = to_sharding_plan(plan, _model(), constraints=_limits(**fields))
    assert made.plan["pooled"]["t"].cache_params.load_factor == 0.3  # type: ignore[index]
    assert from_sharding_plan(made, plan.workload, plan.cluster) == plan.placements


def test_what_is_no_constraint_of_torchrec_is_refused() -> None:
    from torchrec.distributed.planner import ParameterConstraints

    from recsmith.torchrec import RecSmithPlanner

    for given, words in (
        ({"t": {"sharding_types": ["row_wise"]}}, "constraints of table 't' are dict; give ParameterConstraints"),
        ([ParameterConstraints()], "constraints are list; give a dictionary of ParameterConstraints"),
    ):
        with pytest.raises(UsageError, match=words):
            RecSmithPlanner("h100:1", constraints=given).plan(_model())  # type: ignore[arg-type]
