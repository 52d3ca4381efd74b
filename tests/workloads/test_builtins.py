"""The workloads that ship with RecSmith: they load, name their source, and have the figures that are known of them."""

import json
from pathlib import Path

import numpy as np
import pytest

from recsmith.workloads import Workload, builtins, load_workload
from recsmith.workloads.reuse import zipf_unique_rows

CRITEO = ("criteo-1tb", "criteo-kaggle", "dlrm-v2")
NVIDIA = {  # name: tables and GiB as published, devices of the largest published run
    "tiny": (55, 4.2, 16),
    "small": (107, 26.3, 32),
    "medium": (311, 206.2, 128),
    "large": (612, 773.8, 128),
    "jumbo": (1022, 3109.5, 128),
    "colossal": (2002, 22327.4, None),
}
BATCH = 65_536


def ids_per_sample(work: Workload) -> np.ndarray:
    """Of each table."""
    return np.array([sum(f.pooling_factor * f.num_poolings for f in table.features) for table in work.tables])


def test_the_list_of_built_ins_is_frozen():
    assert builtins() == tuple(sorted([*CRITEO, *(f"nvidia-{size}" for size in NVIDIA)]))


@pytest.mark.parametrize("name", builtins())
def test_a_built_in_loads_and_names_its_source(name: str):
    work = load_workload(name)
    assert work.name == name
    assert len(work.source) > 20


@pytest.mark.parametrize("name", CRITEO)
def test_criteo_has_26_tables(name: str):
    assert len(load_workload(name).tables) == 26


def test_dlrm_v2_is_the_one_of_mlperf():
    work = load_workload("dlrm-v2")
    assert work.batch_size == 8192
    assert work.optimizer == "rowwise_adagrad"
    assert {table.embedding_dim for table in work.tables} == {128}
    assert sum(table.num_embeddings for table in work.tables) == 204_184_588
    assert sum(table.features[0].pooling_factor for table in work.tables) == 214
    assert work.weight_bytes / 2**30 == pytest.approx(97.36, abs=0.005)


@pytest.mark.parametrize("size", NVIDIA)
def test_nvidia_models_weigh_what_is_published_and_meet_the_published_batch(size: str):
    tables, gib, devices = NVIDIA[size]
    work = load_workload(f"nvidia-{size}")
    assert len(work.tables) == tables
    assert work.weight_bytes / 2**30 == pytest.approx(gib, abs=0.05)
    assert work.optimizer == "adagrad"
    assert work.batch_size == (512 if devices is None else BATCH / devices)


@pytest.mark.parametrize("size", NVIDIA)
def test_nvidia_models_have_the_published_tables(size: str, data: Path):
    blocks = json.loads((data / "public_configs" / "nvidia_synthetic.json").read_text())[size]
    tables = load_workload(f"nvidia-{size}").tables
    assert [(t.num_embeddings, t.embedding_dim, [f.pooling_factor for f in t.features]) for t in tables] == [
        (rows, width, hotness) for count, hotness, rows, width, _ in blocks for _ in range(count)
    ]


@pytest.mark.parametrize("name", builtins())
def test_a_batch_of_65536_reads_014_unique_rows_a_lookup(name: str):
    work = load_workload(name)
    (exponent,) = {table.access.zipf for table in work.tables if table.access}
    assert all(table.access for table in work.tables)
    rows = np.array([float(table.num_embeddings) for table in work.tables])
    lookups = BATCH * ids_per_sample(work)
    unique = zipf_unique_rows(np.full(len(rows), exponent), rows, lookups)
    assert unique.sum() / lookups.sum() == pytest.approx(0.14, rel=0.02)
