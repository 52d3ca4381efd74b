"""Planning inside a job: RecSmithPlanner beside TorchRec's own planner, both plans priced by TorchRec's estimator.

    python benchmarks/torchrec_planning.py --tables 1000 --ranks 64 --timeout 120

Generated tables (seed 0): rows log-uniform in 100 .. 1e7, dims 16 .. 256, pooling factors log-uniform in 1 .. 50; batch
2,048, hosts of 8, TorchRec's default topology with 64 GiB a device, kernels fused and dense, no storage reservation.
"""

import argparse
import logging
import math
import random
import time
import warnings
from collections.abc import Callable

warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)

import torch  # noqa: E402
from torch import nn  # noqa: E402
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig  # noqa: E402
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder  # noqa: E402
from torchrec.distributed.planner import EmbeddingShardingPlanner, ParameterConstraints, Topology  # noqa: E402
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator, get_partition_by_type  # noqa: E402
from torchrec.distributed.planner.shard_estimators import EmbeddingPerfEstimator  # noqa: E402
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation  # noqa: E402
from torchrec.distributed.planner.types import PlannerError, Shard, ShardingOption  # noqa: E402
from torchrec.distributed.types import ShardingPlan  # noqa: E402

from recsmith import Constraints  # noqa: E402
from recsmith.torchrec import RecSmithPlanner  # noqa: E402

BATCH_SIZE = 2048
DIMS = (16, 32, 64, 64, 128, 128, 256)


class Model(nn.Module):
    """The tables in one collection."""

    def __init__(self, tables: list[EmbeddingBagConfig]) -> None:
        super().__init__()
        self.ebc = EmbeddingBagCollection(tables=tables, device=torch.device("meta"))


def generate(count: int) -> tuple[Model, dict[str, ParameterConstraints]]:
    draw = random.Random(0)
    tables, limits = [], {}
    for i in range(count):
        rows = round(math.exp(draw.uniform(math.log(100), math.log(1e7))))
        dim, factor = draw.choice(DIMS), round(math.exp(draw.uniform(0, math.log(50))), 2)
        tables.append(EmbeddingBagConfig(name=f"t{i}", embedding_dim=dim, num_embeddings=rows, feature_names=[f"f{i}"]))
        limits[f"t{i}"] = ParameterConstraints(pooling_factors=[factor])
    return Model(tables), limits


def largest_rank_ms(
    plan: ShardingPlan, model: Model, limits: dict[str, ParameterConstraints], topology: Topology
) -> float:
    """The step of a plan by TorchRec's own estimator: the largest sum over a rank's shards."""
    enumerator = EmbeddingEnumerator(topology=topology, batch_size=BATCH_SIZE, constraints=limits)
    enumerator.enumerate(Model([]), [EmbeddingBagCollectionSharder()])  # type: ignore[list-item]
    weights = {name.split(".")[-2]: parameter for name, parameter in model.ebc.named_parameters()}
    options = [_option(name, parameter, weights[name], model, limits) for name, parameter in plan.plan["ebc"].items()]  # type: ignore[attr-defined]
    EmbeddingPerfEstimator(topology=topology, constraints=limits).estimate(options, enumerator._sharder_data_map)
    load = [0.0] * topology.world_size
    for option in options:
        for shard in option.shards:
            assert shard.perf is not None
            assert shard.rank is not None
            load[shard.rank] += shard.perf.total
    return max(load)


def _option(name, parameter, weight, model, limits) -> ShardingOption:
    if parameter.sharding_spec is None:
        shards = [Shard(size=list(weight.shape), offset=[0, 0], rank=rank) for rank in parameter.ranks]
    else:
        places = zip(parameter.sharding_spec.shards, parameter.ranks, strict=True)
        shards = [Shard(size=list(s.shard_sizes), offset=list(s.shard_offsets), rank=rank) for s, rank in places]
    return ShardingOption(
        name=name, tensor=weight, module=("ebc", model.ebc), input_lengths=limits[name].pooling_factors,
        batch_size=BATCH_SIZE, sharding_type=parameter.sharding_type, compute_kernel=parameter.compute_kernel,
        partition_by=get_partition_by_type(parameter.sharding_type), shards=shards, is_pooled=True,
    )  # fmt: skip


def timed(make: Callable[[], ShardingPlan]) -> tuple[ShardingPlan, float]:
    begun = time.perf_counter()
    plan = make()
    return plan, time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=1000)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--timeout", type=int, default=120, help="seconds for TorchRec's planner")
    words = parser.parse_args()
    model, limits = generate(words.tables)
    topology = Topology(world_size=words.ranks, local_world_size=8, compute_device="cuda", hbm_cap=64 * 2**30)
    sharders = [EmbeddingBagCollectionSharder()]
    print("| planner | seconds | step by TorchRec's estimator (ms) |\n|---|---|---|")
    ours = RecSmithPlanner(
        topology, batch_size=BATCH_SIZE, constraints=limits, limits=Constraints(memory="torchrec"), reserve_bytes=0
    )
    plan, seconds = timed(lambda: ours.plan(model, sharders))  # type: ignore[arg-type]
    assert ours.result is not None
    bound = (ours.result.plan.bound.value_s or 0.0) * 1e3
    step = largest_rank_ms(plan, model, limits, topology)
    print(f"| RecSmith (proven bound {bound:.3f} ms) | {seconds:.2f} | {step:.3f} |", flush=True)
    theirs = EmbeddingShardingPlanner(
        topology=topology, batch_size=BATCH_SIZE, constraints=limits, timeout_seconds=words.timeout, stats=[],
        storage_reservation=FixedPercentageStorageReservation(0.0),
    )  # fmt: skip
    begun = time.perf_counter()
    try:
        plan = theirs.plan(model, sharders)  # type: ignore[arg-type]
        step_text = f"{largest_rank_ms(plan, model, limits, topology):.3f}"
    except PlannerError as error:
        step_text = f"no plan ({str(error)[:60]})"
    print(f"| TorchRec 1.8, {words.timeout} s limit | {time.perf_counter() - begun:.0f} | {step_text} |")


if __name__ == "__main__":
    main()
