"""The drop-in planner in one process: its arguments, plans, errors and what it logs."""

from inspect import signature
from typing import Any

import pytest

from recsmith import Constraints, Space
from recsmith.errors import Infeasible, UsageError
from recsmith.problems import TableRule

pytestmark = pytest.mark.usefixtures("torchrec")


def test_the_plan_keeps_to_torchrecs_constraints() -> None:
    from support.jobs import TwoCollections, constraints

    from recsmith.torchrec import RecSmithPlanner

    planner = RecSmithPlanner("h100:2", batch_size=16, constraints=constraints(), space=Space(widths="torchrec"))
    plan = planner.plan(TwoCollections())
    assert plan.plan["pooled"]["t2"].sharding_type == "row_wise"  # type: ignore[index]
    assert planner.result is not None
    assert planner.result.plan.gap is not None


def test_rules_of_ones_own_hold_beside_torchrecs() -> None:
    from support.jobs import TwoCollections

    from recsmith import TableRule
    from recsmith.torchrec import RecSmithPlanner

    limits = Constraints(rules=(TableRule(tables="pooled.*", sharding_types=("table_wise",)),))
    plan = RecSmithPlanner("h100:2", batch_size=16, limits=limits).plan(TwoCollections())
    assert plan.plan["pooled"]["t0"].sharding_type == "table_wise"  # type: ignore[index]


@pytest.mark.filterwarnings("ignore:table wide has pieces of more than 1,024 columns")  # as it may choose
@pytest.mark.parametrize(("cluster", "widest"), [("h100:2", 2048), ("cpu:1", 4096)])
def test_no_piece_is_wider_than_the_kernels_of_the_devices_take(cluster: str, widest: int) -> None:
    from torch import device, nn
    from torchrec import EmbeddingBagCollection, EmbeddingBagConfig
    from torchrec.distributed.planner.types import ParameterConstraints

    from recsmith.errors import Infeasible
    from recsmith.torchrec import RecSmithPlanner

    wide = EmbeddingBagConfig(name="wide", num_embeddings=1000, embedding_dim=4096, feature_names=["f"])
    model = nn.ModuleDict({"e": EmbeddingBagCollection(tables=[wide], device=device("meta"))})
    only = {"wide": ParameterConstraints(sharding_types=["table_wise"])}
    planners = [RecSmithPlanner(cluster, batch_size=8, reserve_bytes=0, constraints=each) for each in (None, only)]
    if widest == 4096:
        shards = planners[1].plan(model).plan["e"]["wide"].sharding_spec.shards  # type: ignore[index]
        assert [each.shard_sizes for each in shards] == [[1000, 4096]]
        return
    shards = planners[0].plan(model).plan["e"]["wide"].sharding_spec.shards  # type: ignore[index]
    assert max(each.shard_sizes[1] for each in shards) <= widest
    with pytest.raises(Infeasible, match="at most 2,048"):
        planners[1].plan(model)


def test_a_pin_of_ones_own_says_which_columns_are_where() -> None:
    from support.jobs import TwoCollections

    from recsmith import TableRule
    from recsmith.problems import Pin
    from recsmith.torchrec import RecSmithPlanner

    dim = next(t.embedding_dim for t in TwoCollections().pooled.embedding_bag_configs() if t.name == "t0")
    pin = Pin(sharding_type="column_wise", ranks=(1, 0), widths=(dim // 2, dim // 2))
    limits = Constraints(rules=(TableRule(tables="pooled.t0", pin=pin),))
    placed = RecSmithPlanner("h100:2", batch_size=16, limits=limits).plan(TwoCollections()).plan["pooled"]["t0"]  # type: ignore[index]
    shards = {tuple(each.shard_offsets): each.placement.rank() for each in placed.sharding_spec.shards}
    assert shards == {(0, 0): 1, (0, dim // 2): 0}


COLLECTIVES: dict[str, dict[str, Any]] = {
    "sound": {},
    "infeasible": {"hbm": 2**17},
    "another model": {"rows_of_rank_1": 999},
    "another cluster": {"cluster": "cpu:4"},
    "refused on rank 1": {"virtual_of_rank_1": True},
}


@pytest.fixture(scope="module")
def answers(torchrec: None) -> dict[str, tuple[Any, ...]]:
    """What the two ranks of one job say, case by case."""
    from recsmith.jobs.launch import launch

    said = launch("support.jobs:collectives", {"cases": list(COLLECTIVES.values())}, ranks=2)
    return dict(zip([*COLLECTIVES, "carried and warned"], zip(*said, strict=True), strict=True))


def test_all_ranks_receive_the_plan_of_rank_0(answers: dict[str, Any]) -> None:
    first, second = answers["sound"]
    assert first == second
    assert first["pooled"]["t2"] == ["row_wise", [0, 1]]


def test_an_error_of_rank_0_is_raised_on_every_rank(answers: dict[str, Any]) -> None:
    assert [answer["error"] for answer in answers["infeasible"]] == ["Infeasible", "Infeasible"]
    for words in ("Proved", "Planning kept 88.06 KiB of each device free of tables", "reserve_bytes="):
        assert words in answers["infeasible"][1]["message"]


def test_a_rank_with_another_model_stops_all_ranks(answers: dict[str, Any]) -> None:
    assert [answer["error"] for answer in answers["another model"]] == ["PlanMismatch", "PlanMismatch"]
    assert "rank 1 cannot use the plan of rank 0" in answers["another model"][0]["message"]


def test_a_cluster_of_another_size_is_refused_on_every_rank(answers: dict[str, Any]) -> None:
    assert all("2 ranks, the cluster 4" in answer["message"] for answer in answers["another cluster"])


def test_constraints_that_one_rank_refuses_stop_all_ranks(answers: dict[str, Any]) -> None:
    assert [answer["error"] for answer in answers["refused on rank 1"]] == ["PlanMismatch", "PlanMismatch"]
    assert (
        "rank 1 cannot use the plan of rank 0: constraints of table 't3'" in answers["refused on rank 1"][0]["message"]
    )


def test_every_rank_carries_and_rank_0_alone_warns_of_inexact_tables(answers: dict[str, Any]) -> None:
    first, second = answers["carried and warned"]
    assert (first["rounding"], second["rounding"]) == (False, False)
    assert (len(first["warned"]), second["warned"]) == (1, [])
    assert "table pooled.t0 is split by columns under rowwise_adagrad" in first["warned"][0]


def test_rank_0_alone_logs_what_is_kept_free_of_tables(answers: dict[str, Any]) -> None:
    first, second = (answer["logged"] for answer in answers["carried and warned"])
    assert (len(first), second) == (1, [])
    assert "free of tables for the rest of the model, by an estimate" in first[0]


def test_column_splits_under_a_row_wise_optimizer_warn_unless_they_are_forbidden() -> None:
    from support.jobs import TOO_MANY_ROWS, TwoCollections, planner_that_splits

    planner, model = planner_that_splits("h100:2"), TwoCollections(1, TOO_MANY_ROWS)
    words = r"^table pooled\.t0 is split by columns under rowwise_adagrad: .*keep_exact=True"
    with pytest.warns(UserWarning, match=words) as said:
        planner.plan(model)
    assert [warning.filename for warning in said] == [__file__]
    planner.limits, planner.constraints = Constraints(keep_exact=True), None
    planner.plan(model)


def test_of_several_optimizers_the_row_wise_ones_keep_their_tables_from_being_split() -> None:
    import torch
    from torchrec import EmbeddingBagCollection, EmbeddingBagConfig
    from torchrec.optim import RowWiseAdagrad
    from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward

    tables = [EmbeddingBagConfig(name=n, num_embeddings=100, embedding_dim=64, feature_names=[n]) for n in "ab"]
    model = torch.nn.ModuleDict({"e": EmbeddingBagCollection(tables=tables, device=torch.device("meta"))})
    bags: Any = model["e"].embedding_bags
    apply_optimizer_in_backward(torch.optim.Adagrad, bags["a"].parameters(), {"lr": 0.1})
    apply_optimizer_in_backward(RowWiseAdagrad, bags["b"].parameters(), {"lr": 0.1})
    rule = TableRule(tables="*", widths=(32,), sharding_types=("column_wise",))
    with pytest.warns(UserWarning, match=r"^table b is split by columns under rowwise_adagrad"):
        _planner("h100:2", limits=Constraints(rules=(rule,))).plan(model)
    with pytest.raises(Infeasible, match="table 'b' has no legal placement"):
        _planner("h100:2", limits=Constraints(rules=(rule,), keep_exact=True)).plan(model)


def _planner(*cluster: Any, **words: Any) -> Any:
    from recsmith.torchrec import RecSmithPlanner

    return RecSmithPlanner(*cluster, **words)


@pytest.mark.parametrize("reserve", ["10GiB", 10 * 2**30])
def test_a_reserve_is_kept_free_on_every_device(reserve: int | str) -> None:
    from torchrec.distributed.planner import Topology

    topology = Topology(world_size=2, compute_device="cuda", hbm_cap=40 * 2**30)
    for cluster in ("h100:2", topology):
        bare, made = _planner(cluster).cluster, _planner(cluster, reserve_bytes=reserve).cluster
        assert made.capacities == tuple(capacity - 10 * 2**30 for capacity in bare.capacities)


@pytest.mark.parametrize("reserve", ["1000GiB", -1, "much"])
def test_a_reserve_that_cannot_be_is_refused(reserve: int | str) -> None:
    with pytest.raises(UsageError):
        _planner("h100:2", reserve_bytes=reserve)


def test_the_arguments_of_torchrecs_planner_are_taken_or_answered() -> None:
    from torchrec.distributed.planner import EmbeddingShardingPlanner

    from recsmith.adapters.drop_in_planner import OWN_ARGUMENTS, TORCHREC_ARGUMENTS
    from recsmith.torchrec import RecSmithPlanner

    theirs = set(signature(EmbeddingShardingPlanner.__init__).parameters) - {"self"}
    assert theirs <= {*OWN_ARGUMENTS, *TORCHREC_ARGUMENTS}
    assert set(OWN_ARGUMENTS) == set(signature(RecSmithPlanner).parameters) - {"search"}
    for name, instead in TORCHREC_ARGUMENTS.items():
        with pytest.raises(UsageError) as error:
            _planner("h100:2", **{name: None})
        assert str(error.value) == f"RecSmithPlanner takes no '{name}'; {instead}"
    with pytest.raises(UsageError, match="give the topology first"):
        _planner(topology=None)


def test_a_misspelt_argument_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="takes no 'batchsize'; did you mean 'batch_size'"):
        _planner("h100:2", batchsize=3)


def test_a_planner_without_a_cluster_is_refused() -> None:
    with pytest.raises(UsageError, match="needs a cluster first"):
        _planner()
