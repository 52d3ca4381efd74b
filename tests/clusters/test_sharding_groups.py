"""Sharding groups of a 2D job: which ranks share hosts, what memory they have, and which layouts no job has."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from recsmith.clusters import (
    Cluster,
    cluster_from_raw,
    cluster_to_raw,
    group_and_rank,
    load_cluster,
    replica_ring,
    sharding_group,
    whole_job,
)
from recsmith.errors import CorruptFile, UsageError

JOBS = [
    ("h100:8x12", 32), ("h100:8x12", 12), ("h100:8x12", 48), ("h100:8x2", 4), ("h100:4", 2), ("h100:8x4", 8),
    ("h100:8x4", 2), ("h100:1x4", 2), ("h100:8x4", 1),
]  # fmt: skip


def groups_of(job: Cluster, size: int, blocks: bool) -> list[list[int]]:
    """Ranks of each group as torchrec/distributed/model_parallel.py lists them (_create_process_groups)."""
    count = job.world_size // size
    return [
        [g * size + r for r in range(size)] if blocks else [count * r + g for r in range(size)] for g in range(count)
    ]


def neighbours_on_a_host(lists: Sequence[Sequence[int]], local: int) -> int:
    """The largest number of list neighbours, in blocks, that are on one host in every block of every list."""
    hosts = [[rank // local for rank in ranks] for ranks in lists]
    length = len(lists[0])

    def fits(size: int) -> bool:
        return all(len(set(each[at : at + size])) == 1 for each in hosts for at in range(0, length, size))

    return max(size for size in range(1, length + 1) if length % size == 0 and fits(size))


@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize(("name", "size"), JOBS)
def test_hosts_of_a_group_and_of_its_replicas_are_those_of_torchrecs_lists(name: str, size: int, blocks: bool):
    job = load_cluster(name)
    group = sharding_group(job, size, use_inter_host_allreduce=blocks)
    lists = groups_of(job, size, blocks)
    assert (group.world_size, group.job_world_size) == (size, job.world_size)
    assert group.local_world_size == neighbours_on_a_host(lists, job.local_world_size)
    ring = replica_ring(group)
    replicas = [list(ranks) for ranks in zip(*lists, strict=True)]
    assert ring.world_size == len(lists)
    assert ring.local_world_size == neighbours_on_a_host(replicas, job.local_world_size)
    assert (whole_job(group).local_world_size, whole_job(group).hosts) == (job.local_world_size, job.hosts)
    for rank in range(job.world_size):
        number, place = group_and_rank(group, rank)
        assert lists[number][place] == rank
    assert cluster_from_raw(cluster_to_raw(group), "c") == group


def test_one_group_is_the_job_itself_and_files_say_nothing_of_it():
    job = load_cluster("h100:8x2")
    assert sharding_group(job, 16, steps_per_sync=3) == job
    assert "replication" not in cluster_to_raw(job)
    assert (whole_job(job), group_and_rank(job, 5), replica_ring(job).world_size) == (job, (0, 5), 1)


def test_a_rank_has_the_least_memory_of_its_replicas_and_its_share_of_the_host():
    sizes = tuple(10 + rank for rank in range(8))
    job = replace(load_cluster("h100:4x2"), hbm_bytes=sizes, ddr_bytes_per_host=4000)
    assert sharding_group(job, 4).hbm_bytes == (10, 12, 14, 16)
    assert sharding_group(job, 4, use_inter_host_allreduce=True).hbm_bytes == (10, 11, 12, 13)
    assert sharding_group(job, 4).ddr_bytes_per_host == 2000
    assert sharding_group(job, 4, use_inter_host_allreduce=True).ddr_bytes_per_host == 4000


def test_a_report_names_groups_replicas_and_steps():
    group = sharding_group(load_cluster("h100:8x12"), 32, steps_per_sync=20)
    assert group.describe() == "h100:8x12, 79.2 GiB a device; sharding groups of 32, 3 replicas, sync every 20 steps"


@pytest.mark.parametrize(
    ("size", "words", "message"),
    [
        (5, {}, r"groups of 5 devices do not divide the job's 16; take one of 1, 2, 4, 8, 16"),
        (0, {}, "groups of 0 devices do not divide"),
        (32, {}, "groups of 32 devices do not divide"),
        (8, {"steps_per_sync": 0}, "steps_per_sync is 0; replicas sync every so many steps, at least 1"),
    ],
)
def test_groups_that_cannot_be_are_refused(size: int, words: dict[str, int], message: str):
    with pytest.raises(UsageError, match=message):
        sharding_group(load_cluster("h100:8x2"), size, **words)  # type: ignore[arg-type]


def test_a_group_has_no_groups_of_its_own():
    with pytest.raises(UsageError, match="is a sharding group of a 2D job already"):
        sharding_group(sharding_group(load_cluster("h100:8x2"), 8), 4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"replicas": 1}, "at least 2 sharding groups"),
        ({"replicas": 3}, "3 sharding groups of 8 devices are 24; they must fill hosts of 16"),
        ({"job_local_world_size": 0}, "a host has at least 1 device"),
        (
            {"job_local_world_size": 2},
            "is 8; 1 of its neighbouring ranks share a host of 2 in this layout: set it to 1",
        ),
        ({"steps_per_sync": -1}, "steps_per_sync is -1"),
        ({"replicates": 2}, "not a known field; did you mean 'replicas'"),
    ],
)
def test_a_file_of_a_group_that_no_job_has_is_refused(change: dict[str, int], message: str):
    raw = cluster_to_raw(sharding_group(load_cluster("h100:16"), 8))
    with pytest.raises(CorruptFile, match=message):
        cluster_from_raw(raw | {"replication": raw["replication"] | change}, "c.yaml")
