"""Which case a place of a run measures: every case once, and every tenth place one from half as far into the run."""

import hashlib
import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recsmith.errors import UsageError
from recsmith.hardware import SCALES
from recsmith.measuring.cases import DATA_TYPES, SLOWER, Cases, case_of, table_pool
from recsmith.workloads import workload_to_raw
from recsmith.workloads.optimizers import CPU_OPTIMIZERS
from recsmith.workloads.sample import shared_pool

CPU = Cases(seed=0, scale=SCALES["cpu"])


def work(case) -> float:
    """By the module's formula."""
    rows = (
        (table.features[0].pooling_factor + 1) * (1 + table.embedding_dim / 64) / 2 * case.workload.batch_size
        for table in case.tables
    )
    return sum(rows) * SLOWER.get(case.workload.optimizer, 1) * SLOWER.get(case.data_type, 1)


def test_the_pool_is_the_shared_one():
    tables = shared_pool().tables
    assert table_pool().T.tolist() == [
        [t.num_embeddings, t.embedding_dim, t.features[0].pooling_factor, t.access.zipf if t.access else None]
        for t in tables
    ]


def test_the_cases_are_frozen():
    """Samples on other machines are of the same cases: a change here makes another set of measurements."""
    raw = [(case.seed, case.number, workload_to_raw(case.workload)) for case in map(CPU.case, range(100))]
    cases = json.dumps(raw)
    assert (
        hashlib.sha256(cases.encode()).hexdigest() == "e6063efd98609a768dbf77d9950eb8a361023fe9de8cac64223266e891ff909f"
    )


@settings(max_examples=200)
@given(st.sampled_from(list(SCALES)), st.integers(0, 2**63 - 1), st.integers(0, 2**40))
def test_a_case_is_within_its_scale_and_what_was_promised(scale: str, seed: int, number: int):
    case = Cases(seed=seed, scale=SCALES[scale]).case(number)
    case.check(SCALES[scale])
    assert (case.seed, case.number) == (seed, number)
    assert 1 <= len(case.tables) <= (60 if scale == "jobs" else 24 if "caches" in scale else 100)
    large, jobs = scale in ("pools", "caches"), scale in ("jobs", "job-caches")
    least, most = (2048, 2**18) if large else (2048, 65_536) if jobs else (1, 2**18)
    assert least <= case.workload.batch_size <= most
    assert case.workload.optimizer in CPU_OPTIMIZERS
    assert case.data_type in DATA_TYPES
    for table in case.tables:
        assert 1 <= table.num_embeddings <= (100_000_000 if large else 2_000_000)
        assert table.embedding_dim in range(4, 2049 if large else 513 if jobs else 1025, 4)
        assert 0 <= table.features[0].pooling_factor <= (1000 if large else 500)
        assert table.access is not None
        assert 0 <= (table.access.zipf or 0) <= 1.6


def test_work_is_even_in_its_logarithm_and_every_fifth_case_is_of_high_work():
    cases = [CPU.case(number) for number in range(1000)]
    works = np.array([work(case) for case in cases])
    least, most = CPU.scale.least_work, CPU.scale.most_work
    assert works.max() <= most * 1.001
    usual = np.delete(works, np.s_[4::5])
    assert np.mean(usual < np.sqrt(least * most)) == pytest.approx(0.5, abs=0.06)
    assert np.median(works[4::5]) > most / 4
    assert np.mean(works[4::5] > most / 5) > 0.85


def test_cases_reach_all_corners():
    cases = [CPU.case(number) for number in range(1000)]
    tables = [table for case in cases for table in case.tables]
    for figures in (
        [len(case.tables) / 100 for case in cases],
        [table.num_embeddings / 2_000_000 for table in tables],
        [table.embedding_dim / 1024 for table in tables],
        [table.features[0].pooling_factor / 500 for table in tables],
        [(table.access.zipf or 0) / 1.6 for table in tables if table.access],
    ):
        assert min(figures) < 0.02
        assert max(figures) > 0.9
    trained = {(case.workload.optimizer, case.data_type) for case in cases}
    assert len(trained) == len(CPU_OPTIMIZERS) * len(DATA_TYPES)


def test_pools_have_heavy_cold_few_and_narrow_tables_in_turn():
    cases, kinds = Cases(seed=0, scale=SCALES["pools"]), SCALES["pools"].draws
    drawn = {kind: [cases.case(n) for n in range(280) if kinds[n % len(kinds)] == kind] for kind in set(kinds)}
    assert max(len(case.tables) for case in drawn["few"]) <= 4
    assert max(t.embedding_dim for case in drawn["narrow"] for t in case.tables) == 32
    cold = [t for case in drawn["cold"] for t in case.tables]
    assert min(t.features[0].pooling_factor for t in cold) >= 20
    heavy_and_cold = [t for t in cold if t.features[0].pooling_factor > 500 and t.num_embeddings > 2_000_000]
    assert len(heavy_and_cold) > 10


@pytest.mark.parametrize("scale", ["caches", "cpu-caches", "job-caches"])
def test_caches_have_tables_of_a_caches_size_that_are_read_much_and_evenly(scale: str):
    cases = Cases(seed=0, scale=SCALES[scale])
    drawn = [cases.case(number) for number in range(100)]
    tables = [table for case in drawn for table in case.tables]
    hot = [
        table for table in tables
        if 2**19 - 2048 <= table.num_embeddings * table.embedding_dim <= 2**26
        and table.features[0].pooling_factor >= 20 and ((table.access and table.access.zipf) or 0) <= 0.8
    ]  # fmt: skip
    assert len(tables) / 2 < len(hot) < len(tables)
    assert np.mean([len(case.tables) >= 2 for case in drawn]) > 0.6


def test_only_what_was_asked_for_is_drawn():
    cases = Cases(seed=0, scale=SCALES["cpu"], optimizers=("adagrad",), data_types=("fp16",))
    assert {(c.workload.optimizer, c.data_type) for c in map(cases.case, range(20))} == {("adagrad", "fp16")}


@pytest.mark.parametrize("seed", [-1, 2**63])
def test_a_seed_out_of_range_is_refused(seed: int):
    with pytest.raises(UsageError, match="at least 0 and below"):
        Cases(seed=seed, scale=SCALES["cpu"])


@given(st.integers(0, 10**7))
def test_a_case_is_sampled_again_after_it_was_new(sample: int):
    number, before = case_of(sample)
    assert before == (sample % 10 == 9)
    first = number // 9 * 10 + number % 9
    assert case_of(first) == (number, 0)
    assert first <= sample
    assert before or first == sample


def test_every_tenth_sample_is_another_case_seen_before():
    seen = Counter(number for number, _ in map(case_of, range(10_000)))
    assert sorted(seen) == list(range(9_000))
    assert set(seen.values()) == {1, 2}
