"""Planner autoshard: its policy, its files, and how long it takes; words and drafts are those of planner dreamshard.

AutoShard's network: an LSTM like PyTorch's, that reads items in order.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file
from support.cases import cluster, table, workload

from recsmith.costs import cost_model, step_seconds
from recsmith.errors import CorruptFile, UsageError
from recsmith.learning.policies.tasks import SizeRow, draw_placement_tasks
from recsmith.planners.autoshard import LAYERS, READ, STATE, AutoShard, AutoShardNetwork
from recsmith.planners.dreamshard import DreamShard
from recsmith.planning import find_planner
from recsmith.problems import Problem, Space, build_problem, fits
from recsmith.testing.problems import sample_problems

SHIPPED = AutoShard.kind.find("simulated-h100")
SPACE = Space(types=("table_wise", "column_wise"), kernels=("fused",))


def problem_of(row: SizeRow) -> Problem:
    task = draw_placement_tasks(row, 1, 7, "h100", 65_536).tasks[0]
    return build_problem(task.workload, task.cluster, SPACE)


def test_its_words_are_its_own() -> None:
    found = find_planner("autoshard:mine.safetensors?samples=16&refine")
    assert isinstance(found, AutoShard)
    assert (found.policy, found.samples, found.refine) == ("mine.safetensors", 16, True)
    assert find_planner("autoshard") == AutoShard()
    with pytest.raises(UsageError, match=r"write autoshard, autoshard:<name or file>, autoshard\?samples=16"):
        find_planner("autoshard?sample=3")


def test_more_work_is_never_worse_and_chance_is_far_behind() -> None:
    problem = problem_of(SizeRow(devices=4, tables=50))
    evaluator = cost_model().compile(problem)
    words = ("autoshard?samples=8&refine", "autoshard?samples=8", "autoshard", "random")
    found = [find_planner(word).plan(problem, evaluator) for word in words]
    steps = [each.total_s for each in found]
    assert steps == sorted(steps)
    assert steps[2] < 0.9 * steps[3]
    for each in found[:3]:
        assert fits(problem, each.footprint)
        assert each.total_s == step_seconds(evaluator, each.footprint)


def test_hundreds_of_tables_get_a_plan_whose_step_is_a_number() -> None:
    problem = problem_of(SizeRow(devices=8, tables=400))
    solution = AutoShard().plan(problem, cost_model().compile(problem))
    assert np.isfinite(solution.total_s)
    assert solution.total_s > 0


def test_a_device_without_a_policy_takes_the_usual_one_and_says_so() -> None:
    tables = [table(f"t{i}", 1000, 64, 3.0) for i in range(5)]
    problem = build_problem(workload(*tables, batch_size=4096, optimizer="sgd"), cluster(4), SPACE)
    evaluator = cost_model().compile(problem)
    note = "autoshard: no policy was trained for 'test'; that of simulated-h100 placed the tables"
    assert AutoShard().plan(problem, evaluator).left_out == (note,)
    h100 = sample_problems()[0]
    assert AutoShard().plan(h100, cost_model().compile(h100)).left_out == ()
    with pytest.raises(UsageError, match=r"trained on simulated:h100 .* 'test'; write autoshard .* learn autoshard"):
        find_planner("autoshard:simulated-h100").plan(problem, evaluator)


def test_policies_of_another_planner_schema_or_shape_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CorruptFile, match="expected `recsmith/autoshard-card/1`"):
        AutoShard.kind.load(DreamShard.kind.find("simulated-h100"))
    with pytest.raises(CorruptFile, match="expected `recsmith/dreamshard-card/1`"):
        DreamShard.kind.load(SHIPPED)
    tensors, card = load_file(SHIPPED), json.loads(SHIPPED.with_suffix(".json").read_text())
    for change, trouble in (
        ({"kept1": tensors["kept1"][:5]}, "tensor 'kept1' has shape"),
        ({"value0": tensors["score0"]}, "tensor 'value0' is unknown"),
        ({"gate0_bias": tensors["gate0_bias"] + np.float32(1e6)}, "above 100, which no training reaches"),
    ):
        save_file({**tensors, **change}, tmp_path / "p.safetensors", metadata={"card": json.dumps(card)})
        with pytest.raises(CorruptFile, match=trouble):
            AutoShard.kind.load(tmp_path / "p.safetensors")
    shutil.copy(SHIPPED, tmp_path / "cut.safetensors")
    (tmp_path / "cut.safetensors").write_bytes(SHIPPED.read_bytes()[:5000])
    problem = problem_of(SizeRow(devices=2, tables=8))
    with pytest.raises(CorruptFile, match="no whole safetensors file"):
        find_planner(f"autoshard:{tmp_path}/cut.safetensors").plan(problem, cost_model().compile(problem))


def drawn(seed: int, scale: float = 0.3) -> AutoShardNetwork:
    random = np.random.default_rng(seed)
    return AutoShardNetwork({name: scale * random.normal(size=shape) for name, shape in AutoShard.kind.shapes.items()})


def test_states_are_those_of_pytorchs_lstm() -> None:
    torch = pytest.importorskip("torch")
    network, read = drawn(0), np.random.default_rng(1).normal(size=(9, READ))
    lstm = torch.nn.LSTM(READ, STATE, LAYERS, dtype=torch.float64)
    ours = {"weight_ih": "read{}", "weight_hh": "kept{}", "bias_ih": "gate{}_bias"}
    with torch.no_grad():
        for name, parameter in lstm.named_parameters():
            which, _, layer = name.rpartition("_l")
            parameter.copy_(torch.as_tensor(network.tensors[ours[which].format(layer)]) if which in ours else 0.0)
        wanted = lstm(torch.as_tensor(read))[0].numpy()
    np.testing.assert_allclose(network.states(read), wanted, rtol=1e-9, atol=1e-12)


@given(seed=st.integers(0, 2**16), count=st.integers(1, 12), data=st.data())
def test_a_state_knows_the_items_before_and_none_behind(seed: int, count: int, data: st.DataObject) -> None:
    network, read = drawn(seed), np.random.default_rng(seed).normal(size=(count, READ))
    changed, i = read.copy(), data.draw(st.integers(0, count - 1))
    changed[i] += 1.0
    differs = (network.states(read) != network.states(changed)).any(axis=1)
    assert not differs[:i].any()
    assert differs[i:].all()


def test_scores_meet_the_state_and_prefer_devices_that_are_done_sooner() -> None:
    network, shipped = drawn(3), AutoShard.kind.load(AutoShard.kind.find("simulated-h100"))[0]
    assert isinstance(shipped, AutoShardNetwork)
    seen, states = np.random.default_rng(4).random((2, 5, 39)), np.eye(2, STATE)
    assert (network.score(states[0], seen) != network.score(states[1], seen)).all()
    seen[..., 32] = np.linspace(0.5, 1.5, 5)
    for state in states:
        assert (np.diff(shipped.score(0 * state, seen * np.eye(39)[32]), axis=-1) < 0).all()
