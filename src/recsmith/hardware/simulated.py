"""Hardware `simulated:<gpu>`: the analytic cost model with three effects that are not additive over tables.

It needs no PyTorch, and is no more accurate than its model: it replaces a GPU in tests of cost models and planners.

- **launch**: 2 kernels forward and 20 backward, for any work (costs/analytic.py has the sources).
- **wave quantisation**: a warp serves a bag; warps that the device cannot hold at once wait for the next wave, and a
  wave that is not full takes as long as a full one: time x ceil(waves) / waves, for the kernels that work bag by bag
  (forward). A device holds SMs x 45 warps of FBGEMM's kernel: 64 x 0.71 occupancy, Lin et al., HiPC 2022
  (owensgroup/ml_perf_model). It is an assumption that a part of a wave takes the time of a whole one.
- **co-resident cache**: all tables of the group share the second-level cache in proportion to the bytes that they read
  again, so hit rates fall as the group grows. This is assumed; Lin et al. divide the cache among the tables in flight
  at once, and the analytic model gives each table all of it.

Groups of one step add up: each has the cache to itself.

Legend: T tables; M modes, one a table; G cases.
"""

import math
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from recsmith._types import Floats, Ints
from recsmith._version import __version__
from recsmith.clusters import Cluster, catalogue, load_cluster
from recsmith.costs.analytic import BACKWARD_KERNELS, FORWARD_KERNELS, LAUNCH_S
from recsmith.costs.embedding_kernels import L2_SHARE, EmbeddingKernels, Work
from recsmith.costs.fitted_kernels import MULTIPROCESSORS
from recsmith.errors import UsageError
from recsmith.hardware.case import NOISE, REPETITIONS, Case, CaseScale, KeyedRandom, Measurement
from recsmith.problems import Problem, Space, build_problem
from recsmith.workloads import Table
from recsmith.workloads.zipf import zipf_reuse_bins

WARPS_PER_SM = 45  # warps of FBGEMM's kernels on an SM at once: 64 x 0.71 occupancy (Lin et al., HiPC 2022)
CACHED_CASES = 32  # cases whose seconds are stored for their next visits; more than the 20 that take turns in a run


class _Noiseless(NamedTuple):
    """Seconds of a case before noise, and its reuse bins (T, 17)."""

    forward_s: float
    backward_s: float
    reuse_bins: Ints


class SharedCacheKernels(EmbeddingKernels):
    """Embedding kernels whose tables share the second-level cache, by the bytes that each table reads again."""

    def _missed(self, modes: Ints, row: Floats) -> Floats:
        """Rows (M,) that are read from memory, not from the cache; row: bytes of a row (M,)."""
        ids, unique, table = self.problem.modes.ids[modes], self.unique[modes], self.problem.modes.table[modes]
        again = np.where(ids > unique, unique * row, 0.0)
        share = again / max(float(again.sum()), 1.0)
        cached = np.minimum(L2_SHARE * (self.problem.cluster.device.l2_bytes or 0) * share / row, unique)
        hot, all_hot = (self.reuse.hot_share(table, np.asarray(rows)) for rows in (cached, unique))
        return unique + np.maximum(ids - unique, 0) * (1 - np.minimum(hot / np.maximum(all_hot, 1e-300), 1))


class Simulated:
    """A GPU of the catalogue, or of a cluster file. noise: relative deviation of a log-normal factor, seeded."""

    def __init__(self, source: str, scale: CaseScale, noise: float = 0.0) -> None:
        self._cluster = _one_gpu(source)
        check_noise(noise)
        self._noise = noise
        self.scale = scale
        self.name = f"simulated:{source}" + (f"?noise={noise:g}" if noise else "")
        self.device = f"{self._cluster.device.name}, simulated"
        self.versions = f"recsmith {__version__}"
        self._without_noise = lru_cache(CACHED_CASES)(self._price)

    def refuse(self, optimizers: tuple[str, ...], data_types: tuple[str, ...]) -> None:
        """Accept every optimizer and data type: the formulas hold for all."""

    def measure(self, case: Case, visit: int = 0) -> Measurement:
        """Seconds by the formulas; unique rows and reuse bins are expected values."""
        return self.measure_groups((case,), visit)

    def measure_groups(self, cases: tuple[Case, ...], visit: int = 0, least: int = REPETITIONS) -> Measurement:
        """The sum of the seconds of each case; repetitions would change nothing, so `least` is not used."""
        self.scale.check(cases)
        answers = [self._without_noise(case) for case in cases]
        noise = np.array([self._factor(case, visit) for case in cases])
        forward, backward = (noise * np.array([(each.forward_s, each.backward_s) for each in answers]).T).sum(axis=1)
        return _answer(cases, float(forward), float(backward), np.concatenate([each.reuse_bins for each in answers]))

    def _factor(self, case: Case, visit: int) -> float:
        """The noise factor of a visit."""
        return math.exp(self._noise * float(KeyedRandom(case.seed, case.number, NOISE + visit).normal(1)[0]))

    def _price(self, case: Case) -> _Noiseless:
        """The part that all visits of a case have in common: its seconds before noise."""
        problem = problem_of(case, self._cluster)
        kernels = SharedCacheKernels.of(problem)
        modes: Ints = np.arange(len(problem.tables))
        widths = problem.demand.dim[problem.modes.table[modes]]
        launch = self._cluster.device.launch_s or LAUNCH_S
        waves = case.workload.batch_size * len(case.tables) / (self._sm_count * WARPS_PER_SM)
        forward, backward = map(_slower_level, kernels.work(modes, widths))
        forward = FORWARD_KERNELS * launch + forward * math.ceil(waves) / waves
        backward = BACKWARD_KERNELS * launch + backward
        return _Noiseless(forward, backward, reuse_bins(case))

    @property
    def _sm_count(self) -> int:
        return MULTIPROCESSORS[self._cluster.device.name]


def check_noise(noise: float) -> None:
    """Raise UsageError for a number that is no relative deviation."""
    if not 0 <= noise < 1:
        raise UsageError(f"noise is {noise}; it is a relative deviation, at least 0 and below 1")


def _one_gpu(source: str) -> Cluster:
    cluster = load_cluster(source)
    if cluster.device.name not in MULTIPROCESSORS:
        raise UsageError(
            f"simulated:{source} is device '{cluster.device.name}', and the simulation knows the figures of "
            f"{', '.join(name for name in catalogue() if name in MULTIPROCESSORS)}; take one of these"
        )
    hbm = cluster.device.hbm_bytes
    return replace(cluster, local_world_size=1, hosts=1, hbm_bytes=hbm, reserve_bytes=0)


def problem_of(case: Case, cluster: Cluster) -> Problem:
    """The case as a problem: whole tables on one device, or row-wise tables over as many devices as it has blocks."""
    if case.blocks == 1:
        return build_problem(case.workload, cluster, Space(types=("table_wise",), kernels=("fused",)))
    work = replace(
        case.workload,
        batch_size=case.workload.batch_size // case.blocks,
        tables=tuple(_whole_table(table, case.blocks) for table in case.tables),
    )
    devices = replace(cluster, local_world_size=case.blocks)
    return build_problem(work, devices, Space(types=("row_wise",), kernels=("fused",)))


def _whole_table(block: Table, blocks: int) -> Table:
    """The table of which a block is one of this many."""
    (feature,) = block.features
    feature = replace(feature, pooling_factor=feature.pooling_factor * blocks)
    return replace(block, num_embeddings=block.num_embeddings * blocks, features=(feature,))


def _slower_level(work: Work) -> float:
    """Seconds of a kernel over all of its tables: those of the memory or of the cache, whichever is slower."""
    return max(float(work.memory.sum()), float(work.cache.sum()))


def reuse_bins(case: Case) -> Ints:
    """Expected counts of rows read 1, 2, 3-4 ... times (T, 17); of a block of rows, its share of the whole table's."""
    lookups = np.array(case.lookups, dtype=np.float64) * case.blocks
    zipf = np.array([(table.access and table.access.zipf) or 0.0 for table in case.tables])
    rows = np.array([table.num_embeddings for table in case.tables], dtype=np.float64) * case.blocks
    return np.rint(zipf_reuse_bins(zipf, rows, lookups) / case.blocks).astype(np.int64)


def _answer(cases: tuple[Case, ...], forward_s: float, backward_s: float, bins: Ints) -> Measurement:
    return Measurement(
        status="ok", forward_s=forward_s, backward_s=backward_s, spread=0.0, probe_s=0.0, probe_moved=0.0,
        forward_median_s=forward_s, backward_median_s=backward_s, forward_wall_s=forward_s, backward_wall_s=backward_s,
        repetitions=1, lookups=tuple(count for case in cases for count in case.lookups),
        unique_rows=tuple(bins.sum(axis=1).tolist()), reuse_bins=tuple(bins.ravel().tolist()),
    )  # fmt: skip
