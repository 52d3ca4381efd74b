"""What becomes of module types and of the fields of table configurations."""

import warnings
from typing import Any

import pytest

from recsmith.errors import UsageError

pytestmark = pytest.mark.usefixtures("dynamic_jobs")


@pytest.fixture(scope="module")
def dynamic_jobs(torchrec: None) -> None:
    """TorchRec's hashing modules import with warnings that are not ours: import them once, quietly."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import support.dynamic_jobs  # noqa: F401


@pytest.fixture(scope="module")
def answers(torchrec: None) -> list[dict[str, Any]]:
    """What the two ranks of a job say that trains managed collisions and processed features with our plan."""
    from recsmith.jobs.launch import launch

    return launch("support.dynamic_jobs:train", {}, ranks=2)


def test_managed_collisions_and_processed_features_train_with_our_plan(answers: list[dict[str, Any]]) -> None:
    for answer in answers:
        assert answer["types"] == dict.fromkeys(["bags.ta", "bags.tb", "sequences.ts", "weighed.tw"], "row_wise")
        assert answer["losses"][-1] < answer["losses"][0] - 0.1


def test_what_remaps_ids_takes_the_memory_that_was_planned(answers: list[dict[str, Any]]) -> None:
    """Its history has room for the ids of a rank's first batch, which vary; planning counts their mean."""
    assert sum(answer["real"] for answer in answers) == pytest.approx(2 * answers[0]["planned"], rel=1e-3)
    for answer in answers:
        assert answer["real"] == pytest.approx(answer["planned"], rel=0.1)


def _planned(model: Any, sharders: Any = None, cluster: str = "cpu:2") -> Any:
    from recsmith.torchrec import RecSmithPlanner

    planner = RecSmithPlanner(cluster, batch_size=8, planner="cost_greedy", reserve_bytes=0)
    planner.plan(model, sharders)
    return planner.result.plan  # type: ignore[union-attr]


def test_the_memory_of_remapping_is_kept_free_of_tables() -> None:
    """Of hashed ids, what TorchRec rebuilds for the 32 rows of a rank; FBGEMM trains them on GPUs only."""
    from support.dynamic_jobs import managed_sequences, rebuilt
    from torch import nn

    module = managed_sequences(hashed_to=4)
    plan, shard = _planned(nn.Sequential(module)), rebuilt(module, (0, 32))
    assert plan.placements[0].sharding_type == "row_wise"
    assert plan.cluster.reserve_bytes == sum(tensor.nbytes for tensor in (*shard.buffers(), *shard.parameters()))


def test_remapping_that_is_not_sharded_is_refused() -> None:
    from support.dynamic_jobs import managed_bags
    from torch import nn
    from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder

    with pytest.raises(UsageError, match="add ManagedCollisionEmbeddingBagCollectionSharder"):
        _planned(nn.Sequential(managed_bags()), [EmbeddingBagCollectionSharder()])


def test_buckets_across_ranks_are_refused() -> None:
    from support.dynamic_jobs import managed_sequences
    from torch import nn

    with pytest.raises(UsageError, match="table 'ts' has 2 buckets of ids over 64 rows, and 4 ranks hold 16 rows each"):
        _planned(nn.Sequential(managed_sequences(hashed_to=2)), cluster="cpu:4")


def test_a_plan_of_other_types_is_refused_for_remapped_tables() -> None:
    from dataclasses import replace

    from support.dynamic_jobs import managed_sequences
    from torch import nn

    from recsmith.errors import PlanMismatch
    from recsmith.torchrec import to_sharding_plan

    model = nn.Sequential(managed_sequences())
    plan = _planned(model)
    whole = tuple(replace(each, sharding_type="table_wise", ranks=(0,)) for each in plan.placements)
    with pytest.raises(PlanMismatch, match="table 'ts' is table_wise, and its ids are remapped by row"):
        to_sharding_plan(replace(plan, placements=whole), model)


def test_each_refused_type_says_what_to_do() -> None:
    from recsmith.adapters.field_policies import MODULE_TYPES, UNKNOWN_MODULE

    for each in [*MODULE_TYPES.values(), UNKNOWN_MODULE]:
        assert each.kind == "planned" or any(word in each.note for word in ("leave", "use ", "put ", "plan it"))


def test_modules_that_are_not_planned_are_refused_by_name() -> None:
    import torch
    from torchrec import EmbeddingBagConfig
    from torchrec.distributed.embedding_tower_sharding import EmbeddingTowerSharder
    from torchrec.distributed.itep_embeddingbag import ITEPEmbeddingBagCollectionSharder
    from torchrec.modules.embedding_modules import EmbeddingBagCollection
    from torchrec.modules.embedding_tower import EmbeddingTower
    from torchrec.modules.itep_embedding_modules import ITEPEmbeddingBagCollection
    from torchrec.modules.itep_modules import GenericITEPModule

    def bags() -> Any:
        table = EmbeddingBagConfig(name="t", embedding_dim=8, num_embeddings=10, feature_names=["f"])
        return EmbeddingBagCollection(tables=[table], device=torch.device("meta"))

    pruned = ITEPEmbeddingBagCollection(bags(), GenericITEPModule({}))
    tower = EmbeddingTower(bags(), torch.nn.Linear(8, 8))
    for module, sharder, words in (
        (pruned, ITEPEmbeddingBagCollectionSharder(), "prunes rows in training"),
        (tower, EmbeddingTowerSharder(), "leave its sharder out to plan its collections alone"),
    ):
        model = torch.nn.Module()
        model.dynamic = module
        with pytest.raises(UsageError, match=f"module 'dynamic' is a {type(module).__name__}, which .*{words}"):
            _planned(model, [sharder])


pytestmark = pytest.mark.usefixtures("torchrec")


def _check(**words: Any) -> None:
    from torchrec import EmbeddingConfig

    from recsmith.adapters.field_policies import check_config

    check_config(EmbeddingConfig(name="t", embedding_dim=8, num_embeddings=10, feature_names=["f"], **words))


@pytest.mark.parametrize("words", [{"total_num_buckets": 4}, {"enable_embedding_update": True}])
def test_fields_of_virtual_tables_are_refused_in_others(words: dict[str, Any]) -> None:
    name, value = next(iter(words.items()))
    with pytest.raises(UsageError, match=rf"table 't': EmbeddingConfig\.{name} is {value}; .*leave it out"):
        _check(**words)


def test_what_the_module_keeps_itself_is_not_refused() -> None:
    _check(weight_init_max=0.5, need_pos=True, num_embeddings_post_pruning=5, stash_weights=True)
