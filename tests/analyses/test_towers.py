"""Tables in towers: groups of equal loads by what trained tables have in common, and plans that keep them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("ortools")

from support.build import cluster, table, workload

import recsmith
from recsmith.analyses.tower_groups import (
    IMBALANCE,
    assigned,
    distances_of,
    groups_of,
    interactions_of,
    places_of,
)
from recsmith.analyses.towers import TowerRequest, imbalance, plan_towers, table_seconds
from recsmith.errors import CorruptFile, PlanMismatch, UsageError
from recsmith.plans import load_plan, plan_to_raw, save_plan
from recsmith.plans.files import plan_from_raw

TABLES = workload(
    *(table(f"t{i}", 1000 * (1 + i % 4), 16 * (1 + i % 3), pooling_factor=1.0 + i % 5) for i in range(14))
)
LOADS = st.lists(st.floats(0.1, 10.0), min_size=4, max_size=9)


@given(loads=LOADS, count=st.integers(1, 4), seed=st.integers(0, 9))
def test_loads_are_balanced_as_well_as_tables_allow(loads: list[float], count: int, seed: int) -> None:
    weights, costs = np.array(loads), np.random.default_rng(seed).random((len(loads), count))
    found = assigned(costs, weights)
    sums = np.bincount(found, weights, count)
    assert (np.bincount(found, minlength=count) > 0).all()
    assert sums.max() <= (1 + IMBALANCE) * weights.sum() / count + weights.max() + 1e-6  # of longest first, at most
    assert (found == assigned(costs, weights)).all()


def test_equal_tables_follow_their_costs() -> None:
    costs = np.array([[0.0, 1.0], [0.0, 1.0], [1.0, 0.0], [1.0, 0.0]])
    assert assigned(costs, np.ones(4)).tolist() == [0, 0, 1, 1]


def alike() -> np.ndarray:
    """Interactions of eight tables, the even ones alike and the odd ones."""
    kind = np.arange(8) % 2
    found = np.where(kind[:, None] == kind[None], 0.9, 0.1).astype(float)
    np.fill_diagonal(found, 1.0)
    return found


def test_coherent_groups_have_what_is_alike_and_diverse_ones_do_not() -> None:
    names = [f"t{i}" for i in range(8)]
    loads = dict.fromkeys(names, 1.0)
    coherent = groups_of(names, loads, 2, "coherent", 0, (names, alike()))
    assert sorted(map(sorted, coherent)) == [["t0", "t2", "t4", "t6"], ["t1", "t3", "t5", "t7"]]
    diverse = groups_of(names, loads, 2, "diverse", 0, (names, alike()))
    assert [sum(int(name[1:]) % 2 for name in tower) for tower in diverse] == [2, 2]
    drawn = {groups_of(names, loads, 2, "random", seed, None) for seed in range(5)}
    assert len(drawn) > 1


def test_places_have_the_distances() -> None:
    points = np.random.default_rng(0).random((9, 3))
    apart = np.linalg.norm(points[:, None] - points[None], axis=2)
    places = places_of(apart)
    np.testing.assert_allclose(np.linalg.norm(places[:, None] - places[None], axis=2), apart, atol=1e-9)
    near = distances_of(alike(), "coherent")
    assert near[0, 2] < near[0, 1]
    assert distances_of(alike(), "diverse")[0, 2] > distances_of(alike(), "diverse")[0, 1]


def write(folder: Path, **tables: Any) -> Path:
    from safetensors.numpy import save_file

    folder.mkdir()
    save_file({f"model.ebc.embedding_bags.{name}.weight": each for name, each in tables.items()},
              str(folder / "weights.safetensors"))  # fmt: skip
    return folder


def test_interactions_are_those_of_directions(tmp_path: Path) -> None:
    first, second = np.zeros((2, 50, 4), np.float32)
    first[:, 0], second[:, 1] = 1.0, np.arange(50)
    names, found = interactions_of(write(tmp_path / "model", a=first, b=second, c=3 * first))
    order = [names.index(name) for name in "abc"]
    np.testing.assert_allclose(found[np.ix_(order, order)], [[1, 0, 1], [0, 1, 0], [1, 0, 1]], atol=1e-6)
    with pytest.raises(UsageError, match="tables of several widths"):
        interactions_of(write(tmp_path / "wide", a=first, b=np.ones((3, 8), np.float32)))
    with pytest.raises(UsageError, match="there is no such file"):
        interactions_of(tmp_path)
    damaged = write(tmp_path / "damaged", a=first)
    (damaged / "weights.safetensors").write_bytes(b"no weights")
    with pytest.raises(CorruptFile, match="cannot be read"):
        interactions_of(damaged)


@pytest.fixture(scope="module")
def planned() -> Any:
    return plan_towers(TowerRequest(2), workload=TABLES, cluster=cluster(hosts=2)).plan


def test_a_plan_has_each_tower_on_its_host_and_hosts_work_equally(planned: Any) -> None:
    at = {placement.table: {rank // 2 for rank in placement.ranks} for placement in planned.placements}
    assert sorted(name for tower in planned.towers for name in tower) == sorted(at)
    assert all(at[name] == {host} for host, tower in enumerate(planned.towers) for name in tower)
    assert imbalance(planned) < 0.1
    seconds = table_seconds(planned)
    assert min(seconds.values()) > 0


def test_the_plan_file_carries_towers(planned: Any, tmp_path: Path) -> None:
    save_plan(planned, tmp_path / "plan.json")
    assert load_plan(tmp_path / "plan.json").towers == planned.towers
    raw = plan_to_raw(replace(planned, towers=planned.towers[::-1]))
    with pytest.raises(PlanMismatch, match=r"tower 0 is the tables of host 0, and '.*' is placed .*; plan again"):
        plan_from_raw(raw, "file")
    assert "towers" not in plan_to_raw(replace(planned, towers=()))


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"request": TowerRequest(3)}, "--towers asks for 3 towers, and the cluster has 2 hosts"),
        ({"request": TowerRequest(2, "diverse")}, "diverse towers follow from trained tables; give --trained"),
        ({"workload": workload(table("a", 100, 16))}, "1 tables for 2 towers"),
        (
            {"workload": workload(replace(table("a", 100, 16), pooling="none"), table("b", 9, 16))},
            "'a' has pooling none",
        ),
    ],
)
def test_what_has_no_towers_is_refused(asked: dict[str, Any], said: str) -> None:
    words = {"request": TowerRequest(2), "workload": TABLES, "cluster": cluster(hosts=2), **asked}
    with pytest.raises(UsageError, match=said):
        plan_towers(words.pop("request"), **words)


def test_shared_features_are_refused() -> None:
    one, other = table("a", 100, 16), table("b", 100, 16)
    with pytest.raises(UsageError, match="looked up in 'a' and 'b', which may be of two towers"):
        plan_towers(
            TowerRequest(2), workload=workload(one, replace(other, features=one.features)), cluster=cluster(hosts=2)
        )


def test_a_trained_model_must_have_the_tables(tmp_path: Path) -> None:
    model = write(tmp_path / "model", t0=np.ones((9, 4), np.float32))
    request = TowerRequest(2, "coherent", str(model))
    with pytest.raises(UsageError, match="trained model has no table 't1'"):
        plan_towers(request, workload=TABLES, cluster=cluster(hosts=2))
    assert recsmith.__version__


def test_a_name_with_a_star_is_a_name_and_no_pattern() -> None:
    tables = workload(table("a*", 1000, 16), table("ab", 1000, 16))
    found = plan_towers(TowerRequest(2), workload=tables, cluster=cluster(2), planner="cost_greedy").plan
    assert sorted(found.towers) == [("a*",), ("ab",)]
    assert [placement.ranks[0] // 2 for placement in found.placements] == [
        number
        for placement in found.placements
        for number, tower in enumerate(found.towers)
        if placement.table in tower
    ]
