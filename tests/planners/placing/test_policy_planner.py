"""Planners with trained policies, all kinds and all policies that ship alike."""

from subprocess import run
from sys import executable

import numpy as np
import pytest
from support.cases import table, workload

from recsmith.clusters import load_cluster
from recsmith.costs import cost_model
from recsmith.learning.policies.learn import KINDS, PolicyName
from recsmith.planning import find_planner
from recsmith.problems import Space, build_problem

SHIPPED = [(kind, name) for kind in KINDS for name in KINDS[kind].shipped()]
CLUSTERS = {"cpu": "cpu:4", "simulated-h100": "h100:4"}  # that a policy serves


@pytest.mark.parametrize("planner", KINDS)
def test_the_plan_names_the_word_and_needs_no_torch(planner: str) -> None:
    program = (
        "import sys, warnings; sys.modules['torch'] = None; sys.modules['gymnasium'] = None\n"
        f"import recsmith; print(recsmith.plan('dlrm-v2', 'h100:8', planner='{planner}?samples=2').plan.planner)"
    )
    done = run([executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"{planner}?samples=2"


def test_every_kind_ships_a_policy_for_each_of_these_devices() -> None:
    assert sorted(SHIPPED) == sorted((kind, name) for kind in KINDS for name in CLUSTERS)


@pytest.mark.parametrize(("planner", "name"), SHIPPED)
def test_what_ships_is_small_finite_and_ahead_of_the_classic_greedies(planner: PolicyName, name: str) -> None:
    kind = KINDS[planner]
    network, card = kind.load(kind.find(name))
    assert all(np.isfinite(value).all() for value in network.tensors.values())
    assert kind.find(name).stat().st_size < 200_000
    assert card.reward == {"dreamshard": "estimated", "autoshard": "measured"}[planner]
    assert card.held_out.step_s < card.held_out.greedy_step_s


@pytest.mark.parametrize(("planner", "name"), SHIPPED)
def test_the_device_chooses_the_policy_that_was_trained_for_it(planner: str, name: str) -> None:
    tables = [table(f"t{i}", 1000 * (i % 7 + 1), 32 * (i % 4 + 1), float(i % 11 + 1)) for i in range(20)]
    space = Space(types=("table_wise", "column_wise"), kernels=("fused",))
    problem = build_problem(workload(*tables, batch_size=4096, optimizer="sgd"), load_cluster(CLUSTERS[name]), space)
    evaluator = cost_model().compile(problem)
    chosen, named = (find_planner(word).plan(problem, evaluator) for word in (planner, f"{planner}:{name}"))
    assert chosen.left_out == ()
    assert chosen.total_s == named.total_s
