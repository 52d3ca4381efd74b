"""What becomes of the settings of sharders, and of optimizers by FBGEMM's names."""

from typing import Any

import pytest

from recsmith import Space
from recsmith.errors import UsageError
from recsmith.workloads.optimizers import OPTIMIZERS

pytestmark = pytest.mark.usefixtures("torchrec")
CACHES = Space(kernels=("fused", "dense", "fused_uvm_caching"))


def _model() -> Any:
    import torch
    from torchrec import EmbeddingBagCollection, EmbeddingBagConfig

    tables = [
        EmbeddingBagConfig(name=name, embedding_dim=16, num_embeddings=1000, feature_names=[name])
        for name in ("t", "u")
    ]
    model = torch.nn.Module()
    model.pooled = EmbeddingBagCollection(tables=tables, device=torch.device("meta"))
    return model


def _plan(sharder: Any, *, model: Any = None, space: Space | None = None, constraints: Any = None) -> Any:
    """RecSmith's plan, and TorchRec's, for a model that one sharder shards."""
    from recsmith.torchrec import RecSmithPlanner

    planner = RecSmithPlanner("h100:2", planner="cost_greedy", constraints=constraints, space=space or Space())
    made = planner.plan(model or _model(), [sharder])
    assert planner.result is not None
    return planner.result.plan, made


def _bags(**settings: Any) -> Any:
    from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder

    return EmbeddingBagCollectionSharder(**settings)


def _codecs(forward: str, backward: str) -> Any:
    from torchrec.distributed.fbgemm_qcomm_codec import CommType, QCommsConfig, get_qcomm_codecs_registry

    return get_qcomm_codecs_registry(QCommsConfig(CommType(forward), CommType(backward)))


@pytest.mark.parametrize(
    ("forward", "backward", "counted"),
    [("fp32", "fp32", (None, None)), ("fp16", "fp16", ("fp16", None)), ("fp16", "bf16", ("fp16", "bf16")),
     ("fp32", "bf16", ("fp32", "bf16")), ("int8", "fp16", ("int8", "fp16"))],
)  # fmt: skip
def test_codecs_count_as_bytes_of_the_all_to_alls(forward: str, backward: str, counted: tuple[str, str]) -> None:
    plan, _ = _plan(_bags(qcomm_codecs_registry=_codecs(forward, backward)))
    assert (plan.workload.comm_dtype, plan.workload.backward_comm_dtype) == counted
    bare, _ = _plan(_bags())
    narrow = [size != "fp32" for size in (forward, backward)]
    for part, fewer in zip(("forward_comm_s", "backward_comm_s"), narrow, strict=True):
        ours, full = (max(getattr(rank, part) for rank in each.cost.per_device) for each in (plan, bare))
        assert (ours < full) == fewer
    assert (plan.digest == bare.digest) == (not any(narrow))


def test_codecs_that_differ_count_as_the_widest_with_a_warning() -> None:
    """fp8 falls back to fp16 and bf16 in reduce-scatters: get_qcomm_codecs_registry of TorchRec."""
    with pytest.warns(
        UserWarning, match="pooled_embeddings_all_to_all int8 and int8, .*counts the widest, fp16 .*bf16"
    ):
        plan, _ = _plan(_bags(qcomm_codecs_registry=_codecs("fp8", "fp8")))
    assert plan.workload.comm_dtypes == ("fp16", "bf16")


def test_the_optimizer_of_fused_params_counts_unless_one_is_attached_or_given() -> None:
    import torch
    from fbgemm_gpu.split_embedding_configs import EmbOptimType
    from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward

    from recsmith.torchrec import read_workload

    adam = _bags(fused_params={"optimizer": EmbOptimType.ADAM, "learning_rate": 0.1})
    plan, _ = _plan(adam)
    assert plan.workload.optimizer == "adam"
    bare, _ = _plan(_bags())
    heavier = sum(rank.hbm_bytes for rank in plan.cost.per_device) - sum(
        rank.hbm_bytes for rank in bare.cost.per_device
    )
    assert heavier == 2 * 1000 * 16 * 4 * 2  # both tables: two states of fp32 for each weight
    model = _model()
    apply_optimizer_in_backward(torch.optim.Adagrad, model.pooled.parameters(), {"lr": 0.1})
    assert read_workload(model, [adam], batch_size=4).optimizer == "adagrad"
    assert read_workload(model, [adam], batch_size=4, optimizer="sgd").optimizer == "sgd"
    with pytest.raises(UsageError, match="no optimizer is called 'lars_sgd'"):
        _plan(_bags(fused_params={"optimizer": EmbOptimType.LARS_SGD}))


def test_caches_and_enforce_hbm_of_fused_params_are_rules_that_constraints_go_before() -> None:
    from torchrec.distributed.planner import ParameterConstraints
    from torchrec.distributed.types import CacheParams

    fused = _bags(fused_params={"cache_load_factor": 0.3})
    limits = {name: ParameterConstraints(compute_kernels=["fused_uvm_caching"]) for name in ("t", "u")}
    limits["u"].cache_params = CacheParams(load_factor=0.6)
    _, made = _plan(fused, space=CACHES, constraints=limits)
    assert [made.plan["pooled"][name].cache_params.load_factor for name in ("t", "u")] == [0.3, 0.6]
    hbm = _bags(fused_params={"enforce_hbm": True})
    limits = {"u": ParameterConstraints(compute_kernels=["fused_uvm_caching"], enforce_hbm=False)}
    plan, _ = _plan(hbm, space=CACHES, constraints=limits)
    assert [each.compute_kernel for each in plan.placements if each.table == "u"] == ["fused_uvm_caching"]
    plan, _ = _plan(hbm, space=Space(kernels=("fused_uvm_caching", "fused", "dense")))
    assert all(each.compute_kernel in ("fused", "dense") for each in plan.placements)


@pytest.mark.parametrize("name", ["weights_precision", "cache_sets", "is_qr_tbe", "flux_capacitor"])
def test_a_key_that_is_not_kept_is_refused_with_its_module(name: str) -> None:
    from recsmith.adapters.sharders import FUSED_PARAMS, UNKNOWN_KEY

    words = FUSED_PARAMS.get(name, UNKNOWN_KEY).note
    with pytest.raises(UsageError, match=rf"module 'pooled': fused_params\['{name}'\] is 3; {words}"):
        _plan(_bags(fused_params={name: 3}))


def _subclass(types: list[str] | None, kernels: dict[str, list[str]] | None) -> Any:
    """A sharder that overrides the two lists: kernels by sharding type, or '' for any."""
    from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder

    methods: dict[str, Any] = {}
    if types is not None:
        methods["sharding_types"] = lambda self, device: types
    if kernels is not None:
        methods["compute_kernels"] = lambda self, kind, device: kernels.get(kind, kernels[""])
    return type("Narrow", (EmbeddingBagCollectionSharder,), methods)()


@pytest.mark.parametrize(
    ("types", "kernels", "found"),
    [(["row_wise"], None, {("row_wise", "fused")}),
     (None, {"": ["fused_uvm_caching", "ssd_virtual_table"]}, {"fused_uvm_caching"}),
     (["data_parallel"], {"": ["dense"]}, {("data_parallel", "dense")}),
     (["table_wise", "twisted"], {"": ["fused", "quant"]}, {("table_wise", "fused")})],
)  # fmt: skip
def test_what_a_subclass_offers_is_a_rule(types: Any, kernels: Any, found: Any) -> None:
    plan, _ = _plan(_subclass(types, kernels), space=CACHES)
    pairs = {(each.sharding_type, each.compute_kernel) for each in plan.placements}
    assert found in (pairs, {kernel for _, kernel in pairs})


@pytest.mark.parametrize(
    ("types", "kernels"),
    [(["twisted"], None), (None, {"": ["ssd_virtual_table"]}), (["row_wise"], {"": ["dram_virtual_table"]})],
)
def test_a_subclass_that_offers_nothing_that_is_planned_is_refused(types: Any, kernels: Any) -> None:
    with pytest.raises(UsageError, match="sharder Narrow of module 'pooled' offers no type or kernel that is planned"):
        _plan(_subclass(types, kernels))


def test_kernels_that_depend_on_the_type_are_refused() -> None:
    sharder = _subclass(["row_wise", "table_wise"], {"row_wise": ["fused"], "": ["fused_uvm_caching"]})
    with pytest.raises(UsageError, match="offers fused_uvm_caching for table_wise and fused for row_wise"):
        _plan(sharder)


def test_an_override_of_memory_is_refused() -> None:
    from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder

    sharder = type("Fat", (EmbeddingBagCollectionSharder,), {"storage_usage": lambda *_: {"hbm": 2**40}})()
    with pytest.raises(UsageError, match=r"sharder Fat of module 'pooled' overrides storage_usage\(\)"):
        _plan(sharder)


def test_what_torchrecs_own_sharders_offer_is_no_rule() -> None:
    """On CPU they hide row-wise types, which run."""
    from torchrec.distributed.sharding_plan import get_default_sharders

    from recsmith import load_cluster
    from recsmith.adapters.embedding_collections import collections
    from recsmith.adapters.sharders import sharder_rules

    assert sharder_rules(collections(_model(), get_default_sharders()), {}, load_cluster("cpu:2"), Space()) == ()


def test_settings_that_the_job_reads_itself_change_no_plan() -> None:
    order = _bags(sharded_module_order_overwrite=["row_wise"], fused_params={"learning_rate": 0.3, "eps": 1e-5})
    assert _plan(order)[0].digest == _plan(_bags())[0].digest


SAME = {
    "EXACT_SGD": "sgd", "SGD": "sgd", "EXACT_ADAGRAD": "adagrad", "EXACT_ROWWISE_ADAGRAD": "rowwise_adagrad",
    "ADAM": "adam", "PARTIAL_ROWWISE_ADAM": "partial_rowwise_adam", "LAMB": "lamb",
}  # fmt: skip


@pytest.mark.parametrize(("name", "own"), SAME.items())
def test_fbgemms_names_are_known_in_upper_and_lower_case(name: str, own: str) -> None:
    from recsmith.adapters.sharders import read_optimizer

    assert read_optimizer(name) == read_optimizer(name.lower()) == read_optimizer(own) == own


@pytest.mark.parametrize("name", SAME)
def test_fbgemms_own_members_are_known(fbgemm: None, name: str) -> None:
    from fbgemm_gpu.split_embedding_configs import EmbOptimType

    from recsmith.adapters.sharders import read_optimizer

    assert read_optimizer(EmbOptimType[name]) == read_optimizer(EmbOptimType[name].value) == SAME[name]


def test_every_name_is_one_of_fbgemm(fbgemm: None) -> None:
    from fbgemm_gpu.split_embedding_configs import EmbOptimType

    named = {member.name.lower() for member in EmbOptimType} | {member.value for member in EmbOptimType}
    assert {name for each in OPTIMIZERS.values() for name in (each.fbgemm_name.lower(), *each.other_names)} <= named


@pytest.mark.parametrize("name", ["SHAMPOO", "rmsprop", ""])
def test_other_optimizers_are_refused_with_the_known_names(name: str) -> None:
    from recsmith.adapters.sharders import read_optimizer

    with pytest.raises(UsageError) as error:
        read_optimizer(name)
    assert all(known in str(error.value) for known in (*OPTIMIZERS, "EXACT_ROWWISE_ADAGRAD"))
