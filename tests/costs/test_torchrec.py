"""Cost model `torchrec` and memory accounting `torchrec` against TorchRec's own planner, option by option."""

import importlib.util
import random
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any

import numpy as np
import pytest
from support.cases import OFF_DISK

from recsmith import Constraints, Feature, Space, Table, TableRule, UsageError, Workload, load_cluster
from recsmith.clusters import Cluster
from recsmith.costs import cost_model
from recsmith.plans import PARTS
from recsmith.problems import Problem, build_problem, option_pieces
from recsmith.sharding import KERNEL_NAMES, SHARDING_TYPES, sharding_type
from recsmith.sharding.kernel_limits import KernelLimits

BATCH = 2560
ROOM = 2**50
OPTIMIZERS = ("sgd", "adagrad", "rowwise_adagrad", "partial_rowwise_adam", "adam", "lamb")
PIPELINES = ("none", "sparse_dist", "prefetch_sparse_dist")
PAIRS = tuple(zip(OPTIMIZERS, cycle(PIPELINES)))  # the first says what state weighs, the second what buffers do

Key = tuple[str, str, str]  # table, sharding type, kernel


@dataclass(frozen=True)
class Setting:
    """A cluster and a workload's options; the bytes are weighed for each (optimizer, pipeline) of `weighed`."""

    cluster: str
    comm_dtype: Any = None
    kernels: tuple[str, ...] = OFF_DISK
    min_width: int | None = None
    cache_factor: float | None = None  # None: what TorchRec takes where nothing is said
    weighed: tuple[tuple[str, str], ...] = ()
    backward_comm_dtype: Any = None

    def __str__(self) -> str:
        return f"{self.cluster}-{self.comm_dtype}-{self.backward_comm_dtype}"


SETTINGS = (
    Setting("torchrec-default:8", weighed=PAIRS),
    Setting("torchrec-default:8", "fp16", ("fused", "fused_uvm"), min_width=32),
    Setting(
        "h100:8",
        kernels=("fused_uvm_caching",),
        cache_factor=0.37,
        weighed=(*PAIRS, ("sgd", PIPELINES[2]), ("adam", PIPELINES[2])),
    ),
    Setting("torchrec-default:4x3", weighed=(*PAIRS[:3], ("adam", "none"))),
    Setting("torchrec-default:8x12", "fp16", ("fused",), backward_comm_dtype="fp32"),
    Setting("h100:4x2", "fp32", ("fused", "dense")),
    Setting("h100:4x2", "int8", ("fused",), backward_comm_dtype="bf16"),
    Setting("cpu:8", None, ("fused", "dense"), weighed=(("rowwise_adagrad", "none"), ("adam", "none"))),
    Setting("cpu:8", "fp16", ("fused", "dense"), weighed=tuple(("adagrad", each) for each in PIPELINES[1:])),
)


def draw_tables(count: int = 40, seed: int = 20) -> tuple[Table, ...]:
    rng = random.Random(seed)
    tables: list[Table] = []
    for i in range(count):
        weighted = rng.random() < 0.25
        features = tuple(
            Feature(
                name=f"f{i}_{j}",
                pooling_factor=rng.choice(
                    [0.0, 1.0, rng.random(), 20 * rng.random(), round(rng.lognormvariate(2, 2), 3), 5e3]
                ),
                num_poolings=rng.choice([1.0, 1.0, 2.0, 0.37, 3.5]),
                weighted=weighted,
                batch_size=rng.choice([None, None, 7, 1000, 4096]),
            )
            for j in range(rng.choice([1, 1, 2, 5]))
        )
        tables.append(
            Table(
                name=f"t{i}",
                num_embeddings=rng.choice(
                    [rng.randint(2, 200), int(2 * 4e7 ** rng.random()), rng.randint(10**6, 8 * 10**7)]
                ),
                embedding_dim=rng.choice(
                    [4 * rng.randint(1, 16), 4 * rng.randint(1, 512), rng.choice([128, 256, 768, 1536, 2048])]
                ),
                features=features,
                pooling="none" if rng.random() < 0.3 else rng.choice(["sum", "mean"]),
                data_type=rng.choice(["fp32", "fp16"]),
                collection=f"m{i}",  # sequence tables of one collection would have to share a width
            )
        )
    return tuple(tables)


TABLES = draw_tables()
BY_NAME = {table.name: table for table in TABLES}
SMALL = Workload(batch_size=8, optimizer="sgd", tables=TABLES[:2])


def sample(optimizer: str, pipeline: Any, setting: Setting, tables: tuple[Table, ...] = TABLES) -> Workload:
    return Workload(
        batch_size=BATCH,
        optimizer=optimizer,  # pyright: ignore[reportArgumentType]
        pipeline=pipeline,
        comm_dtype=setting.comm_dtype,
        backward_comm_dtype=setting.backward_comm_dtype,
        tables=tables,
    )


def kernel_limits(setting: Setting, optimizer: str) -> KernelLimits:
    return KernelLimits.of(sample(optimizer, "none", setting), load_cluster(setting.cluster))


def trained_tables(setting: Setting, optimizer: str) -> tuple[Table, ...]:
    """Tables that some kernel of a setting trains: a problem has no place for others."""
    limits = kernel_limits(setting, optimizer)
    types = {kernel: "data_parallel" if kernel == "dense" else "table_wise" for kernel in setting.kernels}
    return tuple(table for table in TABLES if any(not limits.refusal(table, types[kernel], kernel) for kernel in types))


def our_problem(setting: Setting, optimizer: Any = "sgd", pipeline: Any = "none") -> Problem:
    rules = (TableRule(tables="*", min_width=setting.min_width),) if setting.min_width else ()
    caching = "fused_uvm_caching" in setting.kernels
    factors: dict[str, Any] = {"cache_factors": (setting.cache_factor or 0.2,)} if caching else {}
    return build_problem(
        sample(optimizer, pipeline, setting, trained_tables(setting, optimizer)),
        load_cluster(setting.cluster).with_memory(ROOM),
        Space(widths="torchrec", kernels=setting.kernels, **factors),
        Constraints(memory="torchrec", rules=rules),
        needless=True,
    )


def our_options(problem: Problem) -> dict[Key, tuple[int, list[int]]]:
    """(mode, widths) of each option; the widths of TorchRec leave one a mode."""
    modes, found = problem.modes, {}
    for option, mode in enumerate(problem.options.mode.tolist()):
        key = (
            problem.tables[modes.table[mode]].name,
            SHARDING_TYPES[modes.type[mode]].name,
            KERNEL_NAMES[modes.kernel[mode]],
        )
        assert key not in found
        found[key] = mode, [int(problem.pieces.width[piece]) for piece in option_pieces(problem, option)]
    return found


# --- TorchRec -----------------------------------------------------------------------------------------------------


def their_cluster(cluster: Cluster) -> Any:
    from support.torchrec_reference import ReferenceCluster

    device, links = cluster.device, cluster.links
    theirs = ReferenceCluster(
        world_size=cluster.world_size,
        local_world_size=cluster.local_world_size,
        compute_device=device.kind,
        hbm_cap=ROOM,
        ddr_cap=ROOM,
    )
    if device.name in ("torchrec-default", "cpu"):  # the catalogue must hold TorchRec's own constants
        return theirs
    return replace(
        theirs,
        hbm_mem_bw=device.hbm_bandwidth,
        hbm_to_ddr_mem_bw=device.host_link_bandwidth,
        intra_host_bw=links.intra_host_bandwidth,
        inter_host_bw=links.inter_host_bandwidth,
    )


def their_table(table: Table, optimizer: str) -> Any:
    from support.torchrec_reference import ReferenceFeature, ReferenceTable

    fields = ("name", "pooling_factor", "num_poolings", "batch_size")
    return ReferenceTable(
        name=table.name,
        rows=table.num_embeddings,
        dim=table.embedding_dim,
        features=tuple(ReferenceFeature(**{f: getattr(feature, f) for f in fields}) for feature in table.features),
        data_type=table.data_type,
        pooled=table.pooled,
        weighted=table.weighted,
        optimizer=optimizer,
    )


def their_options(setting: Setting, optimizer: str = "sgd", pipeline: str = "none") -> dict[Key, Any]:
    from support.torchrec_reference import reference_options

    options = reference_options(
        [their_table(table, optimizer) for table in TABLES],
        their_cluster(load_cluster(setting.cluster)),
        batch_size=BATCH,
        kernels=setting.kernels,
        comm_dtype=setting.comm_dtype,
        backward_comm_dtype=setting.backward_comm_dtype,
        min_partition=setting.min_width,
        pipeline=None if pipeline == "none" else pipeline,
        cache_factor=setting.cache_factor,
    )
    return {(option.table, option.sharding_type, option.compute_kernel): option for option in options}


def cannot_run(option: Any, setting: Setting) -> bool:
    """What TorchRec lists and our sharding types, told from TorchRec's own shards, or FBGEMM's kernels refuse."""
    limits = kernel_limits(setting, "sgd")
    if limits.refusal(BY_NAME[option.table], option.sharding_type, option.compute_kernel):
        return True
    if option.compute_kernel == "dense" and option.sharding_type != "data_parallel":
        return True
    pieces = len({shard.column_offset for shard in option.shards})
    if option.sharding_type == "grid_shard" and not 2 <= pieces <= load_cluster(setting.cluster).hosts:
        return True
    return any(shard.rows == 0 for shard in option.shards)


# --- side by side -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SideBySide:
    """Every shard of every option that both have: mode, width and whether it is the last of its span, on our side."""

    setting: Setting
    problem: Problem
    ours: dict[Key, tuple[int, list[int]]]
    theirs: dict[Key, Any]
    names: list[tuple[Key, int]]
    mode: np.ndarray
    width: np.ndarray
    last: np.ndarray

    def shards(self, options: dict[Key, Any]) -> list[Any]:
        return [options[key].shards[i] for key, i in self.names]


@pytest.fixture(scope="module", params=SETTINGS, ids=str)
def both(request: pytest.FixtureRequest) -> SideBySide:
    if importlib.util.find_spec("torchrec") is None:
        pytest.skip("torchrec is not installed")
    return side_by_side(request.param)


def side_by_side(setting: Setting, optimizer: str = "sgd", pipeline: str = "none") -> SideBySide:
    problem, theirs = our_problem(setting, optimizer, pipeline), their_options(setting, optimizer, pipeline)
    ours = our_options(problem)
    names: list[tuple[Key, int]] = []
    rows: list[tuple[int, int, bool]] = []
    for key in (key for key in theirs if key in ours):
        mode, widths = ours[key]
        coverage = int(problem.modes.coverage[mode])
        assert len(theirs[key].shards) == len(widths) * coverage
        for i in range(len(theirs[key].shards)):
            names.append((key, i))
            rows.append((mode, widths[i // coverage], i % coverage == coverage - 1))
    mode, width, last = np.array(rows).T
    return SideBySide(setting, problem, ours, theirs, names, mode, width, last.astype(bool))


# --- laws ---------------------------------------------------------------------------------------------------------


def test_the_sample_holds_every_kind_of_table() -> None:
    features = [feature for table in TABLES for feature in table.features]
    assert {table.data_type for table in TABLES} == {"fp32", "fp16"}
    assert {(table.pooled, table.weighted) for table in TABLES} == {
        (a, b) for a in (True, False) for b in (True, False)
    }
    assert max(len(table.features) for table in TABLES) > 2
    assert min(table.embedding_dim for table in TABLES) < 32
    assert {64, 128, 2048} & {table.embedding_dim for table in TABLES}
    assert min(table.num_embeddings for table in TABLES) < 8
    assert max(table.num_embeddings for table in TABLES) > 5e7
    assert min(feature.pooling_factor for feature in features) == 0
    assert any(0 < feature.pooling_factor < 1 for feature in features)
    assert max(feature.pooling_factor for feature in features) > 1e3
    assert {feature.num_poolings for feature in features} >= {0.37, 2.0}
    assert {feature.batch_size for feature in features} >= {None, 1000}


def test_every_option_of_torchrec_is_ours_but_what_cannot_run(both: SideBySide) -> None:
    ours, theirs, kernels = both.ours.keys(), both.theirs.keys(), both.setting.kernels
    refused = {key for key, option in both.theirs.items() if cannot_run(option, both.setting)}
    assert theirs - ours == refused
    assert len(ours & theirs) > (330 if kernels == OFF_DISK else 100)
    assert {kernel for _, _, kernel in ours & theirs} == set(kernels)


def test_torchrec_lists_every_option_of_ours(both: SideBySide) -> None:
    unlisted = both.ours.keys() - both.theirs.keys()
    if both.problem.cluster.device.kind == "cpu":  # there TorchRec splits the rows of sequences only
        unlisted = {key for key in unlisted if not sharding_type(key[1]).splits_rows}
    assert unlisted == set()


def test_shards_have_torchrec_s_shapes(both: SideBySide) -> None:
    modes = both.problem.modes
    rows = np.where(both.last, modes.tail_rows[both.mode], modes.head_rows[both.mode])
    theirs = np.array([(shard.rows, shard.columns) for shard in both.shards(both.theirs)])
    assert np.array_equal(np.stack([rows, both.width], axis=1), theirs)


def test_seconds_equal_torchrec_s_in_all_four_parts(both: SideBySide) -> None:
    ours = cost_model("torchrec").compile(both.problem).terms(both.mode, both.width)
    theirs = np.array([[getattr(shard, part) for part in PARTS] for shard in both.shards(both.theirs)])
    wrong = np.argwhere(~(np.abs(ours - theirs) <= 1e-9 * theirs))
    assert [(both.names[i], PARTS[part], theirs[i, part], ours[i, part]) for i, part in wrong[:20]] == []


def test_bytes_equal_torchrec_s(both: SideBySide) -> None:
    # TorchRec counts what a CPU rank holds as ddr; for us it is the device's.
    cpu = both.problem.cluster.device.kind == "cpu"
    device, host = ("ddr_bytes", "hbm_bytes") if cpu else ("hbm_bytes", "ddr_bytes")
    for optimizer, pipeline in both.setting.weighed:
        here = side_by_side(both.setting, optimizer, pipeline)
        head, tail = here.problem.memory(here.mode, here.width)
        shards = here.shards(here.theirs)
        for ours, end, field in ((head.device, tail.device, device), (head.host, tail.host, host)):
            mine, theirs = np.where(here.last, end, ours), np.array([getattr(shard, field) for shard in shards])
            wrong = np.flatnonzero(mine != theirs)[:20]
            assert [(optimizer, pipeline, field, here.names[i], theirs[i], mine[i]) for i in wrong] == []


def test_features_are_summed_as_torchrec_does() -> None:
    # sum() compensates from Python 3.12 on: a last bit is a byte after rounding up
    features = tuple(Feature(name=str(p), pooling_factor=p) for p in (16.01, 18.74, 0.46, 8.51, 2.03))
    table = Table(name="t", num_embeddings=100, embedding_dim=8, features=features)
    problem = build_problem(Workload(batch_size=BATCH, optimizer="sgd", tables=(table,)), load_cluster("h100:8"))
    assert problem.demand.ids[0] == sum([feature.pooling_factor * 1.0 * BATCH for feature in features])


@pytest.mark.parametrize("kernel", ["fused_uvm", "fused_uvm_caching"])
@pytest.mark.parametrize("device", ["cpu", "torchrec-default"])
def test_uvm_without_a_cuda_device_and_its_host_link_is_not_covered(kernel: str, device: str) -> None:
    cluster = replace(load_cluster(f"{device}:8"), ddr_bytes_per_host=ROOM)
    cluster = replace(cluster, device=replace(cluster.device, host_link_bandwidth=None))
    problem = build_problem(SMALL, cluster, Space(kernels=("fused", kernel)))
    with pytest.raises(UsageError, match="not covered"):
        cost_model("torchrec").compile(problem)


def test_a_host_link_does_not_make_uvm_covered_on_cpu() -> None:
    cluster = replace(load_cluster("cpu:8"), ddr_bytes_per_host=ROOM)
    cluster = replace(cluster, device=replace(cluster.device, host_link_bandwidth=64e9))
    problem = build_problem(SMALL, cluster, Space(kernels=("fused_uvm",)))
    with pytest.raises(UsageError, match="not covered"):
        cost_model("torchrec").compile(problem)
