"""Training of DreamShard: the same formulas twice, checkpoints, and what it learns."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.policy_runs import check_that_a_killed_run_goes_on

from recsmith.errors import MissingExtra, UsageError
from recsmith.learning.policies import PolicySettings
from recsmith.learning.policies.learn import learn_policy
from recsmith.learning.policies.measured import PlacementMeter, training_tasks
from recsmith.learning.policies.tasks import TRAINING, SizeRow, draw_placement_tasks
from recsmith.planners.placing import TRAINED
from recsmith.planners.placing.policy_network import REPRESENTED, PolicyView

torch = pytest.importorskip("torch")

SMALL = ["--row", "2x8", "--tasks", "3", "--iterations", "2", "--placements", "4"]
SETTINGS = PolicySettings(hardware="simulated:h100", row="2x8", tasks=3)
WORDS: dict[str, Any] = {"iterations": 2, "placements": 4}


@pytest.fixture(scope="module")
def training() -> Any:
    from recsmith.learning.policies.dreamshard import DreamShardRecipe, DreamShardTraining

    tasks = draw_placement_tasks(SizeRow(devices=3, tables=12), 3, 0, "h100", 65_536, TRAINING).tasks
    recipe = DreamShardRecipe(iterations=2, placements=6, cost_updates=150, policy_updates=3, episodes=4, batch=6)
    made = DreamShardTraining(recipe, training_tasks(tasks, TRAINED[2:3]), PlacementMeter("simulated:h100", tasks))
    made.run(lambda _: None)
    return made


def test_numpy_and_torch_predict_the_same(training: Any) -> None:
    network, sample = training.networks.frozen(), training.samples[0]
    with torch.no_grad():
        sums, costs, step, _, _ = training._batch([sample])
    terms = network.terms(training.tasks[sample.task].items)
    own = np.zeros(sums.shape[1:])
    np.add.at(own, sample.target, terms)
    np.testing.assert_allclose(sums[0].numpy(), own, rtol=1e-4)
    np.testing.assert_allclose(costs[0].numpy(), network.costs(own), rtol=1e-3, atol=1e-9)
    assert float(step[0]) == pytest.approx(float(network.step(own)), rel=1e-3)


def test_numpy_and_torch_score_the_same(training: Any) -> None:
    network = training.networks.frozen()
    items = network.order(training.tasks[0].items)
    found = network.rollout(items, 3, np.random.default_rng(0), record=True)
    with torch.no_grad():
        scores, placed = training.policy_scores(items, found)
    assert placed.all()
    view, held = PolicyView.of(network, items), np.zeros((3, items.devices, REPRESENTED))
    for i in range(len(items)):
        seen = np.concatenate([held + view.represented[i], found.figures[i]], axis=-1)
        wanted = np.where(found.room[i], network.score(seen), -1e9)
        np.testing.assert_allclose(scores[i].numpy(), wanted, rtol=1e-3, atol=1e-2)
        held[np.arange(3), found.target[:, i]] += view.represented[i]


def test_predictions_come_near_measurements(training: Any) -> None:
    with torch.no_grad():
        _, costs, _, wanted, _ = training._batch(training.samples)
    off = (costs.sum(-1) / wanted.sum(-1) - 1).abs()
    assert float(off.median()) < 0.15


def test_reinforcement_makes_what_was_cheap_more_likely(training: Any) -> None:
    network = training.networks.frozen()
    items = network.order(training.tasks[1].items)
    found = network.rollout(items, 8, np.random.default_rng(1), record=True)
    cost = np.linspace(1.0, 2.0, 8)
    before = training._chances(items, found)[0].detach().numpy()
    for _ in range(30):
        training._reinforce(items, found, cost)
    after = training._chances(items, found)[0].detach().numpy()
    assert np.corrcoef(after - before, -cost)[0, 1] > 0.3


@pytest.mark.parametrize("name", ["network.base", "costs_adam.0.exp_avg", "samples.target"])
def test_arrays_of_a_checkpoint_are_there_and_of_their_shape(training: Any, name: str) -> None:
    kept = training.state()
    for wrong in ({**kept, name: kept[name][:1]}, {key: each for key, each in kept.items() if key != name}):
        with pytest.raises(ValueError, match=f"its array '{name}' is of shape|it has no array '{name}'"):
            training.restore(wrong, 2)
    training.restore(kept, 2)
    assert all(np.array_equal(each, kept[key]) for key, each in training.state().items())


def test_no_torch_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "recsmith.learning.policies.dreamshard", raising=False)
    with pytest.raises(MissingExtra, match="training needs PyTorch: pip install"):
        learn_policy("dreamshard", SETTINGS, str(tmp_path / "p.safetensors"), dict(WORDS))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("hardware", ["h100", "simulated", "simulated:nobody", "gpu:h100"])
def test_other_hardware_is_refused(tmp_path: Path, hardware: str) -> None:
    with pytest.raises(UsageError):
        learn_policy("dreamshard", replace(SETTINGS, hardware=hardware), str(tmp_path / "p.safetensors"), dict(WORDS))
    assert not list(tmp_path.iterdir())


@pytest.mark.soak  # test_autoshard.py kills a run, and tests/cli/test_learn_dreamshard.py ends one otherwise
def test_a_killed_run_goes_on_and_ends_as_it_would_have(tmp_path: Path) -> None:
    told = "8 placements measured, 2 iterations, estimated rewards"
    killed = check_that_a_killed_run_goes_on(tmp_path, "dreamshard", SMALL, told)
    with pytest.raises(UsageError, match="holds a run with seed 0 instead of 1; give another --output"):
        learn_policy("dreamshard", SETTINGS, str(killed / "p.safetensors"), {**WORDS, "seed": 1})
