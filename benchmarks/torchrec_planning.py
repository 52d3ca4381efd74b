"""Planning inside a job: RecSmithPlanner beside TorchRec's own planner, plans and bound by TorchRec's estimator.

    python benchmarks/torchrec_planning.py --tables 1000 --ranks 64 --torchrec planning.jsonl

Generated tables (seed 0): rows log-uniform in 100 .. 1e7, dims 16 .. 256, pooling factors log-uniform in 1 .. 50; batch
2,048, hosts of 8, TorchRec's default topology with 64 GiB a device, no storage reservation. RecSmith plans under cost
model `torchrec`, which is TorchRec's estimator; that both say the same of its plan is checked. TorchRec's planner runs
with each of a list of settings (torchrec_rows.py).
"""

import argparse
import logging
import math
import random
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)

import torch  # noqa: E402
from torch import nn  # noqa: E402
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig  # noqa: E402
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder  # noqa: E402
from torchrec.distributed.planner import ParameterConstraints, Topology  # noqa: E402
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator, get_partition_by_type  # noqa: E402
from torchrec.distributed.planner.shard_estimators import EmbeddingPerfEstimator  # noqa: E402
from torchrec.distributed.planner.types import Shard, ShardingOption  # noqa: E402
from torchrec.distributed.types import ShardingPlan  # noqa: E402
from torchrec_rows import CAP_S, PROPOSER_CPU_S, SEVEN, Problem, run_all, settings_of  # noqa: E402

from recsmith import Constraints, Plan, Workload  # noqa: E402
from recsmith.files import dump_json  # noqa: E402
from recsmith.torchrec import RecSmithPlanner  # noqa: E402
from recsmith.workloads import workload_to_raw  # noqa: E402

BATCH_SIZE = 2048
GIB = 64  # of a device
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=1000)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--torchrec", type=Path, metavar="FILE", help="run TorchRec's planner too; results go there")
    parser.add_argument("--cpu", type=float, default=PROPOSER_CPU_S, help="CPU seconds of each of its proposers")
    parser.add_argument("--cap", type=int, default=CAP_S, help="CPU seconds after which its process is ended")
    words = parser.parse_args()
    model, limits = generate(words.tables)
    print("| planner | setting | step (ms) | above the bound | seconds | CPU seconds |\n|---|---|---|---|---|---|")
    plan, bound = _ours(model, limits, words.ranks)
    if words.torchrec:
        for row in _theirs(plan.workload, words):
            cells = row["setting"], _step_cells(row, bound), _seconds(row, "wall_s"), _seconds(row, "cpu_s")
            print(f"| TorchRec | {' | '.join(cells)} |", flush=True)


def _ours(model: Model, limits: dict[str, ParameterConstraints], ranks: int) -> tuple[Plan, float]:
    """RecSmith's plan under TorchRec's estimator, from the model to the ShardingPlan, and its bound in ms."""
    topology = Topology(world_size=ranks, local_world_size=8, compute_device="cuda", hbm_cap=GIB * 2**30)
    planner = RecSmithPlanner(
        topology,
        batch_size=BATCH_SIZE,
        constraints=limits,
        limits=Constraints(memory="torchrec"),
        cost_model="torchrec",
        reserve_bytes=0,
    )
    wall, cpu = time.perf_counter(), time.process_time()
    sharding_plan = planner.plan(model, [EmbeddingBagCollectionSharder()])  # type: ignore[list-item]
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    assert planner.result is not None
    plan = planner.result.plan
    step, bound = plan.cost.total_s * 1e3, (plan.bound.value_s or 0.0) * 1e3
    estimated = largest_rank_ms(sharding_plan, model, limits, topology)
    assert abs(estimated / step - 1) < 1e-6, f"TorchRec's estimator: {estimated} ms, cost model torchrec: {step} ms"
    print(f"| bound | | {bound:.3f} | | | |")
    print(f"| RecSmith | | {step:.3f} | {step / bound - 1:.2%} | {wall:.2f} | {cpu:.2f} |", flush=True)
    return plan, bound


def _theirs(workload: Workload, words: argparse.Namespace) -> list[dict[str, Any]]:
    """TorchRec's planner under every setting of the list, stock first."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "tables.json"
        file.write_text(dump_json(workload_to_raw(workload)))
        problem = Problem(
            name=f"{words.tables} tables, {words.ranks} ranks", workload=str(file), gib=GIB,
            cluster=f"torchrec-default:8x{words.ranks // 8}",
        )  # fmt: skip
        return run_all(problem, settings_of(SEVEN, words.cpu), words.torchrec, words.cap)


def _step_cells(row: dict[str, Any], bound: float) -> str:
    return f"{row['error']} | -" if "error" in row else f"{row['step_ms']:.3f} | {row['step_ms'] / bound - 1:.2%}"


def _seconds(row: dict[str, Any], name: str) -> str:
    return f"{row[name]:.1f}" if name in row else "-"


if __name__ == "__main__":
    main()
