"""What TorchRec's planner really logs, through Python's logging: read as it is, and as the stored reports say."""

import io
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.build import cluster
from support.planner_logs import bare

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
