"""What TorchRec's planner really logs, through Python's logging: read as it is, and as the stored reports say."""

import io
import json
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.build import cluster, table, workload
from support.planner_logs import bare

from recsmith.errors import PlanMismatch
from recsmith.plans import Placement
from recsmith.plans.running import load_placements
from recsmith.workloads import Workload, load_workload

pytestmark = pytest.mark.usefixtures("torchrec")

LOGGER = "torchrec.distributed.planner.stats"
FORMATS = (
    logging.BASIC_FORMAT,
    "%(message)s",
    "[%(asctime)s] [%(levelname)s] %(message)s",
    "%(asctime)s | %(process)d | %(threadName)s | %(name)s:%(lineno)d | %(message)s",
    "%(relativeCreated)d %(levelname).1s %(funcName)s# %(message)s",
    '{"time": %(created)f, "level": "%(levelname)s", "message": "%(message)s"}',
    "    %(message)s",
)
TABLES = {  # those of the stored reports: rows, columns, sharding type, kernel
    "mixed": {"user": (100_000, 64, "row_wise", "fused"), "item": (5000, 32, "table_wise", "fused"),
              "query": (2000, 64, "column_wise", "fused")},
    "cached": {"tiny": (100, 16, "data_parallel", "dense"), "huge": (1_000_000, 64, "row_wise", "fused_uvm_caching")},
}  # fmt: skip


@pytest.fixture
def logged() -> Iterator[dict[str, io.StringIO]]:
    """What a handler of each format writes, by format."""
    logger = logging.getLogger(LOGGER)
    before = logger.level, logger.propagate
    written = {words: io.StringIO() for words in FORMATS}
    handlers: list[logging.Handler] = []
    for words, stream in written.items():
        handlers.append(logging.StreamHandler(stream))
        handlers[-1].setFormatter(logging.Formatter(words))
        logger.addHandler(handlers[-1])
    logger.setLevel(logging.INFO)
    logger.propagate = False
    yield written
    for handler in handlers:
        logger.removeHandler(handler)
    logger.setLevel(before[0])
    logger.propagate = before[1]


def plan_with_torchrec(name: str) -> None:
    """Let TorchRec's planner plan the tables of a stored report, which logs."""
    import torch
    from torchrec import EmbeddingBagCollection, EmbeddingBagConfig
    from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
    from torchrec.distributed.planner import EmbeddingShardingPlanner, ParameterConstraints, Topology
    from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation
    from torchrec.distributed.types import CacheParams

    tables = TABLES[name]
    configs = [
        EmbeddingBagConfig(name=table, num_embeddings=rows, embedding_dim=dim, feature_names=[table])
        for table, (rows, dim, _, _) in tables.items()
    ]
    limits = {
        table: ParameterConstraints(
            sharding_types=[kind], compute_kernels=[kernel], min_partition=16, pooling_factors=[3.0],
            cache_params=CacheParams(load_factor=0.3) if "caching" in kernel else None,
        )
        for table, (_, _, kind, kernel) in tables.items()
    }  # fmt: skip
    model = torch.nn.Module()
    model.sparse = EmbeddingBagCollection(tables=configs, device=torch.device("meta"))
    planner = EmbeddingShardingPlanner(
        topology=Topology(world_size=4, local_world_size=4, compute_device="cuda"), batch_size=512, constraints=limits,
        storage_reservation=FixedPercentageStorageReservation(0.1), debug=True,
    )  # fmt: skip
    planner.plan(model, [EmbeddingBagCollectionSharder()])  # type: ignore[list-item]


def read(folder: Path, text: str) -> tuple[Workload, tuple[Placement, ...]]:
    (folder / "job.log").write_text(text)
    work = load_workload(str(folder / "job.log"))
    return work, load_placements(str(folder / "job.log"), work, cluster(hosts=1, local=4))


@pytest.mark.parametrize("name", TABLES)
def test_its_logs_are_read_in_any_format(tmp_path: Path, logged: dict[str, io.StringIO], name: str):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plan_with_torchrec(name)
    expected = read(tmp_path, bare(name))
    for words, stream in logged.items():
        assert read(tmp_path, f"start\n{stream.getvalue()}step 0\n") == expected, words


@pytest.mark.parametrize("name", TABLES)
def test_the_stored_reports_are_what_it_logs(logged: dict[str, io.StringIO], name: str):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plan_with_torchrec(name)
    logs = logged["%(message)s"].getvalue(), bare(name)
    rows, stored = ([row for row in log.splitlines() if "--- Evaluated" not in row] for log in logs)
    one = "Estimated Sharding Distribution"  # its row is one character longer than the frame
    assert [f"{row[:-2]}#" if one in row else row for row in rows] == stored


@pytest.mark.parametrize(("local", "hosts", "empty"), [(2, 2, False), (8, 1, True)])
def test_a_table_of_two_rows_is_taken_where_torchrec_gives_every_rank_some(
    tmp_path: Path, logged: dict[str, io.StringIO], local: int, hosts: int, empty: bool
) -> None:
    """Two rows over the 2 ranks of a host have one each; TorchRec leaves 6 of 8 ranks without any."""
    tables = workload(table("t", 2, 16, pooling_factor=3.0), batch_size=512)
    where = cluster(hosts=hosts, local=local)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = two_rows_by_torchrec(local, hosts)
    (serialized,) = made._serialize()["plan"].values()
    heights = [shard["shard_sizes"][0] for shard in serialized["t"]["shards"]]
    assert (0 in heights) == empty
    texts = {
        "dump": json.dumps(made._serialize()), "printed": str(made), "objects": str(made.plan),
        "log": logged["%(message)s"].getvalue(),
    }  # fmt: skip
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        if empty:
            with pytest.raises(
                PlanMismatch, match=r"'t' .*2 rows in blocks of ceil\(rows / 8\) leave a rank of 8 empty"
            ):
                load_placements(str(tmp_path / name), tables, where)
        else:
            (found,) = load_placements(str(tmp_path / name), tables, where)
            assert (found.sharding_type, found.ranks) in (("table_row_wise", (0, 1)), ("table_row_wise", (2, 3)))


def two_rows_by_torchrec(local: int, hosts: int) -> Any:
    """TorchRec's plan of one table of two rows, by rows on a host."""
    import torch
    from torchrec import EmbeddingBagCollection, EmbeddingBagConfig
    from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
    from torchrec.distributed.planner import EmbeddingShardingPlanner, ParameterConstraints, Topology
    from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation

    model = torch.nn.Module()
    config = EmbeddingBagConfig(name="t", num_embeddings=2, embedding_dim=16, feature_names=["t"])
    model.sparse = EmbeddingBagCollection(tables=[config], device=torch.device("meta"))
    limits = {"t": ParameterConstraints(
        sharding_types=["table_row_wise"], compute_kernels=["fused"], pooling_factors=[3.0])}  # fmt: skip
    planner = EmbeddingShardingPlanner(
        topology=Topology(world_size=local * hosts, local_world_size=local, compute_device="cuda"), batch_size=512,
        constraints=limits, storage_reservation=FixedPercentageStorageReservation(0.1), debug=True,
    )  # fmt: skip
    return planner.plan(model, [EmbeddingBagCollectionSharder()])  # type: ignore[list-item]
