"""What learned models are compared with."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.learned import TERMS, groups, write_model

from recsmith.clusters import load_cluster
from recsmith.costs import cost_model
from recsmith.costs.neural.evaluator import NeuralEvaluator
from recsmith.costs.neural.inputs import PieceWork, inputs_of, work_of
from recsmith.costs.pricing import one_device
from recsmith.learning.costs import GROUP_FIELDS, Groups, Origin
from recsmith.learning.costs.baselines import (
    BLOCKS,
    WHOLE,
    Affine,
    beside,
    cluster_of,
    formula_seconds,
    with_corrected_work,
    workload_of,
)
from recsmith.problems import build_problem
from recsmith.workloads import AccessProfile, Feature, Table, Workload


def test_an_affine_model_learns_what_is_affine() -> None:
    found = groups(200)
    affine = Affine(found).predict(found)
    assert affine.shape == (200, 2)
    assert np.median(np.abs(affine.sum(axis=1) / found.total - 1)) < 0.2


def test_seconds_of_formulas_grow_with_the_work() -> None:
    found = groups(5)
    seconds = formula_seconds(found, load_cluster("h100:1"))
    assert seconds.shape == (5, 2)
    assert (seconds > 22 * 3e-6 / 11).all()
    third = beside(found.seconds, found.seconds / 3)
    assert (third.samples, third.factor) == (len(found), pytest.approx(3))
    assert third.spread == pytest.approx(0, abs=1e-9)
    unpriced = beside(found.seconds, np.where(np.arange(len(found))[:, None] == 0, 0.0, found.seconds / 3))
    assert (unpriced.samples, unpriced.factor) == (len(found) - 1, pytest.approx(3))


def test_each_table_has_its_own_figures_whatever_stands_beside_it() -> None:
    cluster, found = load_cluster("h100:1"), groups(30)
    together = with_corrected_work(found, cluster).work
    alone = replace(
        found, start=np.arange(len(found.owner) + 1),
        **{name: getattr(found, name)[found.owner] for name in GROUP_FIELDS},
    )  # fmt: skip
    assert together == pytest.approx(with_corrected_work(alone, cluster).work, rel=1e-12)


@pytest.mark.filterwarnings("ignore:cost model neural")
def test_a_table_has_the_figures_in_training_that_it_has_when_a_plan_is_priced(tmp_path: Path) -> None:
    found, cluster = groups(1), one_device(load_cluster("h100"))
    problem = build_problem(workload_of(found, 0), cluster, WHOLE)
    name = write_model(tmp_path / "m.safetensors", "corrected", hardware="simulated:h100", device="h100, simulated")
    learned = cost_model(name).compile(problem)
    assert isinstance(learned, NeuralEvaluator)
    modes = np.arange(len(problem.tables))
    priced = learned.terms(modes, problem.demand.dim)[:, 1 : 1 + TERMS]
    order = np.array([int(table.name) for table in problem.tables])
    piece = PieceWork(
        found.ids, found.bags, learned.kernels.unique[np.argsort(order)], found.rows, found.dim,
        found.optimizer[found.owner], found.data_type[found.owner],
    )  # fmt: skip
    same = with_corrected_work(replace(found, unique=piece.unique, work=work_of(piece)), cluster)
    assert priced == pytest.approx(learned.weights.terms(same.work, inputs_of(piece))[order], rel=1e-9)


@pytest.mark.filterwarnings("ignore:cost model neural")
def test_a_row_block_has_the_figures_in_training_that_it_has_when_a_plan_is_priced(tmp_path: Path) -> None:
    """Of two tables, four blocks each: a skewed one whose rows outgrow the cache, and a small one."""
    devices = replace(one_device(load_cluster("h100")), local_world_size=4)
    tables = tuple(
        Table(name=str(i), num_embeddings=rows, embedding_dim=64, access=AccessProfile(zipf=zipf),
              features=(Feature(name=str(i), pooling_factor=pooling),))
        for i, (rows, pooling, zipf) in enumerate([(8_000_000, 40.0, 0.7), (400, 3.0, 1.1)])
    )  # fmt: skip
    problem = build_problem(Workload(batch_size=2048, optimizer="sgd", tables=tables), devices, BLOCKS)
    name = write_model(tmp_path / "m.safetensors", "corrected", hardware="simulated:h100", device="h100, simulated")
    learned = cost_model(name).compile(problem)
    assert isinstance(learned, NeuralEvaluator)
    modes, order = np.arange(2), np.argsort([int(table.name) for table in problem.tables])
    priced = learned.terms(modes, problem.demand.dim)[order, 1 : 1 + TERMS]
    found = problem.modes
    piece = PieceWork(
        found.ids[order], found.bags[order], learned.kernels.unique[order], found.head_rows[order].astype(float),
        np.full(2, 64.0), np.zeros(2, dtype=np.int64), np.zeros(2, dtype=np.int64),
    )  # fmt: skip
    one = np.zeros(1, dtype=np.int64)
    block = Groups(
        start=np.array([0, 2]), work=work_of(piece), inputs=inputs_of(piece), seconds=np.ones((1, 2)), case=one,
        batch=np.array([8192]), optimizer=one, data_type=one, blocks=np.array([4]), rows=piece.rows, dim=piece.width,
        ids=piece.ids, unique=piece.unique, zipf=np.array([0.7, 1.1]),
    )  # fmt: skip
    same, whole = (with_corrected_work(replace(block, blocks=np.array([n])), one_device(load_cluster("h100")))
                   for n in (4, 1))  # fmt: skip
    assert priced == pytest.approx(learned.weights.terms(same.work, inputs_of(piece)), rel=1e-9)
    assert priced != pytest.approx(learned.weights.terms(whole.work, inputs_of(piece)), rel=1e-3)


@pytest.mark.parametrize(
    ("hardware", "device", "name"),
    [
        ("cpu", "AMD", "cpu"),
        ("simulated:h200", "h200, simulated", "h200"),
        ("cuda", "NVIDIA L4, 58 SMs", "l4"),
        ("cuda", "NVIDIA L40, 142 SMs", None),
    ],
)
def test_the_catalogues_cluster_of_an_origin(hardware: str, device: str, name: str | None) -> None:
    found = cluster_of(Origin(hardware=hardware, device=device, versions=""))
    assert (found and found.device.name) == name
    assert found is None or found.world_size == 1
