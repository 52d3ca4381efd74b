"""A cluster in TorchRec's terms: topologies, and the arguments of DMPCollection."""

import ast
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

from recsmith.errors import UsageError

pytestmark = pytest.mark.usefixtures("torchrec")


def test_a_topology_is_read_as_a_cluster() -> None:
    from torchrec.distributed.planner import Topology

    from recsmith import load_cluster
    from recsmith.torchrec import read_cluster

    read = read_cluster(Topology(world_size=16, local_world_size=8, compute_device="cuda"))
    ours = load_cluster("torchrec-default:8x2")
    assert (read.hosts, read.local_world_size, read.capacities) == (2, 8, ours.capacities)
    assert read.ddr_bytes_per_host == ours.ddr_bytes_per_host
    assert read.device.hbm_bandwidth == pytest.approx(ours.device.hbm_bandwidth)
    assert read.device.host_link_bandwidth == pytest.approx(ours.device.host_link_bandwidth)
    assert read.links.intra_host_bandwidth == pytest.approx(ours.links.intra_host_bandwidth)
    assert read.links.inter_host_bandwidth == pytest.approx(ours.links.inter_host_bandwidth)
    assert read_cluster(Topology(world_size=2, compute_device="cpu")).device.kind == "cpu"


def test_a_pod_of_several_hosts_is_a_host_of_trays() -> None:
    from torchrec.distributed.planner import Topology

    from recsmith.adapters.topology import to_topology
    from recsmith.torchrec import read_cluster

    pods = Topology(world_size=64, local_world_size=4, pod_size=8, compute_device="cuda")
    read = read_cluster(pods)
    assert (read.hosts, read.local_world_size, read.devices_per_tray, read.machine_devices) == (2, 32, 4, 4)
    assert read.ddr_bytes_per_host == 32 * pods.devices[0].storage.ddr
    back = to_topology(read)
    assert (back.local_world_size, back.intra_group_size, back.world_size) == (4, 32, 64)
    plain = read_cluster(Topology(world_size=8, local_world_size=4, pod_size=1, compute_device="cuda"))
    assert (plain.local_world_size, plain.devices_per_tray) == (4, None)


@pytest.mark.parametrize(("ranks", "pod"), [(48, 8), (16, 8)])
def test_pods_that_do_not_tile_the_ranks_are_refused(ranks: int, pod: int) -> None:
    from torchrec.distributed.planner import Topology

    from recsmith.torchrec import read_cluster

    pods = Topology(world_size=ranks, local_world_size=4, pod_size=pod, compute_device="cuda")
    with pytest.raises(
        UsageError, match=f"pods of 8 hosts of 4 devices do not tile the topology's {ranks}; give a pod"
    ):
        read_cluster(pods)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            {"world_size": 6, "local_world_size": 4, "compute_device": "cuda"},
            "hosts of 4 devices do not tile the topology's 6; give a",
        ),
        ({"world_size": 2, "compute_device": "mtia"}, "has devices of kind mtia; cuda and cpu are planned"),
    ],
)
def test_topologies_that_are_not_planned_are_refused(fields: dict[str, Any], words: str) -> None:
    from torchrec.distributed.planner import Topology

    from recsmith.torchrec import read_cluster

    with pytest.raises(UsageError, match=words):
        read_cluster(Topology(**fields))


def test_host_memory_is_that_of_the_smallest_host() -> None:
    from torchrec.distributed.planner import Topology
    from torchrec.distributed.planner.types import CustomTopologyData

    from recsmith.torchrec import read_cluster

    sizes = CustomTopologyData({"ddr_cap": [9, 9, 4, 5]}, world_size=4)
    topology = Topology(world_size=4, local_world_size=2, compute_device="cuda", custom_topology_data=sizes)
    assert read_cluster(topology).ddr_bytes_per_host == 9


@pytest.mark.parametrize(
    ("kind", "local", "pod", "words"),
    [
        ("table_row_wise", "2", None, None),
        ("table_wise", "4", None, "a host of the cluster has 2 devices, and in this job TorchRec takes 4 ranks for"),
        ("table_row_wise", "4", None, "'a' is table_row_wise, which does not run so: .* with 1 host of 4 devices"),
        ("table_row_wise", "1", "2", None),
        ("table_row_wise", "2", "2", "with 1 host of 4 devices"),
        ("table_row_wise", "2", "3", "TORCHREC_RESOLVED_POD_SIZE is not of this job: World size 4 is not a multiple"),
    ],
)
def test_hosts_of_a_plan_are_those_of_the_job(
    monkeypatch: pytest.MonkeyPatch, kind: str, local: str, pod: str | None, words: str | None
) -> None:
    from support.build import placed, plan_of, table, workload

    from recsmith import load_cluster
    from recsmith.adapters.topology import check_hosts

    monkeypatch.setenv("LOCAL_WORLD_SIZE", local)
    monkeypatch.delenv("TORCHREC_RESOLVED_POD_SIZE", raising=False)
    if pod is not None:
        monkeypatch.setenv("TORCHREC_RESOLVED_POD_SIZE", pod)
    plan = plan_of(workload(table("a")), load_cluster("cpu:2x2"), placed("a", kind, (0, 1) if "row" in kind else (0,)))
    if words is None or kind == "table_wise":
        told = check_hosts(plan)
        assert told is None if words is None else told is not None and told.startswith(words)
        return
    with pytest.raises(UsageError, match=words):
        check_hosts(plan)


def test_shards_on_trays_are_on_the_devices_of_their_machine() -> None:
    import torch
    from support.build import placed, plan_of, table, workload
    from torchrec import EmbeddingBagCollection, EmbeddingBagConfig

    from recsmith import load_cluster
    from recsmith.torchrec import to_sharding_plan

    config = EmbeddingBagConfig(name="a", num_embeddings=7200, embedding_dim=32, feature_names=["a"])
    model = torch.nn.ModuleDict({"ebc": EmbeddingBagCollection(tables=[config], device=torch.device("meta"))})
    rack = load_cluster("gb300:72")
    plan = plan_of(workload(table("a", rows=7200, collection="ebc")), rack, placed("a", "row_wise", range(72)))
    sharding = to_sharding_plan(plan, model, device="cuda").plan["ebc"]
    words = [str(shard.placement) for shard in sharding["a"].sharding_spec.shards]  # type: ignore[index]
    assert words[:2] + words[69:71] == ["rank:0/cuda:0", "rank:1/cuda:1", "rank:69/cuda:1", "rank:70/cuda:2"]


PAGE = Path(__file__).parents[2] / "docs" / "torchrec.md"


def _planner(**words: Any) -> Any:
    from recsmith.torchrec import RecSmithPlanner

    return RecSmithPlanner("h100:8x4", **words)


def test_the_plan_is_for_one_group_and_collective_plan_for_all_ranks() -> None:
    cluster = _planner(sharding_group_size=16, steps_per_sync=20).cluster
    assert (cluster.world_size, cluster.job_world_size, cluster.replication.steps_per_sync) == (16, 32, 20)
    assert _planner().cluster.replication is None


def test_a_topology_is_the_whole_jobs() -> None:
    from torchrec.distributed.planner import Topology

    from recsmith.torchrec import RecSmithPlanner

    topology = Topology(world_size=16, local_world_size=8, compute_device="cuda")
    cluster = RecSmithPlanner(topology, sharding_group_size=8).cluster
    assert (cluster.local_world_size, cluster.hosts, cluster.job_world_size) == (4, 2, 16)


@pytest.mark.parametrize(("blocks", "node"), [(False, 4), (True, 8)])
def test_arguments_of_dmp_collection_are_its_own_and_lay_out_the_planned_hosts(blocks: bool, node: int) -> None:
    from torchrec.distributed.model_parallel import DMPCollection

    planner = _planner(sharding_group_size=16, use_inter_host_allreduce=blocks)
    made = planner.dmp_collection_arguments()
    assert made == {
        "world_size": 32, "sharding_group_size": 16, "node_group_size": node, "use_inter_host_allreduce": blocks,
    }  # fmt: skip
    assert made.keys() <= signature(DMPCollection).parameters.keys()


def test_replicas_that_are_fully_sharded_say_so_in_torchrecs_words() -> None:
    from torchrec.distributed.types import ShardingStrategy

    made = _planner(sharding_group_size=16, fully_sharded=True).dmp_collection_arguments()
    assert made.get("sharding_strategy") == ShardingStrategy.FULLY_SHARDED


def test_a_job_of_one_group_has_no_such_arguments() -> None:
    with pytest.raises(UsageError, match="which DistributedModelParallel trains; give the planner"):
        _planner(sharding_group_size=32).dmp_collection_arguments()


@pytest.mark.parametrize(
    ("words", "message"),
    [({"sharding_group_size": 5}, "do not divide the job's 32"), ({"steps_per_sync": 0}, "steps_per_sync is 0")],
)
def test_groups_that_cannot_be_are_refused(words: dict[str, int], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        _planner(**words)


def test_the_page_calls_what_there_is() -> None:
    """The code of docs/torchrec.md on 2D jobs: its keywords are those of RecSmithPlanner and DMPCollection."""
    from torchrec.distributed.model_parallel import DMPCollection

    from recsmith.torchrec import RecSmithPlanner

    code = PAGE.read_text().partition("## 2D parallelism")[2].partition("```python\n")[2].partition("```")[0]
    called = {node.func.id: node for node in ast.walk(ast.parse(code))
              if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}  # fmt: skip
    for name, known in (("RecSmithPlanner", RecSmithPlanner), ("DMPCollection", DMPCollection)):
        words = {keyword.arg for keyword in called[name].keywords if keyword.arg}
        assert words <= signature(known).parameters.keys()
    methods = {node.func.attr for node in ast.walk(ast.parse(code))
               if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)}  # fmt: skip
    assert {"collective_plan", "dmp_collection_arguments", "sync"} <= methods
