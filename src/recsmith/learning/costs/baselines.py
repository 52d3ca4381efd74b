"""Baselines that a learned cost model must beat: an affine fit, and cost models of formulas times one factor.

Legend: N groups, f figures of work.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np

from recsmith._types import Floats, Ints
from recsmith.clusters import Cluster, catalogue, load_cluster
from recsmith.costs import cost_model
from recsmith.costs.analytic import BACKWARD_CACHE, FORWARD_MEMORY
from recsmith.costs.embedding_kernels import EmbeddingKernels
from recsmith.costs.neural.files import Beside
from recsmith.costs.neural.inputs import (
    CORRECTED,
    DATA_TYPES,
    OPTIMIZERS,
    PieceWork,
    corrected_work_of,
    missing_shares,
)
from recsmith.costs.neural.model import is_device
from recsmith.costs.pricing import group_seconds, one_device
from recsmith.learning.costs import Groups, Origin
from recsmith.learning.preparation import non_negative_fit
from recsmith.problems import Problem, Space, build_problem
from recsmith.workloads import AccessProfile, Feature, Table, Workload
from recsmith.workloads.zipf import zipf_hot_share

WHOLE = Space(types=("table_wise",), kernels=("fused",), widths="torchrec")
BLOCKS = Space(types=("row_wise",), kernels=("fused",), widths="torchrec")
ANALYTIC_SECONDS = slice(FORWARD_MEMORY, BACKWARD_CACHE + 1)  # columns of the model's terms
PIECES_AT_ONCE = 1000  # most pieces of a problem that computes figures; more are no faster
LAUNCH_SCALE_S = 1e-6  # scale of the column of launches, in seconds, so that its weight is near those of the others


class Affine:
    """The affine baseline: launch + weights of each optimizer and data type times the figures of work.

    Weights are 0 or more, by least squares of relative errors.
    """

    def __init__(self, groups: Groups) -> None:
        figures = self._figures(groups)
        self._weights = np.stack([
            non_negative_fit(figures / seconds[:, None], np.ones(len(groups))) for seconds in groups.seconds.T
        ])  # fmt: skip

    def predict(self, groups: Groups) -> Floats:
        """Seconds (N, 2), forward and backward."""
        return self._figures(groups) @ self._weights.T

    @staticmethod
    def _figures(groups: Groups) -> Floats:
        """A column of launches, and the summed work in the columns of the group's optimizer and data type (N, f)."""
        summed = groups.summed(groups.work)
        kind = groups.optimizer * len(DATA_TYPES) + groups.data_type
        columns = [np.where(kind[:, None] == i, summed, 0.0) for i in range(len(OPTIMIZERS) * len(DATA_TYPES))]
        return np.hstack([np.full((len(groups), 1), LAUNCH_SCALE_S), *columns])


def formula_seconds(groups: Groups, cluster: Cluster, formula: str = "analytic") -> Floats:
    """Seconds (N, 2) of a cost model of formulas on one device of a cluster; takes about 10 ms per group."""
    model = cost_model(formula)
    return np.stack([group_seconds(model, workload_of(groups, i), cluster) for i in range(len(groups))]).reshape(-1, 2)


def with_corrected_work(groups: Groups, cluster: Cluster) -> Groups:
    """The groups with the figures of a corrected model: seconds of `analytic` on a device, and cache misses."""
    model, owner, bags = cost_model("analytic"), groups.owner, groups.bags
    work: Floats = np.empty((len(owner), len(CORRECTED)))
    missing = missing_shares(
        lambda rows: zipf_hot_share(groups.zipf, groups.rows * groups.blocks[owner], rows * groups.blocks[owner]),
        groups.unique,
    )
    for some, problem in problems_of(groups, cluster):
        modes, widths = np.arange(len(some)), problem.demand.dim[problem.modes.table]
        seconds = model.compile(problem).terms(modes, widths)[:, ANALYTIC_SECONDS]
        piece = PieceWork(
            groups.ids[some], bags[some], groups.unique[some], groups.rows[some], groups.dim[some],
            groups.optimizer[owner[some]], groups.data_type[owner[some]],
        )  # fmt: skip
        kernels = EmbeddingKernels.of(problem)
        work[some] = corrected_work_of(piece, kernels, modes, widths, seconds, missing[some])
    return replace(groups, work=work)


def problems_of(groups: Groups, cluster: Cluster) -> Iterator[tuple[Ints, Problem]]:
    """Problems that hold the pieces of all groups, one mode each and in order, and the indices of their pieces (N,).

    Tables of many groups are one problem, each with its group's batch size: 20 times as fast as a problem for each
    group. Row blocks are pieces of row-wise tables, over as many devices as a table has blocks.
    """
    owner = groups.owner
    parts = groups.blocks[owner]
    for blocks, optimizer in product(np.unique(parts).tolist(), range(len(OPTIMIZERS))):
        own: Ints = np.flatnonzero((parts == blocks) & (groups.optimizer[owner] == optimizer))
        devices = cluster if blocks == 1 else replace(cluster, local_world_size=blocks)
        for pieces in np.array_split(own, -(-len(own) // PIECES_AT_ONCE)) if len(own) else ():
            problem = build_problem(
                _workload(groups, pieces, optimizer, blocks=blocks), devices, WHOLE if blocks == 1 else BLOCKS
            )
            named = [int(table.name) for table in problem.tables]  # problems have an order of their own
            yield np.array(named), problem


def workload_of(groups: Groups, index: int) -> Workload:
    """The tables, batch and optimizer of a group of whole tables."""
    pieces = np.arange(int(groups.start[index]), int(groups.start[index + 1]))
    return _workload(groups, pieces, int(groups.optimizer[index]), batch_size=int(groups.batch[index]))


def _workload(groups: Groups, pieces: Ints, optimizer: int, batch_size: int = 1, blocks: int = 1) -> Workload:
    """Some pieces as tables of a job, each with as many poolings as its group has samples.

    So tables of groups with many batch sizes become one problem, of a job with one sample, which works with every
    optimizer; with some optimizers, features with a `batch_size` of their own are refused. blocks: each piece is one of
    this many row blocks of its table, whose samples this many devices share.
    """
    owner = np.searchsorted(groups.start, pieces, side="right") - 1
    tables = tuple(
        Table(
            name=str(p), num_embeddings=int(groups.rows[p]) * blocks, embedding_dim=int(groups.dim[p]),
            data_type=DATA_TYPES[int(groups.data_type[group])], access=AccessProfile(zipf=float(groups.zipf[p])),
            features=(
                Feature(
                    name=str(p), pooling_factor=float(groups.ids[p] / batch) * blocks,
                    num_poolings=batch / batch_size / blocks,
                ),
            ),
        )
        for p, group, batch in zip(pieces.tolist(), owner.tolist(), groups.batch[owner].tolist(), strict=True)
    )  # fmt: skip
    return Workload(batch_size=batch_size, optimizer=OPTIMIZERS[optimizer], tables=tables)


def cluster_of(origin: Origin) -> Cluster | None:
    """One device of the catalogue that is of the measured kind, with memory for any case; None if there is none."""
    name = next(
        (name for name in catalogue() if is_device(origin.hardware, origin.device, load_cluster(name).device)), None
    )
    if name is None:
        return None
    return one_device(load_cluster(name))


def beside(measured: Floats, predicted: Floats) -> Beside:
    """How a cost model of formulas compares: seconds (N, 2) predicted and measured, of groups that it can price."""
    priced = predicted.sum(axis=1) > 0
    ratios = np.log(measured[priced].sum(axis=1) / predicted[priced].sum(axis=1))
    middle = np.median(ratios)
    return Beside(
        samples=len(ratios), factor=float(np.exp(middle)), spread=float(np.exp(np.abs(ratios - middle).mean()) - 1)
    )
