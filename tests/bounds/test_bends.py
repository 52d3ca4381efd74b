"""Planes that open below zero: what a rank takes of them, and bounds against every plan."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.bounds import check_random_plans
from support.cases import OFF_DISK, Case, brute_force, seeded, small_case
from support.learned import card, tensors

from recsmith.bounds.bends import bent_planes, most_taken
from recsmith.bounds.groups import groups_dominated_by_type
from recsmith.bounds.phase_branching import PhaseBranching
from recsmith.costs import COST_MODELS, cost_model
from recsmith.costs.neural.files import save_model

WORK = 20_000_000
pytestmark = pytest.mark.filterwarnings("ignore:cost model .* was trained on simulated")


def _bending(case: Case, seed: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    """A case under a model whose hinges bend at about what small tables cost."""
    path, draw = folder / f"{seed}.safetensors", np.random.default_rng(seed)
    made = tensors(seed=seed, launch=draw.choice([0.0, 1e-7, 1e-6], 2), offsets=10 ** draw.uniform(-7, -4.5, (2, 2)))
    save_model(str(path), made, card(hardware="simulated:test", device="test, simulated"))
    monkeypatch.setitem(COST_MODELS.places, "neural", cost_model(f"neural:{path}"))
    tables = tuple(replace(each, data_type="fp32") for each in case.workload.tables)
    work = replace(case.workload, tables=tables, optimizer="sgd")
    kernels = tuple(name for name in case.space.kernels if name in OFF_DISK)
    return replace(case, workload=work, space=replace(case.space, kernels=kernels), cost_model="neural")


@pytest.mark.parametrize("seeds", [range(16), pytest.param(range(16, 400), marks=pytest.mark.soak)])
def test_no_plan_costs_less_than_branching_over_bent_planes_says(
    seeds: range, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = bent = 0
    for seed in seeds:
        case = _bending(small_case(seeded(seed), models=("analytic",)), seed, tmp_path, monkeypatch)
        least, evaluator = brute_force(case).least_s, case.evaluator
        if least is None:
            continue
        dominated = groups_dominated_by_type(evaluator)
        below = least * (1 + 1e-9 + seed % 3)  # a plan that takes so many seconds itself does not matter
        search = PhaseBranching(evaluator, dominated=dominated, below=below, byte_price=0.0)
        for work in (0, WORK):
            search.solve(work)
            assert search.bound <= least * (1 + 1e-9)
        asked += 1
        bent += bent_planes(evaluator).bent
    assert asked > len(seeds) / 3
    assert bent > asked / 3


@pytest.mark.parametrize("seeds", [range(6), pytest.param(range(6, 100), marks=pytest.mark.soak)])
def test_no_random_plan_of_many_tables_costs_less_than_the_bound(
    seeds: range, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_random_plans(seeds, lambda drawn, seed: _bending(drawn, seed, tmp_path, monkeypatch))


@given(st.integers(0, 10**6))
def test_no_rank_takes_more_than_is_said(seed: int) -> None:
    """Whatever groups a rank holds of those that it may: a launch less what they open with."""
    draw = np.random.default_rng(seed)
    launch, opening = float(draw.uniform(0, 2)), draw.uniform(draw.choice([-2.0, 0.0]), 2, (1, 4))
    groups = draw.random((1, 4)) < 0.7
    (taken,) = most_taken(launch, opening, groups)
    for held in range(1, 16):
        holds = np.array([(held >> i) & 1 for i in range(4)], dtype=bool)
        if (holds <= groups[0]).all():
            assert launch - opening[0, holds].sum() <= taken + 1e-12
    assert taken >= 0
